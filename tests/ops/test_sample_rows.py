"""sample_rows (E4): each row by its own policy, against sort-based references, sample, and the
oracle's registered orders."""

import accel
import numpy as np
import pytest
from accel import tensor as T
from conftest import by_device, fma_tables, level_of, open_runtime
from placing import submit_arrays
from runner import Graph, equal_bits, oracle, run

F32, U32 = np.float32, np.uint32
LAST = F32(0.99999994)
PENALTIES = ("repetition", "presence", "frequency")


def runtime_of(isa, threads=1):
    return open_runtime(isa) if threads == 1 else open_runtime(isa, threads)


def graph(isa, logits, draws, factor, threads=1, **fields):
    """A graph of sample_rows from arrays: top_k, top_p, ids with values, history with filled and
    the coefficients. history becomes a state; counts begin as garbage."""
    g = Graph(runtime_of(isa, threads))
    ports = {
        name: g.port(name, array, "state" if name == "history" else "input")
        for name, array in {"factor": factor, **fields}.items()
    }
    bias = T.RowBias(ports.pop("ids"), ports.pop("values")) if "ids" in ports else None
    penalties = None
    if "history" in ports:
        counts = g.port("counts", np.full(logits.shape, 77, U32), "state")
        g.writes(counts)
        given = [ports.pop(name) for name in ("filled", *PENALTIES)]
        penalties = T.RowPenalties(ports.pop("history"), counts, *given)
    policy = T.RowSampling(**ports, bias=bias, penalties=penalties)
    g.output("out", T.sample_rows(g.port("logits", logits), g.port("draws", draws), policy))
    return g


def tokens(isa, *args, threads=1, **fields):
    g = graph(isa, *args, threads=threads, **fields)
    return run(runtime_of(isa, threads).device, g)["out"]


def random_fields(rng, rows, vocab, entries=12, slots=3):
    """One policy a row: every field on in some rows and off in others, greedy rows among them."""
    return {
        "factor": rng.choice([0, 0.5, 1, 1.7, np.inf, np.nan, -1], rows).astype(F32),
        "top_k": rng.choice([0, 1, 2, vocab // 2, vocab, 2**32 - 1], rows).astype(U32),
        "top_p": rng.choice([0, 0.1, 0.6, 0.95, 1, 2, -1, np.nan], rows).astype(F32),
        "ids": rng.choice([*range(vocab), vocab, 2**32 - 1], (rows, slots)).astype(U32),
        "values": rng.standard_normal((rows, slots)).astype(F32),
        "history": rng.integers(0, vocab + 2, (rows, entries)).astype(U32),
        "filled": rng.integers(0, entries + 3, rows).astype(U32),
        "repetition": rng.choice([0, 1, 1.3, 0.7, -2, np.nan, np.inf], rows).astype(F32),
        "presence": rng.choice([0, 0.5, -0.5, np.nan], rows).astype(F32),
        "frequency": rng.choice([0, 0.25, np.inf], rows).astype(F32),
    }


def stages(g):
    return [s.op for s in g.builder.compile().selections()]


# ------------------------------------------------------------------ which nodes there are


def test_stages_whose_field_is_absent_are_absent(isa, rng):
    x, d, f = np.zeros((2, 8), F32), np.zeros(2, F32), np.ones(2, F32)
    always = ["argmax", "row_scale", "softmax", "row_draw"]
    assert stages(graph(isa, x, d, f)) == always
    fields = random_fields(rng, 2, 8)
    del fields["factor"]
    k = graph(isa, x, d, f, top_k=fields["top_k"])
    assert stages(k) == [*always[:3], "row_top_k_mask", "row_draw"]
    p = graph(isa, x, d, f, top_p=fields["top_p"])
    assert stages(p) == [*always[:3], "row_top_p_mask", "row_draw"]
    assert stages(graph(isa, x, d, f, **fields)) == [
        "row_bias",
        "penalty_clear",
        "row_penalty_count",
        "row_penalty_apply",
        *always[:3],
        "row_top_k_mask",
        "row_top_p_mask",
        "row_draw",
    ]


def test_the_counts_advance_by_two_versions(runtime):
    b = runtime.new_builder("counts")
    x, d, f = (b.input(n, accel.F32, s) for n, s in [("x", [2, 8]), ("d", [2]), ("f", [2])])
    n = b.input("n", accel.U32, [2])
    history, counts = b.state("h", accel.U32, [2, 4]), b.state("c", accel.U32, [2, 8])
    policy = T.RowSampling(f, penalties=T.RowPenalties(history, counts, n, f, f, f))
    b.output("out", T.sample_rows(x, d, policy))
    assert T.sample_rows(x, d, policy).valid is False
    assert "is version 0 of state 'c', 2 writes ago, and must be version 2" in str(b.err())


# ------------------------------------------------------------------ against references


def softmax(isa, x):
    g = Graph(open_runtime(isa))
    g.output("out", T.softmax(g.port("x", x)))
    return run(open_runtime(isa).device, g)["out"]


def kept_by_sort(w, top_k, top_p):
    """The masked weights of rows of at most 128 entries, by a stable sort. A sum over so short a
    row is the tree of 128 lanes, each with one entry or none."""
    rows, vocab = w.shape
    k = np.where((top_k == 0) | (top_k >= vocab), vocab, top_k)

    def ranks(values):
        order = np.argsort(-values, axis=1, kind="stable")
        return order, np.argsort(order, axis=1, kind="stable")

    _, rank = ranks(w)
    w = np.where(rank < k[:, None], w, F32(0))
    lanes = np.zeros((rows, 128), F32)
    lanes[:, :vocab] = w
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    order, rank = ranks(w)
    kept = np.cumsum(np.take_along_axis(w, order, 1), axis=1, dtype=F32)
    before = np.concatenate([np.zeros((rows, 1), F32), kept[:, :-1]], axis=1)
    inside = np.take_along_axis(before < (top_p * lanes[:, 0])[:, None], rank, 1)
    on = (top_p > 0) & (top_p < 1)
    return np.where(inside | ~on[:, None], w, F32(0))


def drawn_by_sum(w, draws):
    """The first running sum above draw times the total; rows of at most 256 entries."""
    running = np.cumsum(w, axis=1, dtype=F32)
    above = running > (draws * running[:, -1])[:, None]
    return np.where(above.any(1), above.argmax(1), w.shape[1] - 1)


def test_p26_50_a_hundred_thousand_rows_keep_what_a_sort_keeps(isa, rng):
    """The first and the last kept token by the draws 0 and 0.99999994, a random one between."""
    rows, vocab = by_device(isa, 100_000, 2_000), 29
    x = (rng.standard_normal((rows, vocab)) * rng.choice([0.3, 1, 4], (rows, 1))).astype(F32)
    x[::3] = np.round(x[::3])  # ties
    factor = rng.uniform(0.3, 3, rows).astype(F32)
    top_k = rng.integers(0, vocab + 2, rows).astype(U32)
    top_p = rng.uniform(-0.2, 1.2, rows).astype(F32)
    kept = kept_by_sort(softmax(isa, x * factor[:, None]), top_k, top_p)
    counts = (kept != 0).sum(1)
    assert counts.min() == 1 and counts.max() == vocab and len(np.unique(counts)) == vocab
    g = graph(isa, x, np.zeros(rows, F32), factor, top_k=top_k, top_p=top_p)
    plan, device = g.builder.compile(), open_runtime(isa).device
    for draws in (np.zeros(rows, F32), np.full(rows, LAST), rng.random(rows).astype(F32)):
        got = run(device, g, plan, {"draws": draws})["out"]
        assert (got == drawn_by_sum(kept, draws)).all()


@pytest.mark.parametrize("shape", [(1, 1), (5, 257), (9, 40), (2, 4099), (3, 128)])
def test_every_stage_by_its_registered_order(shape, isa, rng):
    rows, vocab = shape
    x = (rng.standard_normal(shape) * 3).astype(F32)
    fields = random_fields(rng, rows, vocab)
    g = graph(isa, x, rng.random(rows).astype(F32), fields.pop("factor"), **fields)
    got, want = run(open_runtime(isa).device, g), oracle(g, level_of(isa))
    equal_bits(got["out"], want["out"][0], "tokens")
    equal_bits(got["counts"], want["counts"][0], "counts")


@pytest.mark.parametrize("rows", [1, 3])
def test_a_large_vocabulary_beyond_the_bound_of_128(rows, isa, rng):
    vocab = 151_936
    x = (rng.standard_normal((rows, vocab)) * 2).astype(F32)
    fields = {"top_k": np.array([5000, 0, 300][:rows], U32)}
    fields["top_p"] = np.array([0.9, 0.97, 0][:rows], F32)
    g = graph(isa, x, np.full(rows, LAST), np.array([0.8, 1, 0.6][:rows], F32), **fields)
    got = run(open_runtime(isa).device, g)["out"]
    equal_bits(got, oracle(g, level_of(isa))["out"][0], "tokens")
    assert len(set(got.tolist())) == rows


def test_tables_and_threads_give_equal_bits(rng):
    rows, vocab = 6, 5003
    x, d = (rng.standard_normal((rows, vocab)) * 2).astype(F32), rng.random(rows).astype(F32)
    fields = random_fields(rng, rows, vocab)
    factor = fields.pop("factor")
    every = [
        tokens(isa, x, d, factor, threads=threads, **fields).tolist()
        for isa in fma_tables()
        for threads in (1, 2)
    ]
    assert all(t == every[0] for t in every) and len(set(every[0])) > 1


def test_draws_follow_the_weights(isa):
    """Pearson's statistic over one kept set; its bound is the quantile of 1 - 1e-6, by Wilson and
    Hilferty's cube root."""
    n, vocab = 50_000, 60
    x = np.linspace(-2, 2, vocab, dtype=F32)
    draws = np.array([T.Stream(11).draw(i) for i in range(n)], F32)
    got = tokens(
        isa,
        np.tile(x, (n, 1)),
        draws,
        np.full(n, 1.2, F32),
        top_k=np.full(n, 40, U32),
        top_p=np.full(n, 0.9, F32),
    )
    kept = kept_by_sort(
        softmax(isa, (x * F32(1.2))[None]), np.array([40], U32), np.array([0.9], F32)
    )[0].astype(np.float64)
    expected = n * kept / kept.sum()
    counts = np.bincount(got, minlength=vocab)
    inside = expected > 0
    assert counts[~inside].sum() == 0 and expected[inside].min() > 100
    statistic = ((counts - expected)[inside] ** 2 / expected[inside]).sum()
    freedom = inside.sum() - 1
    limit = freedom * (1 - 2 / (9 * freedom) + 4.753 * np.sqrt(2 / (9 * freedom))) ** 3
    assert 0 < statistic < limit
    wrong = np.bincount(drawn_by_sum(np.tile(kept.astype(F32) ** 1.2, (n, 1)), draws), minlength=60)
    assert ((wrong - expected)[inside] ** 2 / expected[inside]).sum() > limit


# ------------------------------------------------------------------ one row's own policy


@pytest.mark.parametrize("factor", [0.0, -0.0, -1.0, np.inf, -np.inf, np.nan])
def test_a_row_without_a_usable_factor_is_greedy(factor, isa, rng):
    x = rng.standard_normal((3, 50)).astype(F32)
    x[1] = -np.sort(-x[1])
    draws, p = np.array([np.nan, 0.9, 5], F32), np.full(3, 0.99, F32)
    got = tokens(isa, x, draws, np.array([factor, 1, factor], F32), top_p=p)
    best = x.argmax(1)
    assert got[0] == best[0] and got[2] == best[2] and got[1] != best[1]


def test_values_that_switch_top_k_and_top_p_off(isa, rng):
    x, n = rng.standard_normal(30).astype(F32), 6
    rows, draws = np.tile(x, (n, 1)), np.full(n, LAST)
    plain = tokens(isa, rows, draws, np.ones(n, F32))
    k = np.array([0, 30, 31, 2**32 - 1, 29, 1], U32)
    got = tokens(isa, rows, draws, np.ones(n, F32), top_k=k)
    assert got[:4].tolist() == plain[:4].tolist() and got[5] == x.argmax()
    p = np.array([0, 1, -0.5, np.nan, np.inf, 1e-7], F32)
    got = tokens(isa, rows, draws, np.ones(n, F32), top_p=p)
    assert got[:5].tolist() == plain[:5].tolist() and got[5] == x.argmax()


def winner_of(isa, value, fields, token=3, rival=6):
    """Whether the logit at `token` comes out as exactly `value`: an equal rival behind it loses,
    the next f32 above wins."""
    seen = []
    for other in (value, np.nextafter(value, F32(np.inf))):
        x = np.full((1, 8), -50, F32)
        x[0, token], x[0, rival] = fields["logit"], other
        rest = {k: v for k, v in fields.items() if k != "logit"}
        seen.append(int(tokens(isa, x, np.zeros(1, F32), np.zeros(1, F32), **rest)[0]))
    return seen == [token, rival]


def test_bias_is_added_in_slot_order(isa, rng):
    for _ in range(20):
        logit = F32(rng.standard_normal())
        values = (rng.standard_normal((1, 4)) * 10).astype(F32)
        ids = np.array([[3, 8, 3, 3]], U32)
        want = ((logit + values[0, 0]) + values[0, 2]) + values[0, 3]
        assert winner_of(isa, want, {"logit": logit, "ids": ids, "values": values})


@pytest.mark.parametrize(
    ("rep", "pres", "freq"),
    [
        (1.3, 0.1, 0.7),
        (0, 0.3, 0.1),
        (0.7, 0, 0),
        (-1, 0, 0.5),
        (np.nan, np.inf, 0.5),
        (np.inf, 1, 1),
    ],
)
def test_penalised_values_have_the_bits_of_the_formula(rep, pres, freq, isa, rng):
    history = np.array([[3, 3, 1, 3, 9, 2**32 - 1]], U32)
    for logit in rng.standard_normal(20).astype(F32):
        v = logit
        if np.isfinite(rep) and rep > 0:
            v = v / F32(rep) if v > 0 else v * F32(rep)
        v = v - F32(pres if np.isfinite(pres) else 0)
        v = v - F32(freq if np.isfinite(freq) else 0) * F32(3)
        one = {n: np.array([c], F32) for n, c in zip(PENALTIES, (rep, pres, freq), strict=True)}
        fields = {"logit": logit, "history": history, "filled": np.array([99], U32), **one}
        assert winner_of(isa, v, fields), (rep, pres, freq, logit)


def test_counts_are_rebuilt_for_every_row_each_step(isa, rng):
    fields = random_fields(rng, 4, 20)
    fields["factor"][:2] = 0
    fields["filled"] = np.array([5, 0, 12, 99], U32)
    g = graph(isa, np.zeros((4, 20), F32), np.zeros(4, F32), fields.pop("factor"), **fields)
    for _ in range(2):
        counts = run(open_runtime(isa).device, g)["counts"]
        for row, (history, n) in enumerate(zip(fields["history"], (5, 0, 12, 12), strict=True)):
            seen = history[:n][history[:n] < 20]
            assert counts[row].tolist() == np.bincount(seen, minlength=20).tolist()


# ------------------------------------------------------------------ equal bits


def test_p26_50_a_row_is_what_sample_gives_with_its_policy(isa, rng):
    vocab = 300
    policies = [
        T.SamplingOptions(temperature=0.7, top_k=40, top_p=0.9, exact=True),
        T.SamplingOptions(temperature=1.3, top_k=200, top_p=0.99, repetition=1.2, exact=True),
        T.SamplingOptions(temperature=1, top_p=0.5, presence=0.3, frequency=0.1, exact=True),
        T.SamplingOptions(temperature=0, repetition=1.5, exact=True),
        T.SamplingOptions(temperature=0.9, exact=True),
        T.SamplingOptions(temperature=2, top_k=50, exact=False),
    ]
    n = len(policies)
    x, d = (rng.standard_normal((n, vocab)) * 2).astype(F32), rng.random(n).astype(F32)
    history = rng.integers(0, vocab, (n, 16)).astype(U32)
    alone = []
    for i, o in enumerate(policies):
        g = Graph(open_runtime(isa))
        T.declare_sampling_scalars(g.builder, o, "s")
        for name, v in o.scalars("s", n=9, history_cap=16).items():
            g.scalars[name] = (str(v.kind), v.f32 if str(v.kind) == "f32" else v.u32)
        states = {}
        if o.penalised():
            states["history"] = g.port("history", history[i], "state")
            states["counts"] = g.port("counts", np.zeros(vocab, U32), "state")
            g.writes(states["counts"])
        draws = None if o.greedy() else g.port("draws", d[i : i + 1])
        g.output("out", T.sample(g.port("x", x[i]), draws, **states, options=o, prefix="s"))
        alone.append(int(run(open_runtime(isa).device, g)["out"][0]))
    with np.errstate(divide="ignore"):
        factor = F32(1) / np.array([o.temperature for o in policies], F32)
    together = tokens(
        isa,
        x,
        d,
        factor,
        top_k=np.array([o.top_k for o in policies], U32),
        top_p=np.array([o.top_p for o in policies], F32),
        history=history,
        filled=np.full(n, 9, U32),
        **{name: np.array([getattr(o, name) for o in policies], F32) for name in PENALTIES},
    )
    assert together.tolist() == alone and len(set(alone)) > 3


def test_p26_21_permuted_grown_and_shrunk_batches_reproduce_solo_runs(isa, rng):
    rows, vocab = 8, 211
    x = (rng.standard_normal((rows, vocab)) * 2).astype(F32)
    fields = random_fields(rng, rows, vocab)
    draws = np.array([T.derive(9, i).draw(4) for i in range(rows)], F32)

    def batch(index):
        return tokens(isa, x[index], draws[index], **{k: v[index] for k, v in fields.items()})

    solo = np.array([batch([i])[0] for i in range(rows)])
    assert len(set(solo.tolist())) > 3
    for index in (list(rng.permutation(rows)), [2, 5], [7, 7, 0, 3, 3, 1, 6, 2, 4, 5, 0]):
        assert batch(index).tolist() == solo[index].tolist()


def test_p26_50_a_flat_history_filled_by_scatter_rows_is_one_filled_by_the_host(isa, rng):
    """Every step scatters the last tokens on the device; the host writes the same ones by hand."""
    rows, vocab, entries, steps = 3, 25, 6, 8
    runtime = open_runtime(isa)
    x = rng.standard_normal((rows, vocab)).astype(F32)
    one = {"repetition": 1.6, "presence": 0.4, "frequency": 0.2}
    one = {n: np.full(rows, v, F32) for n, v in one.items()}
    b = runtime.new_builder("flat")
    history = b.state("history", accel.U32, [rows * entries])
    counts = b.state("counts", accel.U32, [rows, vocab])
    last, ids = (b.input(n, accel.U32, [rows]) for n in ("last", "ids"))
    history = T.scatter_rows(history, last, ids)
    f = {n: b.input(n, accel.F32, [rows]) for n in ("draws", "factor", *PENALTIES)}
    filled = b.input("filled", accel.U32, [rows])
    penalties = T.RowPenalties(history, counts, filled, *(f[n] for n in PENALTIES))
    policy = T.RowSampling(f["factor"], penalties=penalties)
    logits = b.input("logits", accel.F32, [rows, vocab])
    b.output("out", T.sample_rows(logits, f["draws"], policy))
    plan = b.compile()
    states = {"history": np.zeros(rows * entries, U32), "counts": np.zeros(rows * vocab, U32)}
    factor, by_host = np.array([1, 0, 1.5], F32), np.zeros((rows, entries), U32)
    token, at, out = np.zeros(rows, U32), np.full(rows, 2**32 - 1, U32), np.zeros(rows, U32)
    for step in range(steps):
        draws = np.array([T.derive(5, r).draw(step) for r in range(rows)], F32)
        n = np.full(rows, min(step, entries), U32)
        bindings = {"last": token.copy(), "ids": at, "draws": draws, "factor": factor}
        bindings |= {"filled": n, "logits": x, "out": out, **one, **states}
        assert submit_arrays(runtime.device, plan, bindings)
        again = tokens(isa, x, draws, factor, history=by_host, filled=n, **one)
        assert out.tolist() == again.tolist()
        token = out.copy()
        if step < entries:
            by_host[:, step] = token
        at = (np.arange(rows) * entries + (step if step < entries else rows * entries)).astype(U32)
    assert states["history"].reshape(rows, entries).tolist() == by_host.tolist()
    assert len(np.unique(by_host)) > 4
