"""Builder calls in any order, with any operands: refused in the library's words, or a plan that
gives the bits of the slow walk of its registered orders over any data."""

import os

import accel
import numpy as np
import pytest
from accel import _core
from accel import tensor as T
from conftest import chosen_tables, level_of, open_runtime
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs import Program, contents
from runner import GUARD, equal_bits, guarded
from values import NUMPY

QUICK = 1_000


def examples() -> int:
    return int(os.environ.get("ACCEL_FUZZ_PROGRAMS", QUICK))


def run_plan(runtime, program: Program, plan, rng) -> None:
    arrays, scalars = contents(plan, rng)
    bound = {}
    for port in plan.ports():
        dtype = str(port.dtype)
        typed = arrays[port.name].view(NUMPY[dtype])
        bound[port.name], _ = guarded(runtime.device, dtype, typed, len(typed))
    values = {k: T.f32(v) if isinstance(v, np.float32) else T.u32(v) for k, v in scalars.items()}
    bits = {
        k: int(v.view(np.uint32)) if isinstance(v, np.float32) else v for k, v in scalars.items()
    }
    assert plan.submit(bound, values).wait(timeout=60), "a plan hangs"
    level = level_of(chosen_tables()[0])
    walk = _core.oracle(program.builder, arrays, bits, level=level, budgets=False)
    for port in plan.ports():
        whole = bound[port.name].buffer.read().view(np.uint8)
        dtype = NUMPY[str(port.dtype)]
        edge = GUARD * dtype.itemsize
        inner = whole[edge : len(whole) - edge].copy()
        assert (whole[:edge] == 0xA5).all() and (whole[-edge:] == 0xA5).all(), port.name
        if port.name in walk:
            got = inner.view(dtype).reshape(tuple(port.shape))
            equal_bits(got, walk[port.name][0], f"{port.name}\n{plan.explain()}")
        else:
            assert (inner == arrays[port.name]).all(), f"{port.name} was written"


def one_program(numbers: list[int]) -> bool:
    """True if the program became a plan and ran."""
    runtime = open_runtime(chosen_tables()[0])
    program = Program(runtime, numbers)
    for _ in range(1 + program.draw(6)):
        program.call()
    plan = program.finish()
    if plan is None:
        return False
    run_plan(runtime, program, plan, np.random.default_rng(sum(numbers)))
    plan.close()
    return True


@given(st.lists(st.integers(0, 2**16 - 1), min_size=4, max_size=60))
@settings(
    max_examples=examples(),
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_programs(numbers):
    one_program(numbers)


def test_many_programs_are_plans():
    """The generator reaches the kernels: enough programs of a fixed seed compile and run."""
    rng = np.random.default_rng(1)
    ran = sum(one_program(rng.integers(0, 2**16, 60).tolist()) for _ in range(400))
    assert ran >= 40, ran


def test_a_wrong_bit_is_seen(monkeypatch):
    """The walk of another graph must be refused."""
    runtime = open_runtime(chosen_tables()[0])
    builder = runtime.new_builder("wrong")
    x = builder.input("x", accel.F32, [8])
    builder.output("y", T.silu(x))
    plan = builder.compile()
    program = Program(runtime, [])
    y = program.builder.input("x", accel.F32, [8])
    program.builder.output("y", T.add(y, y))
    with pytest.raises(AssertionError):
        run_plan(runtime, program, plan, np.random.default_rng(0))
