"""check=True: bad device data is named, good data changes nothing (CONTRACT 3.1)."""

import re

import accel
import numpy as np
import pytest
from accel import tensor as T
from conftest import GPUS, chosen_tables, open_named
from placing import submit_arrays

F32, U32 = np.float32, np.uint32
PADDING = 2**32 - 1


def opened(threads: int, check: bool = False):
    """The CPU, or the device that ACCEL_TEST_DEVICE names."""
    name = chosen_tables()[0]
    return open_named(name if name in GPUS else None, threads, check=check)


@pytest.fixture(scope="module", params=[False, True], ids=["unchecked", "checked"])
def runtimes(request):
    """A runtime, and whether it checks."""
    return accel.Runtime(opened(2, request.param)), request.param


def ports(b, arrays):
    given = {bool: None, np.dtype(F32): accel.F32, np.dtype(U32): accel.U32}
    given |= {np.dtype(np.int8): accel.I8, np.dtype(np.float16): accel.F16}
    return {name: b.input(name, given[a.dtype], a.shape) for name, a in arrays.items()}


def run(runtime, arrays, build, states=()):
    """Outputs and states after one submission; build(builder, ports, states) gives the output."""
    b = runtime.new_builder("checked")
    p = ports(b, arrays)
    s = {n: b.state(n, accel.U32 if a.dtype == U32 else accel.F32, a.shape) for n, a in states}
    out = build(b, p, s)
    results = {}
    if out is not None:
        b.output("out", out)
        results["out"] = np.zeros(tuple(out.shape), F32 if out.dtype == accel.F32 else U32)
    plan = b.compile()
    for port in plan.ports():
        if port.name in ("counts", "inverse") and str(port.kind) == "output":
            results[port.name] = np.zeros(tuple(port.shape), U32)
    held = {n: a.copy() for n, a in states}
    scalars = {"one": 1.0} if any(x.name == "one" for x in plan.scalars()) else {}
    submit_arrays(runtime.device, plan, {**arrays, **held, **results}, scalars)
    return {**results, **held}


def line_of(function) -> set[int]:
    return {line for _, _, line in function.__code__.co_lines() if line}


def table(v=5):
    return np.arange(v * 3, dtype=F32).reshape(v, 3)


def gathered(b, p, s):
    return T.gather_rows(p["table"], p["ids"])


def quant_gathered(b, p, s):
    return T.quant_gather_rows(T.Quantized(p["quants"], p["scales"]), p["ids"])


def scattered(b, p, s):
    T.scatter_rows(s["state"], p["rows"], p["ids"])


def attended(b, p, s):
    scale = b.scalar("one", T.ScalarKind.F32)
    return T.attention(p["q"], s["k"], s["v"], lengths=p["lengths"], scale_name=scale)


def paged(b, p, s):
    scale = b.scalar("one", T.ScalarKind.F32)
    given = {"lengths": p["lengths"], "pages": p["pages"], "block": 2, "scale_name": scale}
    return T.attention(p["q"], s["k"], s["v"], **given)


def ragged(b, p, s):
    scale = b.scalar("one", T.ScalarKind.F32)
    given = {"lengths": p["lengths"], "pages": p["pages"], "block": 2, "scale_name": scale}
    return T.attention(p["q"], s["k"], s["v"], query_extents=p["extents"], **given)


def grouped(b, p, s):
    return T.grouped_matmul(p["x"], p["w"], p["counts"])


def grouped_by_row(b, p, s):
    return T.grouped_matvec(p["x"], p["w"], p["counts"])


def convolved(b, p, s):
    return T.causal_conv1d(p["x"], p["w"], s["rows"], query_extents=p["extents"])[0]


def linear(b, p, s):
    given = {"alpha": p["alpha"], "beta": p["alpha"], "query_extents": p["extents"]}
    return T.linear_attention(p["q"], p["q"], p["q"], s["rows"], **given)[0]


def taken(b, p, s):
    return T.take(p["table"], p["ids"])


def routed(b, p, s):
    rows, counts, inverse = T.route(p["ids"], experts=3)
    b.output("counts", counts)
    b.output("inverse", inverse)
    return rows


def combined(b, p, s):
    return T.combine(p["y"], p["inverse"], p["weights"])


def drawn(b, p, s):
    return T.sample_categorical(p["weights"], p["draws"])


def sampled(b, p, s):
    penalties = T.RowPenalties(s["history"], s["counts"], p["filled"], p["c"], p["c"], p["c"])
    return T.sample_rows(p["x"], p["draws"], T.RowSampling(p["factor"], penalties=penalties))


def ids(*values):
    return np.array(values, U32)


KV = np.ones((4, 2, 8), F32)
SAMPLED = {
    "x": np.ones((2, 6), F32),
    "c": np.ones(2, F32),
    "factor": np.array([1, 0], F32),
    "draws": np.array([0.3, 0.5], F32),
    "filled": ids(3, 0),
}
STATES = (("history", np.zeros((2, 3), U32)), ("counts", np.zeros((2, 6), U32)))
QUANT = {"quants": np.ones((4, 32), np.int8), "scales": np.ones(4, np.float16)}
WEIGHTS = np.ones((2, 7), F32)

# name, build, arrays, states, the operand with bad data, its value, operator, words of the error
ROWS = [
    (
        "gather",
        gathered,
        {"table": table(), "ids": ids(0, 4, PADDING)},
        (),
        "ids",
        ids(1, 5, 2),
        "gather_rows",
        "ids[1] is 5 and must be below 5",
    ),
    (
        "quantized gather",
        quant_gathered,
        {**QUANT, "ids": ids(3, PADDING)},
        (),
        "ids",
        ids(3, PADDING - 1),
        "quant_gather_rows",
        "ids[1] is 4294967294 and must be below 4",
    ),
    (
        "scatter",
        scattered,
        {"rows": table(3), "ids": ids(0, 3, PADDING)},
        (("state", table(4)),),
        "ids",
        ids(4, 0, 1),
        "scatter_rows",
        "ids[0] is 4 and must be below 4",
    ),
    (
        "lengths",
        attended,
        {"q": np.ones((2, 8), F32), "lengths": ids(4)},
        (("k", KV), ("v", KV)),
        "lengths",
        ids(5),
        "attention",
        "lengths[0] is 5 and must be at most 4",
    ),
    (
        "pages that a length reaches",
        paged,
        {
            "q": np.ones((2, 1, 2, 8), F32),
            "lengths": ids(3, 1),
            "pages": ids(1, 0, 1, 9).reshape(2, 2),
        },
        (("k", KV), ("v", KV)),
        "pages",
        ids(0, 2, 1, 9).reshape(2, 2),
        "attention",
        "pages[0, 1] is 2 and must be below 2",
    ),
    (
        "lengths beyond the pages",
        paged,
        {
            "q": np.ones((2, 1, 2, 8), F32),
            "lengths": ids(4, 0),
            "pages": ids(1, PADDING, 9, 9).reshape(2, 2),
        },
        (("k", KV), ("v", KV)),
        "lengths",
        ids(0, 5),
        "attention",
        "lengths[1] is 5 and must be at most 4",
    ),
    (
        "extents",
        ragged,
        {
            "q": np.ones((3, 2, 8), F32),
            "lengths": ids(3, 2),
            "pages": ids(1, 0, 1, 0).reshape(2, 2),
            "extents": ids(2, 1),
        },
        (("k", KV), ("v", KV)),
        "extents",
        ids(2, 2),
        "attention",
        "query_extents is 4 in sum and must be at most 3",
    ),
    (
        "counts",
        grouped,
        {"x": np.ones((4, 3), F32), "w": np.ones((2, 3, 5), F32), "counts": ids(1, 3)},
        (),
        "counts",
        ids(3, PADDING),
        "grouped_matmul",
        "counts is 4294967298 in sum and must be at most 4",
    ),
    (
        "counts of rows one by one",
        grouped_by_row,
        {"x": np.ones((4, 3), F32), "w": np.ones((2, 3, 5), F32), "counts": ids(1, 3)},
        (),
        "counts",
        ids(4, 1),
        "grouped_matvec",
        "counts is 5 in sum and must be at most 4",
    ),
    (
        "extents of a convolution",
        convolved,
        {"x": np.ones((4, 3), F32), "w": np.ones((3, 2), F32), "extents": ids(1, 3)},
        (("rows", np.zeros((2, 1, 3), F32)),),
        "extents",
        ids(2, 3),
        "causal_conv1d",
        "query_extents is 5 in sum and must be at most 4",
    ),
    (
        "extents of linear attention",
        linear,
        {"q": np.ones((4, 2, 8), F32), "alpha": np.ones(4, F32), "extents": ids(1, 3)},
        (("rows", np.zeros((2, 2, 8, 8), F32)),),
        "extents",
        ids(0, 6),
        "linear_attention",
        "query_extents is 6 in sum and must be at most 4",
    ),
    (
        "take",
        taken,
        {"table": table(3), "ids": ids(2, 0, PADDING)},
        (),
        "ids",
        ids(2, 3, 0),
        "take",
        "ids[1] is 3 and must be below 3",
    ),
    (
        "experts",
        routed,
        {"ids": ids(2, 0, PADDING, 1).reshape(2, 2)},
        (),
        "ids",
        ids(2, 0, 3, 1).reshape(2, 2),
        "route",
        "ids[2] is 3 and must be below 3",
    ),
    (
        "places",
        combined,
        {
            "y": np.ones((4, 3), F32),
            "inverse": ids(3, 0, PADDING, 1),
            "weights": np.ones((2, 2), F32),
        },
        (),
        "inverse",
        ids(3, 0, 4, 1),
        "combine",
        "inverse[2] is 4 and must be below 4",
    ),
    (
        "draws of 1",
        drawn,
        {"weights": WEIGHTS, "draws": np.array([0, 0.99999994], F32)},
        (),
        "draws",
        np.array([0.5, 1], F32),
        "sample_categorical",
        "draws[1] is 1 and must be in [0, 1)",
    ),
    (
        "negative draws",
        drawn,
        {"weights": WEIGHTS, "draws": np.array([0, 0.5], F32)},
        (),
        "draws",
        np.array([-0.25, 0.5], F32),
        "sample_categorical",
        "draws[0] is -0.25",
    ),
    (
        "NaN draws",
        drawn,
        {"weights": WEIGHTS, "draws": np.array([0, 0.5], F32)},
        (),
        "draws",
        np.array([0, np.nan], F32),
        "sample_categorical",
        "draws[1] is nan",
    ),
    (
        "filled",
        sampled,
        SAMPLED,
        STATES,
        "filled",
        ids(0, 4),
        "row_penalty_count",
        "filled[1] is 4 and must be at most 3",
    ),
    (
        "draws of a row that is drawn",
        sampled,
        SAMPLED,
        STATES,
        "draws",
        np.array([2, 0], F32),
        "row_draw",
        "draws[0] is 2 and must be in [0, 1)",
    ),
]
NAMES = [row[0] for row in ROWS]


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_p26_36_bad_data_is_named_with_operator_value_bound_and_line(row, runtimes):
    _, build, arrays, states, name, bad, op, words = row
    runtime, checks = runtimes
    if not checks:
        run(runtime, {**arrays, name: bad}, build, states)
        return
    with pytest.raises(accel.BindError) as caught:
        run(runtime, {**arrays, name: bad}, build, states)
    error = caught.value
    operand = re.split(r"[\[ ]", words)[0]  # the operator's name for it, which a port need not have
    assert error.code == "data" and error.op == op and error.operand == operand
    assert words in str(error) and str(error).startswith(op + ": ")
    assert error.file == __file__ and error.line in line_of(build)
    assert f"recorded at test_check_data.py:{error.line}" in str(error)
    assert [(p.code, p.name) for p in error.problems] == [("data", operand)]


@pytest.mark.parametrize("row", ROWS, ids=NAMES)
def test_p26_36_good_data_gives_the_bits_of_no_check(row, runtimes):
    _, build, arrays, states, *_ = row
    plain = run(accel.Runtime(opened(1)), arrays, build, states)
    got = run(runtimes[0], arrays, build, states)
    assert got.keys() == plain.keys()
    for name in got:
        assert got[name].tobytes() == plain[name].tobytes()


def test_draws_of_greedy_rows_are_not_read(runtimes):
    bad = {**SAMPLED, "draws": np.array([0.3, np.nan], F32)}
    assert run(runtimes[0], bad, sampled, STATES)["out"][1] == 0


def test_a_computed_id_is_tested_where_it_is_read():
    """The first bad node fails; what an earlier one wrote is there, a later one has not run."""
    runtime = accel.Runtime(opened(1, check=True))
    b = runtime.new_builder("computed")
    x, t = b.input("x", accel.F32, [1, 9]), b.input("t", accel.F32, [5, 3])
    best = T.argmax(x)
    b.output("best", best)
    b.output("row", T.gather_rows(t, best))
    plan = b.compile()
    x = np.zeros((1, 9), F32)
    best, row = np.full(1, 77, U32), np.full((1, 3), 7, F32)
    for at in (2, 8, 2):
        x[:] = 0
        x[0, at] = 1
        bound = {"x": x, "t": table(), "best": best, "row": row}
        if at == 2:
            assert submit_arrays(runtime.device, plan, bound) and row[0].tolist() == [6, 7, 8]
            continue
        with pytest.raises(accel.BindError, match=r"ids\[0\] is 8 and must be below 5"):
            submit_arrays(runtime.device, plan, bound)
        assert best[0] == 8 and row[0].tolist() == [6, 7, 8]


def test_check_is_a_bool():
    with pytest.raises(TypeError, match="check is an int and must be a bool"):
        accel.open_cpu(check=1)
