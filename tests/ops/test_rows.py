"""Every operator's rows on the CPU: the oracle's value within its derived budget, and the bits of
the registered order."""

import zlib
from pathlib import Path

import numpy as np
import pytest
from accel import UnsupportedError, _core
from case import BUDGET, In
from cases import CASES
from conftest import fma_tables, level_of, open_runtime, tables
from runner import (
    assert_not_trivial,
    equal_bits,
    equal_bytes,
    judge,
    kernels_of,
    oracle,
    record,
    run,
    within,
)

POINTS = [(case, point) for case in CASES for point in case.points]
IDS = [f"{case.op}-{point}" for case, point in POINTS]


def generator(case, point):
    return np.random.default_rng(zlib.crc32(f"{case.op} {point}".encode()))


def own_kernel(plan) -> str:
    """The kernel of the operator itself: not of what stands before it or behind it."""
    return next(k for k in kernels_of(plan) if k not in ("copy_bytes", "none", "segment_offsets"))


def outside_agrees(case, point, r, want):
    """The oracle against the row's independent formula, over plain operands and finite values."""
    keywords = {k: v for k, v in point.keywords.items() if not isinstance(v, In)}
    arrays = [np.asarray(a, np.float64) for a in r.arrays]
    plain = all(getattr(o, "view", None) is None for o in point.operands)
    if not plain or not all(np.isfinite(a).all() for a in arrays):
        return
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        expected = np.asarray(case.outside(*arrays, **keywords), np.float64)
    values, budget = want["out0"]
    finite = np.isfinite(values) & np.isfinite(expected) & np.isfinite(budget)
    # An exact operator adds one rounded store to its formula; f16 ones round in f32 first.
    unit, least = (2.0**-10, 2.0**-24) if r.outputs["out0"][0] == "f16" else (2.0**-24, 2.0**-149)
    slack = np.maximum(budget, np.maximum(np.abs(values) * unit, least))
    assert (np.abs(values - expected)[finite] <= slack[finite]).all(), (
        f"{case.op} {point}: oracle and formula"
    )


def orders_of(op: str, backend: str) -> dict[str, str]:
    """The order of each kernel that an operator has on a backend."""
    (found,) = (o for o in _core._ops() if o["name"] == op)
    return {k["kernel"]: k["order"] for k in found["kernels"] if k["backend"] == backend}


@pytest.mark.parametrize(("case", "point"), POINTS, ids=IDS)
def test_p26_28_row(case, point, isa):
    r = record(open_runtime(isa), case.op, point, generator(case, point))
    plan = r.builder.compile()
    got = run(open_runtime(isa).device, r, plan)
    want = oracle(r)
    judge(case.bound, got, want, f"{case.op} {point}")
    # Those of matrix units are the hardware's own: their bound alone is known (spec 007).
    backend = open_runtime(isa).device.info.backend
    if orders_of(case.op, backend).get(own_kernel(plan)) not in ("matrix8", "matrix16"):
        for name, (values, _) in oracle(r, level_of(isa)).items():
            equal_bits(got[name], values, f"{case.op} {point} {name} against its order")
    if case.outside:
        outside_agrees(case, point, r, want)
    if not point.trivial:
        assert_not_trivial(got, f"{case.op} {point}")


@pytest.mark.parametrize(("case", "point"), POINTS, ids=IDS)
def test_p26_38_tables_and_threads_give_equal_bits(case, point):
    results = []
    for isa in fma_tables():
        for threads in (1, 2):
            runtime = open_runtime(isa, threads)
            r = record(runtime, case.op, point, generator(case, point))
            results.append(run(runtime.device, r))
    for other in results[1:]:
        equal_bytes(other, results[0], f"{case.op} {point}")


@pytest.mark.parametrize(("case", "point"), POINTS, ids=IDS)
def test_general_kernels(case, point, isa, monkeypatch):
    """Earlier kernel rows are switched off one by one: those behind them in the same order give
    the same bits."""
    runtime = open_runtime(isa)
    backend, skipped, first = runtime.device.info.backend, [], {}
    orders = orders_of(case.op, backend)
    while True:
        monkeypatch.setenv("ACCEL_SKIP_KERNEL", ",".join(skipped))
        r = record(runtime, case.op, point, generator(case, point))
        try:
            plan = r.builder.compile()
        except UnsupportedError:
            break
        kernel = own_kernel(plan)
        assert kernel not in skipped, f"{kernel} runs although ACCEL_SKIP_KERNEL names it"
        skipped.append(kernel)
        got = run(runtime.device, r, plan)
        before = first.setdefault(orders[kernel], got)
        equal_bytes(got, before, f"{case.op} {point} by {kernel}")
    assert first


@pytest.mark.parametrize("case", [c for c in CASES if c.bound == BUDGET], ids=lambda c: c.op)
def test_budget_is_not_absurd(case):
    """On random rows some element uses at least a thousandth of its budget."""
    runtime = open_runtime(tables()[-1])
    used = 0.0
    for point in case.points:
        r = record(runtime, case.op, point, generator(case, point))
        if not all(np.isfinite(np.asarray(a, np.float64)).all() for a in r.arrays):
            continue
        want = oracle(r)
        got = run(runtime.device, r)
        used = max(used, judge(BUDGET, got, want, f"{case.op} {point}"))
    assert 1e-3 <= used <= 1


def test_every_op_has_a_case():
    names = {case.op for case in CASES}
    assert len(names) == len(CASES)
    assert names == {op["name"] for op in _core._ops() if not op["internal"]}


def test_every_op_has_error_rows():
    from test_op_errors import ALL

    assert {case.op for case in CASES} <= {row.op for row in ALL}


# ------------------------------------------------------------------ the judges themselves


def test_a_changed_bit_fails():
    want = {"out0": (np.array([1.0, -0.0, np.nan]), np.array([1e-7, 0, 0]))}
    good = {"out0": np.array([1, -0.0, np.nan], np.float32)}
    judge("exact", good, want, "good")
    for at, value in [(0, np.nextafter(np.float32(1), np.float32(2))), (1, 0.0), (2, 1.0)]:
        bad = {"out0": good["out0"].copy()}
        bad["out0"][at] = value
        with pytest.raises(AssertionError):
            judge("exact", bad, want, "bad")


def test_an_error_beyond_its_budget_fails():
    want, budget = np.array([1.0, 2.0]), np.array([1e-7, 1e-7])
    assert within(np.array([1.0 + 5e-8, 2.0]), want, budget, "good") == pytest.approx(0.5)
    with pytest.raises(AssertionError):
        within(np.array([1.0 + 2e-7, 2.0]), want, budget, "bad")
    with pytest.raises(AssertionError):
        within(np.array([np.nan, 2.0]), want, budget, "bad")


def test_p26_30_an_equal_result_is_trivial():
    with pytest.raises(AssertionError):
        assert_not_trivial({"out0": np.zeros(4)}, "zeros")


def test_p26_30_a_planted_mutation_is_seen():
    """One element of x is moved: the same judge must refuse the result."""
    case = next(c for c in CASES if c.op == "rms_norm")
    point = case.points[4]
    runtime = open_runtime(tables()[-1])
    r = record(runtime, case.op, point, generator(case, point))
    want = oracle(r)
    judge(case.bound, run(runtime.device, r), want, "unchanged")
    mutated = r.ports["x0"].copy()
    mutated.flat[3] *= np.float32(1.001)
    assert (mutated != r.ports["x0"]).sum() == 1
    with pytest.raises(AssertionError):
        judge(case.bound, run(runtime.device, r, ports={"x0": mutated}), want, "mutated")


# ------------------------------------------------------------------ the table as a whole

ORDERS = {"exact", "lane16", "lane128", "chain", "block256", "attention_block128", "int8_group"}
ORDERS |= {"lane256", "attention_split128", "matrix8", "matrix16"}  # of GPUs


def test_p26_38_every_order_has_its_definition():
    spec = (Path(__file__).parents[2] / "specs" / "007-oracle-and-bounds.md").read_text()
    used = {k["order"] for op in _core._ops() for k in op["kernels"]}
    assert used <= ORDERS
    for order in used - {"exact"}:
        assert f"| `{order}` |" in spec, f"{order} has no definition"


def kernels_reached(runtime, case, point, monkeypatch, pack=False) -> set[str]:
    reached: list[str] = []
    while True:
        monkeypatch.setenv("ACCEL_SKIP_KERNEL", ",".join(reached))
        try:
            builder = record(runtime, case.op, point, generator(case, point)).builder
            plan = builder.compile(pack=pack)
        except UnsupportedError:
            return set(reached)
        reached.append(own_kernel(plan))


def test_every_kernel_runs_in_some_row(monkeypatch):
    runtime, reached = open_runtime(tables()[-1]), set()
    for case, point in POINTS:
        reached |= kernels_reached(runtime, case, point, monkeypatch)
        if point.keywords.get("w_order") == "kn":
            reached |= kernels_reached(runtime, case, point, monkeypatch, pack=True)
    named = {
        k["kernel"]
        for op in _core._ops()
        if not op["internal"]
        for k in op["kernels"]
        if k["backend"] == "cpu"
    }
    assert named <= reached, sorted(named - reached)
