"""Operators with a state along each sequence: cuts, slots, gates and padding change no bit
(CONTRACT 16, 24.1, E7; 26.19, 26.49)."""

import itertools

import accel
import numpy as np
import pytest
from accel import tensor as T
from conftest import open_runtime
from runner import Graph, equal_bits, run

H, DK, DV = 2, 20, 35


def attend(runtime, q, k, v, state, alpha, beta, extents, **options):
    """(result, state afterwards)."""
    g = Graph(runtime)
    out, after = T.linear_attention(
        g.port("q", q),
        g.port("k", k),
        g.port("v", v),
        g.port("state", state, "state"),
        alpha=g.port("alpha", alpha),
        beta=g.port("beta", beta),
        query_extents=g.port("extents", np.array(extents, np.uint32)),
        **options,
    )
    g.output("out", out)
    g.writes(after)
    got = run(runtime.device, g)
    return got["out"], got["state"]


def convolve(runtime, x, w, state, extents, bias=None):
    g = Graph(runtime)
    out, after = T.causal_conv1d(
        g.port("x", x),
        g.port("w", w),
        g.port("state", state, "state"),
        query_extents=g.port("extents", np.array(extents, np.uint32)),
        bias=None if bias is None else g.port("bias", bias),
    )
    g.output("out", out)
    g.writes(after)
    got = run(runtime.device, g)
    return got["out"], got["state"]


def tokens(rng, t, layout="head"):
    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    gate = {"token": (t,), "head": (t, H), "column": (t, 1), "key": (t, H, DK)}[layout]
    alpha = rng.random(gate).astype(np.float32)
    beta = rng.random((t, H) if layout == "key" else gate).astype(np.float32)
    return [
        normal(t, H, DK),
        normal(t, H, DK) * np.float32(DK**-0.5),
        normal(t, H, DV),
        alpha,
        beta,
    ]


def step(runtime, data, state, extents, part=slice(None), **options):
    q, k, v, alpha, beta = (np.ascontiguousarray(array[part]) for array in data)
    return attend(runtime, q, k, v, state, alpha, beta, extents, **options)


FORMS = [
    {"decay_first": first, "rule": rule}
    for first, rule in itertools.product((False, True), ("delta", "add"))
]


# ------------------------------------------------------------------ the vector of CONTRACT 16


def test_p26_19_the_worked_example(isa):
    runtime, state = open_runtime(isa), np.zeros((1, 1, 1, 2), np.float32)
    half, one = np.array([0.5], np.float32), np.array([1], np.float32)
    k = np.array([[[1, 0]]], np.float32)
    q = np.array([[[3, 0]]], np.float32)
    for v, result, after in [(2, 6, [2, 0]), (4, 9, [3, 0])]:
        value = np.full((1, 1, 1), v, np.float32)
        out, state = attend(runtime, q, k, value, state, half, one, (1,))
        assert out.item() == result
        assert state.reshape(-1).tolist() == after


# ------------------------------------------------------------------ cuts


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("layout", ["token", "head", "column", "key"])
def test_p26_19_any_cut_gives_the_bits_of_the_whole(form, layout, isa, rng):
    if layout == "key" and not form["decay_first"] and form["rule"] == "delta":
        form = {"decay_first": True, "rule": "delta"}
    runtime, t = open_runtime(isa), 12
    data = tokens(rng, t, layout)
    state = rng.standard_normal((1, H, DV, DK)).astype(np.float32)
    want, want_state = step(runtime, data, state, (t,), **form)
    assert len(np.unique(want)) > 100
    for cuts in ([1] * t, [1, 4, 7], [11, 1]):
        outs, now, at = [], state, 0
        for n in cuts:
            out, now = step(runtime, data, now, (n,), slice(at, at + n), **form)
            outs.append(out)
            at += n
        equal_bits(np.concatenate(outs), want, f"cut {cuts}")
        equal_bits(now, want_state, f"state after the cut {cuts}")


def test_sequences_side_by_side_give_the_bits_of_each_alone(isa, rng):
    extents, t = (3, 0, 5, 1), 12
    data = tokens(rng, t)
    state = rng.standard_normal((4, H, DV, DK)).astype(np.float32)
    for threads in (1, 2, 3):
        runtime = open_runtime(isa, threads)
        got, after = step(runtime, data, state, extents)
        begin = 0
        for b, n in enumerate(extents):
            if n == 0:
                equal_bits(after[b], state[b], "a slot without tokens")
                continue
            own = slice(begin, begin + n)
            out, slot = step(runtime, data, state[b : b + 1], (n,), own)
            equal_bits(got[own], out, f"sequence {b}")
            equal_bits(after[b : b + 1], slot, f"slot {b}")
            begin += n
        assert not got[begin:].any() and not np.signbit(got[begin:]).any()


def test_p26_19_other_sequences_and_padding_may_be_nan(isa, rng):
    runtime = open_runtime(isa)
    data = tokens(rng, 9)
    state = rng.standard_normal((3, H, DV, DK)).astype(np.float32)
    want, want_state = step(runtime, data, state, (2, 4, 1))
    for array in data:
        array[:2], array[6:] = np.nan, np.nan
    state[0], state[2] = np.nan, np.nan
    got, after = step(runtime, data, state, (2, 4, 1))
    equal_bits(got[2:6], want[2:6], "between NaN")
    equal_bits(after[1], want_state[1], "its slot")
    assert not got[7:].any()


# ------------------------------------------------------------------ the state


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_p26_19_alpha_one_and_beta_zero_leave_the_state_as_it_is(form, isa, rng):
    runtime, t = open_runtime(isa), 5
    state = rng.standard_normal((1, H, DV, DK)).astype(np.float32)
    state.flat[::3], state.flat[1::7] = -0.0, 1e-45
    q, k, v, alpha, beta = tokens(rng, t)
    v[:] = np.nan  # with beta = 0 it is not read
    alpha[:], beta[:] = 1, 0
    beta[::2] = -0.0
    out, after = attend(runtime, q, k, v, state, alpha, beta, (t,), **form)
    assert after.tobytes() == state.tobytes()
    assert np.isfinite(out).all()


def test_p26_19_a_slot_of_nan_that_is_zeroed_is_a_fresh_slot(isa, rng):
    runtime, t = open_runtime(isa), 7
    data = tokens(rng, t)
    fresh = np.zeros((2, H, DV, DK), np.float32)
    want, want_state = step(runtime, data, fresh, (3, 4))
    used = np.full_like(fresh, np.nan)
    _, used = step(runtime, data, used, (3, 4))
    assert np.isnan(used).all()
    used[:] = 0
    got, after = step(runtime, data, used, (3, 4))
    equal_bits(got, want, "the result")
    equal_bits(after, want_state, "the state")


# ------------------------------------------------------------------ gates and rules


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_p26_49_every_layout_of_equal_gates_gives_equal_bits(form, isa, rng):
    runtime, t = open_runtime(isa), 6
    q, k, v, alpha, beta = tokens(rng, t, "token")
    state = rng.standard_normal((1, H, DV, DK)).astype(np.float32)
    want, want_state = attend(runtime, q, k, v, state, alpha, beta, (t,), **form)
    wide = [np.repeat(gate[:, None], H, 1) for gate in (alpha, beta)]
    layouts = [(alpha[:, None], beta[:, None]), tuple(wide)]
    if form["decay_first"] or form["rule"] == "add":
        layouts.append((np.repeat(wide[0][:, :, None], DK, 2), wide[1]))
    for a, b in layouts:
        got, after = attend(runtime, q, k, v, state, a, b, (t,), **form)
        equal_bits(got, want, f"alpha {a.shape}")
        equal_bits(after, want_state, f"state with alpha {a.shape}")


def test_p26_49_without_u_the_two_forms_coincide(isa, rng):
    runtime, t = open_runtime(isa), 6
    data = tokens(rng, t)
    state = rng.standard_normal((1, H, DV, DK)).astype(np.float32)
    first, late = (
        step(runtime, data, state, (t,), rule="add", decay_first=flag) for flag in (True, False)
    )
    equal_bits(first[0], late[0], "results")
    equal_bits(first[1], late[1], "states")


def test_forms_that_differ_by_their_formulas_differ(isa, rng):
    """So that no test compares a form with itself under another name."""
    runtime, t = open_runtime(isa), 6
    data = tokens(rng, t)
    state = rng.standard_normal((1, H, DV, DK)).astype(np.float32)
    results = [step(runtime, data, state, (t,), **form)[0] for form in FORMS if form != FORMS[3]]
    for one, other in itertools.combinations(results, 2):
        assert (one != other).mean() > 0.9


def test_a_token_too_many_is_caught(isa, rng):
    """A planted mutation: the second call begins one token early."""
    runtime, t = open_runtime(isa), 8
    data = tokens(rng, t)
    state = np.zeros((1, H, DV, DK), np.float32)
    want, _ = step(runtime, data, state, (t,))
    _, now = step(runtime, data, state, (4,), slice(0, 4))
    out, _ = step(runtime, data, now, (4,), slice(3, 7))
    with pytest.raises(AssertionError, match="mutated"):
        equal_bits(out, want[4:], "mutated")


# ------------------------------------------------------------------ the short convolution


def conv_data(rng, t, c=21, w=4):
    return (
        rng.standard_normal((t, c)).astype(np.float32),
        rng.standard_normal((c, w)).astype(np.float32),
        rng.standard_normal((1, w - 1, c)).astype(np.float32),
        rng.standard_normal(c).astype(np.float32),
    )


@pytest.mark.parametrize("width", [2, 4, 9])
def test_any_cut_of_a_convolution_gives_the_bits_of_the_whole(width, isa, rng):
    runtime, t = open_runtime(isa), 12
    x, w, state, bias = conv_data(rng, t, w=width)
    want, want_state = convolve(runtime, x, w, state, (t,), bias)
    for cuts in ([1] * t, [1, 4, 7], [2, 10]):
        outs, now, at = [], state, 0
        for n in cuts:
            out, now = convolve(runtime, x[at : at + n], w, now, (n,), bias)
            outs.append(out)
            at += n
        equal_bits(np.concatenate(outs), want, f"cut {cuts}")
        equal_bits(now, want_state, f"state after the cut {cuts}")
    z = np.concatenate([state[0], x])
    equal_bits(want_state[0], z[-(width - 1) :], "the last rows")


def test_a_convolution_against_its_formula(isa, rng):
    t = 9
    x, w, state, bias = conv_data(rng, t)
    got, _ = convolve(open_runtime(isa), x, w, state, (t,), bias)
    z = np.concatenate([state[0], x])
    want = w[:, 0] * z[:t]
    for j in range(1, w.shape[1]):
        want = want + w[:, j] * z[j : j + t]
    equal_bits(got, want + bias, "products and sums in order, in f32")


def test_convolutions_side_by_side(isa, rng):
    extents, t = (3, 0, 1, 6), 13
    x, w, _, bias = conv_data(rng, t)
    state = rng.standard_normal((4, 3, x.shape[1])).astype(np.float32)
    for threads in (1, 2):
        runtime = open_runtime(isa, threads)
        got, after = convolve(runtime, x, w, state, extents, bias)
        begin = 0
        for b, n in enumerate(extents):
            if n:
                own = x[begin : begin + n]
                out, slot = convolve(runtime, own, w, state[b : b + 1], (n,), bias)
                equal_bits(got[begin : begin + n], out, f"sequence {b}")
            else:
                slot = state[b : b + 1]
            equal_bits(after[b : b + 1], slot, f"slot {b}")
            begin += n
        assert not got[begin:].any() and not np.signbit(got[begin:]).any()


# ------------------------------------------------------------------ in one graph


def test_poison_unpacks_into_a_result_and_a_state(isa):
    b = open_runtime(isa).new_builder("poison")
    x = b.input("x", accel.F32, [4, 8])
    bad = T.reshape(x, [5])
    n = b.input("n", accel.U32, [1])
    s = b.state("s", accel.F32, [1, 3, 8])
    y, after = T.causal_conv1d(bad, x, s, query_extents=n)
    assert not y.valid and not after.valid
    y, after = T.linear_attention(bad, x, x, s, alpha=x, beta=x, query_extents=n)
    assert not y.valid and not after.valid
    assert not T.scatter_rows(s, bad, n).valid
    assert len(b.err().diagnostics) == 1


def test_layers_of_one_state_and_shared_offsets(isa, rng):
    """Two layers that own a part of one port each, read by the same extents."""
    runtime, t = open_runtime(isa), 5
    data = tokens(rng, t)
    state = rng.standard_normal((2, 1, H, DV, DK)).astype(np.float32)
    g = Graph(runtime)
    q, k, v, alpha, beta = (g.port(n, x) for n, x in zip("qkvab", data, strict=True))
    s, n = g.port("s", state, "state"), g.port("n", np.array([t], np.uint32))
    for layer in (0, 1):
        out, after = T.linear_attention(
            q, k, v, T.layer_state(s, layer), alpha=alpha, beta=beta, query_extents=n
        )
        g.output(f"out{layer}", out)
    g.writes(after)
    plan = g.builder.compile()
    assert [x.kernel for x in plan.selections()].count("segment_offsets") == 1
    got = run(runtime.device, g, plan)
    for layer in (0, 1):
        out, slot = step(runtime, data, state[layer], (t,))
        equal_bits(got[f"out{layer}"], out, f"layer {layer}")
        equal_bits(got["s"][layer], slot, f"state of layer {layer}")
