"""Streams, draws, masks against a sort, penalties, and the composite sample (CONTRACT 17, 18)."""

import numpy as np
import pytest
from accel import tensor as T
from conftest import level_of, open_runtime
from runner import Graph, equal_bits, kernels_of, oracle, run, scalar_values

NUMERATORS = {
    0: [0, 14819496, 7239838, 1368235],
    1: [5673494, 9505325, 12512141, 15145108],
    42: [10967530, 12441394, 2682851, 6687004],
    2**64 - 1: [11849813, 14997873, 15310840, 8568120],
}
DERIVED = {
    (0, 0): 0xE220A8397B1DCDAF,
    (0, 1): 0x6E789E6AA1B965F4,
    (0, 7): 0xC584133AC916AB3C,
    (42, 0): 0xBDD732262FEB6E95,
    (42, 1): 0x28EFE333B266F103,
}
F32 = np.float32


# ------------------------------------------------------------------ streams


@pytest.mark.parametrize("seed", NUMERATORS)
def test_p26_21_stream_vectors(seed):
    draws = [T.Stream(seed).draw(step) for step in (0, 1, 2, 1000)]
    assert [d * 2**24 for d in draws] == NUMERATORS[seed]


@pytest.mark.parametrize("key", DERIVED)
def test_p26_21_derive_vectors(key):
    assert T.derive(*key).seed == DERIVED[key]


def test_draws_stay_below_one_and_differ():
    draws = [T.Stream(3).draw(i) for i in range(5000)]
    assert min(draws) >= 0 and max(draws) <= 0.99999994 and len(set(draws)) > 4900
    assert abs(np.mean(draws) - 0.5) < 5 / np.sqrt(
        12 * 5000
    )  # five standard deviations of the mean


def test_p26_50_sample_categorical_vector(isa):
    weights = np.array([[T.Stream(7).draw(i) for i in range(1000)]] * 3, F32)
    draws = np.array([0.25, T.Stream(42).draw(3596), 0.99999994], F32)
    assert draws[1] == F32(13377292 / 2**24)
    assert categorical(isa, weights, draws).tolist() == [240, 785, 999]


def categorical(isa, weights, draws):
    runtime = open_runtime(isa)
    g = Graph(runtime)
    g.output("out", T.sample_categorical(g.port("w", weights), g.port("d", draws)))
    return run(runtime.device, g)["out"]


def running_sums(weights):
    """Blocks of 256 from +0, their totals carried: the running sum at each entry, and the total."""
    sums, carry = [], F32(0)
    for begin in range(0, len(weights), 256):
        s = F32(0)
        for w in weights[begin : begin + 256]:
            s = F32(s + w)
            sums.append(F32(carry + s))
        carry = F32(carry + s)
    return np.array(sums, F32), carry


@pytest.mark.parametrize("width", [255, 256, 257, 1500])
def test_p26_20_draws_at_the_edges_of_running_sums(width, isa, rng):
    """Where a target meets a running sum, one bit of the sum decides."""
    weights = rng.random(width).astype(F32)
    sums, total = running_sums(weights)
    draws = np.resize((sums / total).astype(F32), 1200)
    draws = np.minimum(np.nextafter(draws, rng.choice([0, 1], 1200).astype(F32)), F32(0.99999994))
    targets = draws * total
    want = [int(np.argmax(sums > t)) if (sums > t).any() else width - 1 for t in targets]
    assert (np.diff(sums) >= 0).all()
    assert categorical(isa, np.tile(weights, (1200, 1)), draws).tolist() == want


def test_p26_50_no_zero_weight_is_drawn_and_other_rows_change_nothing(isa, rng):
    weights = np.where(rng.random((40, 777)) < 0.8, 0, rng.random((40, 777))).astype(F32)
    weights[:, 5] = 0.5
    draws = rng.random(40).astype(F32)
    chosen = categorical(isa, weights, draws)
    assert (weights[np.arange(40), chosen] > 0).all()
    for row in (0, 13, 39):
        assert categorical(isa, weights[row : row + 1], draws[row : row + 1])[0] == chosen[row]
        spoiled = np.full_like(weights, np.nan)
        spoiled[row] = weights[row]
        assert categorical(isa, spoiled, draws)[row] == chosen[row]


def test_frequencies_follow_the_weights(isa):
    weights = np.array([0.1, 0.0, 0.4, 0.2, 0.3], F32)
    draws = ((np.arange(1000) + 0.5) / 1000).astype(F32)
    counts = np.bincount(categorical(isa, np.tile(weights, (1000, 1)), draws), minlength=5)
    # Evenly spaced draws: an interval of length p holds 1000 p of them, give or take one.
    assert np.abs(counts - weights * 1000).max() <= 1


# ------------------------------------------------------------------ masks against a sort


def ranking(row):
    """Value descending, index ascending; -0 equals +0, NaN last."""
    return sorted(
        range(len(row)),
        key=lambda i: (bool(np.isnan(row[i])), -row[i] if row[i] == row[i] else 0, i),
    )


def top_k(row, k):
    out = np.zeros_like(row)
    keep = ranking(row)[:k]
    out[keep] = row[keep]
    return out


def top_p(row, p, most):
    lanes = np.zeros(128, F32)
    with np.errstate(invalid="ignore"):
        for i, v in enumerate(row):
            lanes[i % 128] += v
        half = 64
        while half:
            lanes[:half] += lanes[half : 2 * half]
            half //= 2
    out, kept, target = np.zeros_like(row), F32(0), F32(F32(p) * lanes[0])
    for i in ranking(row)[:most]:
        if not kept < target:
            break
        out[i] = row[i]
        kept = F32(kept + row[i])
    return out


def rows_for_masks(rng):
    ties = rng.integers(0, 5, (3, 500)).astype(F32) / 8
    odd = rng.random((4, 500)).astype(F32)
    odd[0, ::7] = -0.0
    odd[0, 1::7] = 0.0
    odd[1, 100] = np.nan
    odd[2] = 0
    odd[3] **= 12
    return np.concatenate([ties, odd])


@pytest.mark.parametrize("k", [1, 2, 127, 128, 129, 499, 500])
def test_p26_20_top_k_mask_equals_a_sort(k, isa, rng):
    runtime, x = open_runtime(isa), rows_for_masks(rng)
    g = Graph(runtime)
    g.output("out", T.top_k_mask(g.port("x", x), k, exact=k > 128))
    got = run(runtime.device, g)["out"]
    equal_bits(got, np.stack([top_k(row, k) for row in x]), f"k = {k}")


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("p", [1e-7, 0.05, 0.3, 0.9, 0.999, 1.0])
def test_p26_20_top_p_mask_equals_a_sort(p, exact, isa, rng):
    runtime, x = open_runtime(isa), rows_for_masks(rng)
    g = Graph(runtime)
    g.output("out", T.top_p_mask(g.port("x", x), p, exact=exact))
    got = run(runtime.device, g)["out"]
    equal_bits(got, np.stack([top_p(row, p, 500 if exact else 128) for row in x]), f"p = {p}")
    if p == 0.9:
        kept = (got[0] != 0).sum()
        assert kept == 128 if not exact else kept > 128


# ------------------------------------------------------------------ sample


def sampled(isa, options, logits, draws=None, history=None, n=0):
    """The composite's tokens, its graph and its ports afterwards."""
    runtime = open_runtime(isa)
    g = Graph(runtime)
    T.declare_sampling_scalars(g.builder, options, "s")
    capacity = len(history) if history is not None else 0
    for name, value in options.scalars("s", n=n, history_cap=capacity).items():
        g.scalars[name] = (str(value.kind), value.f32 if str(value.kind) == "f32" else value.u32)
    states = {}
    if history is not None:
        states["history"] = g.port("history", history, "state")
        states["counts"] = g.port("counts", np.full(logits.shape[-1], 77, np.uint32), "state")
        g.written.append("counts")
    drawn = None if draws is None else g.port("draws", draws)
    out = T.sample(g.port("logits", logits), drawn, **states, options=options, prefix="s")
    g.output("out", out)
    return g, run(runtime.device, g)


def test_greedy_is_argmax_alone(isa, rng):
    logits = rng.standard_normal((3, 60)).astype(F32)
    g, got = sampled(isa, T.SamplingOptions(), logits)
    assert got["out"].tolist() == logits.argmax(-1).tolist()
    assert [s.op for s in g.builder.compile().selections()] == ["argmax"]


def test_sample_is_its_parts(isa, rng):
    logits = (rng.standard_normal((3, 300)) * 3).astype(F32)
    draws = np.array([0.1, 0.5, 0.95], F32)
    options = T.SamplingOptions(temperature=0.7, top_k=40, top_p=0.9)
    g, got = sampled(isa, options, logits, draws)
    ops = [s.op for s in g.builder.compile().selections()]
    assert ops == ["scale", "softmax", "top_k_mask", "top_p_mask", "sample_categorical"]
    h = Graph(open_runtime(isa))
    w = T.softmax(T.scale(h.port("logits", logits), h.scalar("s.invT", float(F32(1) / F32(0.7)))))
    w = T.top_p_mask(T.top_k_mask(w, 40), 0.9)
    h.output("out", T.sample_categorical(w, h.port("draws", draws)))
    equal_bits(got["out"], run(open_runtime(isa).device, h)["out"], "sample")
    equal_bits(got["out"], oracle(g, level_of(isa))["out"][0], "sample by its orders")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rows", [None, 1, 5])
def test_a_chain_draws_the_same_with_and_without_fusing(rows, threads, isa, rng):
    """The walk of a whole chain against command by command, with logits in shared memory."""
    options = T.SamplingOptions(temperature=0.7, top_k=40, top_p=0.9)
    runtime = open_runtime(isa, threads) if threads > 1 else open_runtime(isa)
    for width in (300, 3000):
        shape = (width,) if rows is None else (rows, width)
        g = Graph(runtime)
        T.declare_sampling_scalars(g.builder, options, "s")
        g.scalars["s.invT"] = ("f32", F32(1) / F32(0.7))
        x = g.port("x", (rng.standard_normal(shape) * 2).astype(F32))
        draws = g.port("draws", rng.random(rows or 1).astype(F32))
        logits = T.add(x, x)
        g.output("out", T.sample(logits, draws, options=options, prefix="s"))
        policy = {
            "factor": np.resize([1.5, 0, 0.7, np.nan, 2], rows or 1).astype(F32),
            "top_k": np.resize([40, 7, 1, 0, 128], rows or 1).astype(np.uint32),
            "top_p": np.resize([0.9, 0.5, 0, 0.1, 1], rows or 1).astype(F32),
        }
        if rows:
            fields = {name: g.port(name, a) for name, a in policy.items()}
            g.output("each", T.sample_rows(logits, draws, T.RowSampling(**fields)))
        fused, alone = g.builder.compile(), g.builder.compile(fuse=False)
        walked = [s.op for s in fused.selections() if "fused: one walk from" in s.reason]
        chain = ["scale", "softmax", "top_k_mask", "top_p_mask", "sample_categorical"]
        by_row = ["row_scale", "softmax", "row_top_k_mask", "row_top_p_mask", "row_draw"]
        by_row = by_row if rows else []
        assert walked == (chain + by_row if runtime.device.info.backend == "cpu" else [])
        # Rows of equal logits leave the choice to the indices; NaN and a flat tail to the commands.
        for change in (1, 0, "nan", "deep"):
            data = g.ports["x"].copy()
            if change == "nan":
                data[..., 5] = np.nan
            elif change == "deep":
                data[..., 1:] -= 200
            else:
                data *= change
            got, want = (run(runtime.device, g, p, {"x": data}) for p in (fused, alone))
            for name in want:
                equal_bits(got[name], want[name], f"{name}, {width}, {change}")


@pytest.mark.parametrize(
    ("rep", "pres", "freq"), [(1.3, 0, 0), (0, 0.5, 0.25), (0.8, -0.5, 1.5), (1, 0, 0.1)]
)
def test_penalties_follow_their_formula(rep, pres, freq, isa, rng):
    logits = rng.standard_normal(50).astype(F32)
    logits[7] = -0.0
    history = np.array([3, 7, 3, 3, 49, 50, 2**32 - 1, 12, 12, 12], np.uint32)
    options = T.SamplingOptions(repetition=rep, presence=pres, frequency=freq)
    g, got = sampled(isa, options, logits, history=history, n=7)
    counts = np.bincount(history[:5].astype(np.int64), minlength=50)
    assert got["counts"].tolist() == counts.tolist()
    want = logits.copy()
    for i in np.flatnonzero(counts):
        v = want[i]
        if rep not in (0, 1):
            v = v / F32(rep) if v > 0 else v * F32(rep)
        want[i] = (v - F32(pres)) - F32(freq) * F32(counts[i])
    assert (want != logits).any()
    assert got["out"].tolist() == [int(want.argmax())]
    again = run(open_runtime(isa).device, g)
    assert (
        again["counts"].tolist() == counts.tolist() and again["out"].tolist() == got["out"].tolist()
    )


@pytest.mark.parametrize(("rep", "pres", "freq"), [(1.3, 0.1, 0.7), (0, 0.3, 0.1), (0.7, 0, 0)])
def test_p26_20_penalised_values_have_the_bits_of_the_formula(rep, pres, freq, isa, rng):
    """The penalised token 3 meets an unpenalised rival of equal value: the lower index wins, and
    loses against the next f32 above. So a value that is off by one bit either way is seen."""
    options = T.SamplingOptions(repetition=rep, presence=pres, frequency=freq)
    history = np.array([3, 3, 3, 1, 1], np.uint32)
    g, _ = sampled(isa, options, np.zeros(8, F32), history=history, n=5)
    plan, device = g.builder.compile(), open_runtime(isa).device
    for logit in rng.standard_normal(60).astype(F32):
        v = logit
        if rep not in (0, 1):
            v = v / F32(rep) if v > 0 else v * F32(rep)
        v = (v - F32(pres)) - F32(freq) * F32(3)
        for rival, winner in [(v, 3), (np.nextafter(v, F32(np.inf)), 6)]:
            logits = np.full(8, -50, F32)
            logits[3], logits[6] = logit, rival
            assert run(device, g, plan, {"logits": logits})["out"].tolist() == [winner], logit


def test_p26_21_a_row_draws_the_same_token_in_any_batch(isa, rng):
    logits = (rng.standard_normal((6, 200)) * 2).astype(F32)
    options = T.SamplingOptions(temperature=0.9, top_k=50, top_p=0.95)
    streams = [T.derive(9, i) for i in range(6)]
    draws = np.array([s.draw(4) for s in streams], F32)
    _, together = sampled(isa, options, logits, draws)
    assert len(set(together["out"].tolist())) > 1
    order = rng.permutation(6)
    _, moved = sampled(isa, options, logits[order], draws[order])
    assert moved["out"].tolist() == together["out"][order].tolist()
    for i in range(6):
        _, alone = sampled(isa, options, logits[i], draws[i : i + 1])
        assert alone["out"].tolist() == [int(together["out"][i])]


def test_p26_23_scalars_are_rewritten_at_each_submission(isa, rng):
    logits = rng.standard_normal((1, 30)).astype(F32)
    runtime = open_runtime(isa)
    g = Graph(runtime)
    g.output("out", T.softmax(T.scale(g.port("x", logits), g.scalar("t", 1.0))))
    plan = g.builder.compile()
    assert any(k.startswith("softmax_f32") for k in kernels_of(plan))
    first = run(runtime.device, g, plan)["out"]
    g.scalars["t"] = ("f32", 3.0)
    assert scalar_values(g)["t"].f32 == 3.0
    assert run(runtime.device, g, plan)["out"].max() > first.max()


@pytest.mark.parametrize("at", ["softmax", "top_k_mask", "top_p_mask", "draw"])
def test_steps_of_other_rows_are_not_walked_at_once(isa, at):
    """A reshape between two of them: the logits' rows are not those of the draw."""
    runtime, rng = open_runtime(isa), np.random.default_rng(7)
    g = Graph(runtime)
    g.scalar("t", 1.0)
    x = g.port("x", (rng.standard_normal((8, 150)) * 2).astype(F32))
    steps = {
        "softmax": T.softmax,
        "top_k_mask": lambda v: T.top_k_mask(v, k=40),
        "top_p_mask": lambda v: T.top_p_mask(v, p=0.9),
        "draw": lambda v: v,
    }
    x = T.scale(x, scalar_name="t")
    for name, step in steps.items():
        x = step(T.reshape(x, [4, 300]) if name == at else x)
    draws = g.port("draws", rng.random(4).astype(F32))
    g.output("out", T.sample_categorical(x, draws))
    fused, alone = g.builder.compile(), g.builder.compile(fuse=False)
    assert not any("one walk" in s.reason for s in fused.selections())
    for seed in range(20):
        data = {"x": np.random.default_rng(seed).standard_normal((8, 150)).astype(F32)}
        got, want = (run(runtime.device, g, p, data) for p in (fused, alone))
        equal_bits(got["out"], want["out"], f"{at}, {seed}")
