"""Each barrier that the plan placed is needed: check mode reports a race when it is left out."""

import accel
import numpy as np
import pytest
import tiny
from accel import _core
from driver import library, no_faults  # noqa: F401
from runner import run, scalar_values


@pytest.fixture
def check_mode():
    library().metalemu_set_check(1)
    yield
    _core._leave_out_barrier(0)
    library().metalemu_set_check(0)


def faults(device, g, ports, submissions=1):
    """What check mode reports of a plan compiled now."""
    lib = library()
    lib.metalemu_clear_faults()
    plan = g.builder.compile(max_in_flight=submissions)
    if submissions == 1:
        run(device, g, plan, ports)
    else:
        run_back_to_back(device, g, plan, ports, submissions)
    plan.close()
    found = lib.metalemu_fault_text().decode()
    lib.metalemu_clear_faults()
    return found


def run_back_to_back(device, g, plan, ports, submissions):
    contents = {**g.ports, **ports}
    bound = {}
    for port in plan.ports():
        array = contents.get(port.name)
        count = int(np.prod(port.shape))
        bound[port.name] = (
            device.new_buffer(port.dtype, count) if array is None else device.buffer(array)
        )
    fences = [plan.submit(bound, scalar_values(g)) for _ in range(submissions)]
    assert all(f.wait() for f in fences)


families = pytest.mark.parametrize("plain", [False, True], ids=["simd", "plain"])


@families
@pytest.mark.parametrize("form", ["decode", "ragged"])
@pytest.mark.usefixtures("check_mode")
def test_p26_2_no_barrier_can_be_left_out(form, plain):
    runtime = accel.Runtime(accel.open_metal(plain=plain, debug_fill=255))
    weights = tiny.weights_of(tiny.Size(), np.random.default_rng(3))
    g, ports = tiny.step(runtime, weights, form)
    assert not faults(runtime.device, g, ports)
    placed = _core._barriers_placed()
    assert placed > 20
    silent = []
    for nth in range(1, placed + 1):
        _core._leave_out_barrier(nth)
        if "race" not in faults(runtime.device, g, ports):
            silent.append(nth)
    assert not silent, f"of {placed} barriers of the {form} step these are not needed"


@families
@pytest.mark.parametrize("form", ["decode", "ragged"])
@pytest.mark.usefixtures("check_mode")
def test_a_submission_waits_for_the_one_before(form, plain):
    runtime = accel.Runtime(accel.open_metal(plain=plain))
    weights = tiny.weights_of(tiny.Size(), np.random.default_rng(3))
    g, ports = tiny.step(runtime, weights, form)
    assert not faults(runtime.device, g, ports, 2)
    _core._leave_out_barrier(-1)
    assert "race" in faults(runtime.device, g, ports, 2)
