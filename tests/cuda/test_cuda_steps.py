"""Whole steps of a two-layer model on the stand-in: each edge of the graph is needed, and the order
of what no edge orders changes no bit."""

import accel
import numpy as np
import pytest
import tiny
from accel import _core
from cuda_driver import emulator, library, no_faults  # noqa: F401
from runner import equal_bits, equal_bytes, oracle, run

library()
SEEDS = (1, 2, 3, 20, 77)  # natural, reversed, shuffled


def made(runtime, form: str):
    """A step over a filled cache, and its ports."""
    weights = tiny.weights_of(tiny.Size(), np.random.default_rng(3))
    return tiny.step(runtime, weights, form)


def placed_orders(seed: int) -> None:
    library().fakecuda_set_order(seed)
    emulator().metalemu_set_seed(seed)


@pytest.fixture
def check_mode():
    emulator().metalemu_set_check(1)
    yield
    _core._leave_out_barrier(0)
    emulator().metalemu_set_check(0)


def races(device, g, ports) -> str:
    """What check mode reports of a plan compiled now."""
    emu = emulator()
    emu.metalemu_clear_faults()
    plan = g.builder.compile()
    run(device, g, plan, ports)
    plan.close()
    found = emu.metalemu_fault_text().decode()
    emu.metalemu_clear_faults()
    return found


@pytest.mark.parametrize("form", ["decode", "ragged"])
@pytest.mark.usefixtures("check_mode")
def test_no_edge_of_the_graph_can_be_left_out(form):
    runtime = accel.Runtime(accel.open_cuda(debug_fill=255))
    g, ports = made(runtime, form)
    assert not races(runtime.device, g, ports)
    placed = _core._barriers_placed()
    assert placed > 20
    silent = []
    for nth in range(1, placed + 1):
        _core._leave_out_barrier(nth)
        if "race" not in races(runtime.device, g, ports):
            silent.append(nth)
    assert not silent, f"of {placed} barriers of the {form} step these are not needed"


@pytest.mark.parametrize("form", ["decode", "ragged"])
def test_a_step_has_the_bits_of_its_orders_in_every_order_of_nodes_and_threads(form):
    runtime = accel.Runtime(accel.open_cuda(debug_fill=255))
    g, ports = made(runtime, form)
    plan = g.builder.compile()
    first = None
    try:
        for seed in SEEDS:
            placed_orders(seed)
            got = run(runtime.device, g, plan, ports)
            first = first or got
            equal_bytes(got, first, f"{form} with seed {seed}")
    finally:
        placed_orders(1)
    for name, (values, _) in oracle(g, "fma", ports).items():
        equal_bits(first[name], values, f"{form}: {name}")
    serial = accel.Runtime(accel.open_cuda(serial=True))
    g, ports = made(serial, form)
    equal_bytes(run(serial.device, g, None, ports), first, f"{form} in one chain")
