"""Several results and any number of operands: poison, selections, explain, states, dead results
(CONTRACT 5.2, 20.2, E7)."""

import accel
import numpy as np
import pytest
from accel import tensor as T
from conftest import open_runtime
from runner import Graph, equal_bits, kernels_of, oracle, run, within


@pytest.fixture
def x(rng):
    return rng.standard_normal((4, 6)).astype(np.float32)


def poisoned(g: Graph):
    bad = T.silu(g.builder.input("bad", accel.U32, [4, 6]))
    assert not bad.valid
    return bad


def test_poison_is_silent_and_keeps_the_number_of_results(isa, x):
    g = Graph(open_runtime(isa))
    bad, good = poisoned(g), g.port("x", x)
    values, indices = T.top_k(bad, 2)
    joined = T.concat(good, bad, axis=0)
    state = g.builder.state("s", accel.F32, [4, 6])
    written = T.scatter_rows(state, bad, g.port("ids", np.arange(4, dtype=np.uint32)))
    assert isinstance(written, T.State)
    assert not any(v.valid for v in (values, indices, joined, written))
    T.concat(values, joined, axis=0)
    assert len(g.builder.err().diagnostics) == 1


def test_a_refused_call_of_two_results_gives_two(isa, x):
    g = Graph(open_runtime(isa))
    values, indices = T.top_k(g.port("x", x), 7)
    assert not values.valid
    assert not indices.valid


def test_a_missing_operand_is_named_although_another_is_poison(isa, x):
    g = Graph(open_runtime(isa))
    T.concat(poisoned(g), None, axis=0)
    operands = {d.operand for d in g.builder.err().diagnostics}
    assert operands == {"x", "xs[1]"}


def test_concat_of_nothing_raises():
    with pytest.raises(accel.GraphError, match="concat: xs is"):
        T.concat(axis=0)
    with pytest.raises(TypeError, match=r"concat: xs\[0\] is a list"):
        T.concat([], axis=0)


@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("which", [0, 1])
def test_one_result_of_top_k_alone(which, k, isa, x):
    g = Graph(open_runtime(isa))
    g.output("out", T.top_k(g.port("x", x), k)[which])
    got = run(open_runtime(isa).device, g)["out"]
    order = np.argsort(-x, -1, kind="stable")[:, :k]
    equal_bits(got, np.take_along_axis(x, order, -1) if which == 0 else order, "top_k")


def test_top_k_feeds_take_and_gathers(isa, x):
    """The first index of each row picks the first value, and flat ids pick all of them."""
    g = Graph(open_runtime(isa))
    t = g.port("x", x)
    values, indices = T.top_k(t, 3)
    first = T.reshape(T.contiguous(T.slice(indices, 1, 0, 1)), [4])
    g.output("best", T.take(t, first))
    g.output("values", values)
    got = run(open_runtime(isa).device, g)
    equal_bits(got["best"], got["values"][:, 0], "take of the first index")


def test_concat_has_one_entry_and_shows_every_operand(isa, x):
    g = Graph(open_runtime(isa))
    t = g.port("x", x)
    parts = [T.slice(t, 1, i, i + 1) for i in range(6)]
    out = T.concat(*parts, T.silu(t), axis=1)
    g.output("out", out)
    plan = g.builder.compile()
    assert [s.op for s in plan.selections()] == ["silu", "concat"]
    assert kernels_of(plan)[1] == "concat_4"
    text = plan.explain()
    assert all(f"xs[{i}]" in text for i in range(7)), text
    got = run(open_runtime(isa).device, g, plan)["out"]
    equal_bits(got[:, :6], x, "the columns put together again")
    equal_bits(got, oracle(g, "base" if isa == "base" else "fma")["out"][0], "concat")


def test_a_state_read_before_a_write_keeps_its_rows(isa, x):
    g = Graph(open_runtime(isa))
    state = g.port("s", x, "state")
    joined = T.concat(T.read_state(state), g.port("x", x + 1), axis=0)
    g.writes(
        T.scatter_rows(state, g.port("r", x + 2), g.port("ids", np.arange(4, dtype=np.uint32)))
    )
    g.output("out", joined)
    got = run(open_runtime(isa).device, g)
    equal_bits(got["out"], np.concatenate([x, x + 1]), "before the write")
    equal_bits(got["s"], x + 2, "after the write")


def test_one_tensor_twice(isa, x):
    g = Graph(open_runtime(isa))
    t = g.port("x", x)
    g.output("out", T.concat(t, T.transpose(T.reshape(t, [6, 4]), 0, 1), t, axis=1))
    want = np.concatenate([x, x.reshape(6, 4).T, x], 1)
    equal_bits(run(open_runtime(isa).device, g)["out"], want, "twice")


# ------------------------------------------------------------------ ends of ranges


def graph_of(isa, build, x: np.ndarray) -> Graph:
    g = Graph(open_runtime(isa))
    g.output("out", build(g.port("x", x), g))
    return g


def one(isa, build, x: np.ndarray) -> np.ndarray:
    return run(open_runtime(isa).device, graph_of(isa, build, x))["out"]


def test_p26_48_clamp_at_its_ends(isa):
    inf, nan = np.inf, np.nan
    x = np.array([nan, 0.0, -0.0, inf, -inf, 2, -2, 1, -1], np.float32)
    got = one(isa, lambda t, g: T.clamp(t, low=-1.0, high=1.0), x)
    equal_bits(got, np.array([nan, 0.0, -0.0, 1, -1, 1, -1, 1, -1], np.float32), "both ends")
    got = one(isa, lambda t, g: T.clamp(t, low=-inf, high=inf), x)
    equal_bits(got, x, "no ends")
    # Neither zero is below or above the other.
    got = one(isa, lambda t, g: T.clamp(t, low=0.0, high=0.0), np.array([0.0, -0.0], np.float32))
    equal_bits(got, np.array([0.0, -0.0], np.float32), "zeros")


def test_p26_48_log_softmax_at_88_and_beyond(isa):
    x = np.array([[88, -88, 0], [1e4, 0, -1e4], [-200, -300, -200]], np.float32)
    g = graph_of(isa, lambda t, g: T.log_softmax(t), x)
    got = run(open_runtime(isa).device, g)["out"]
    # The oracle derives the budget from the ceilings of exp and log and the order of the sum.
    budget = oracle(g)["out"][1]
    wide = x.astype(np.float64)
    top = wide.max(1, keepdims=True)
    want = wide - top - np.log(np.exp(wide - top).sum(1, keepdims=True))
    within(got, want, budget, "log_softmax")


def test_p26_48_rms_norm_of_f16_is_that_of_f32_rounded_once(isa, rng):
    x = rng.standard_normal((9, 70)).astype(np.float16)
    gain = rng.random(70).astype(np.float32)

    def norm(t, g):
        return T.rms_norm(t, g.port("gain", gain), eps=1e-5)

    want = one(isa, norm, x.astype(np.float32)).astype(np.float16)
    equal_bits(one(isa, norm, x), want, "f16")
