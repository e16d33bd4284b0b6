"""attention: all forms, paged or not, however it is cut or placed, give a row equal bits
(CONTRACT 15, 24; 26.18, 26.31, 26.41)."""

import accel
import numpy as np
import pytest
import tiny
from accel import tensor as T
from conftest import level_of, open_runtime
from runner import Graph, equal_bits, kernels_of, oracle, run
from test_determinism import IDS, Sequence

HEADS, KV, DIM = 6, 2, 24
NOWHERE = 2**32 - 1
SINKS = np.array([-2, 0.5, 3, 9, -30, 0], np.float32)
OPTIONS = {
    "plain": {},
    "window": {"window": 70},
    "soft_cap": {"soft_cap": 1.5},
    "sinks": {"sinks": SINKS},
    "all": {"window": 33, "soft_cap": 4.0, "sinks": SINKS},
    "narrow": {"operands": "f16", "window": 100},
}


class Sequences:
    """Keys, values and queries of several sequences, and calls over any part of them."""

    def __init__(self, isa, rng, dtype, lengths, **options):
        self.runtime, self.dtype, self.options = open_runtime(isa), dtype, options
        self.lengths = lengths
        shape = [(n, KV, DIM) for n in lengths]
        self.k = [rng.standard_normal(s).astype(dtype) for s in shape]
        self.v = [rng.standard_normal(s).astype(dtype) for s in shape]
        self.q = [rng.standard_normal((n, HEADS, DIM)).astype(np.float32) for n in lengths]

    def call(self, q, k, v, lengths, scalars=(), **arrays) -> np.ndarray:
        g = Graph(self.runtime)
        named = {
            name: g.port(name, a) if isinstance(a, np.ndarray) else a
            for name, a in {**self.options, **arrays}.items()
        }
        out = T.attention(
            g.port("q", q),
            g.port("k", k, "state"),
            g.port("v", v, "state"),
            lengths=g.port("len", np.array(lengths, np.uint32)),
            scale_name=g.scalar("scale", 0.3),
            **{f"{n}_name": g.scalar(n, value, "u32") for n, value in scalars},
            **named,
        )
        g.output("out", out)
        plan = g.builder.compile()
        self.kernels = kernels_of(plan)
        return run(self.runtime.device, g, plan)["out"]

    # ---- contiguous caches of one sequence

    def caches(self, b, length, capacity):
        caches = []
        for x in (self.k[b], self.v[b]):
            room = np.full((capacity, KV, DIM), np.nan, self.dtype)
            room[:length] = x[:length]
            caches.append(room)
        return caches

    def decode(self, b, length, capacity=None):
        k, v = self.caches(b, length, capacity or length)
        return self.call(self.q[b][length - 1], k, v, [length])

    def prefill(self, b, begin, end, capacity=None):
        k, v = self.caches(b, end, capacity or end)
        return self.call(self.q[b][begin:end], k, v, [end], [("base", begin)])

    # ---- pages

    def pool(self, parts, block, rng, spare=3):
        """Caches that hold the first `length` positions of each (sequence, length), page by page
        in no order; all other rows are NaN."""
        counts = [-(-length // block) for _, length in parts]
        total, width = sum(counts) + spare, max([*counts, 1]) + 1
        order = rng.permutation(total)
        table, taken = np.full((len(parts), width), NOWHERE, np.uint32), 0
        k, v = (np.full((total * block, KV, DIM), np.nan, self.dtype) for _ in range(2))
        for i, ((b, length), count) in enumerate(zip(parts, counts, strict=True)):
            for j in range(count):
                table[i, j] = page = order[taken]
                taken += 1
                n = min(block, length - j * block)
                k[page * block :][:n] = self.k[b][j * block :][:n]
                v[page * block :][:n] = self.v[b][j * block :][:n]
        return {"k": k, "v": v, "pages": table, "block": block}

    def batched(self, parts, block, rng):
        """parts: (sequence, length); an entry of length 0 gets any query."""
        q = np.stack([self.q[b][max(length, 1) - 1] for b, length in parts])
        return self.call(q.reshape(-1, 1, HEADS, DIM), lengths=[n for _, n in parts],
                         **self.pool(parts, block, rng))  # fmt: skip

    def ragged(self, parts, block, rng, pad=0):
        """parts: (sequence, length, tokens)."""
        q = [self.q[b][length - n : length] for b, length, n in parts]
        q.append(np.full((pad, HEADS, DIM), np.nan, np.float32))
        return self.call(
            np.concatenate(q),
            lengths=[length for _, length, _ in parts],
            query_extents=np.array([n for _, _, n in parts], np.uint32),
            **self.pool([p[:2] for p in parts], block, rng),
        )


VARIANTS = [
    (name, dtype)
    for name, options in OPTIONS.items()
    for dtype in (np.float32, np.float16)
    if dtype == np.float16 or "operands" not in options
]


@pytest.fixture(params=VARIANTS, ids=lambda v: f"{v[0]}-{v[1].__name__}")
def make(request, isa, rng):
    def build(lengths=(290, 140, 17)):
        name, dtype = request.param
        return Sequences(isa, rng, dtype, lengths, **OPTIONS[name])

    return build


DTYPES = pytest.mark.parametrize("dtype", [np.float32, np.float16])
BLOCKS = pytest.mark.parametrize("block", [1, 16, 128, 200])


def told_apart(rows: np.ndarray) -> None:
    assert np.isfinite(rows).all()
    assert len(np.unique(rows.reshape(len(rows), -1), axis=0)) == len(rows)


def plain_name(kernel: str) -> str:
    """Of a kernel that CUDA has for the rows of another one, which reads ahead."""
    return kernel.removesuffix("_staged")


@BLOCKS
def test_p26_18_paged_equals_contiguous(make, block, rng):
    s = make()
    whole = s.prefill(0, 0, 290)
    told_apart(whole)
    pool = s.pool([(0, 290)], block, rng)
    flat = {**pool, "pages": pool["pages"][0]}
    for form in (pool, flat):
        paged = s.call(s.q[0], lengths=[290], scalars=[("base", 0)], **form)
        equal_bits(paged, whole, f"prefill in pages of {block}")
        decoded = s.call(s.q[0][289], lengths=[290], **form)
        equal_bits(decoded, whole[289], f"decode in pages of {block}")


@BLOCKS
def test_p26_18_batched_equals_each_alone(make, block, rng):
    s = make()
    parts = [(1, 130), (0, 290), (2, 0), (0, 128), (2, 17), (1, 1)]
    out = s.batched(parts, block, rng)
    for i, (b, length) in enumerate(parts):
        if not length:
            assert not out[i].any()
            continue
        equal_bits(out[i], s.decode(b, length), f"sequence {b} of {length}")
        one = s.batched([(b, length)], block, rng)
        equal_bits(one[0], out[i], f"a batch of one: {b} of {length}")


@BLOCKS
def test_p26_18_ragged_equals_prefill_and_batched(make, block, rng):
    s = make()
    parts = [(0, 290, 40), (2, 17, 0), (1, 140, 1), (2, 16, 16), (1, 129, 129)]
    out = s.ragged(parts, block, rng, pad=5)
    at = 0
    for b, length, n in parts:
        if n:
            whole = s.prefill(b, length - n, length)
            equal_bits(out[at : at + n], whole, f"tokens of {b} up to {length}")
            one = s.ragged([(b, length, n)], block, rng)
            equal_bits(one, whole, f"one ragged sequence {b} up to {length}")
        at += n
    assert not out[at:].any() and len(out) == at + 5
    ones = [(0, 290), (1, 140), (2, 1)]
    equal_bits(s.ragged([(*p, 1) for p in ones], block, rng), s.batched(ones, block, rng), "ones")


def test_p26_18_chunks_and_single_tokens_equal_the_whole(make, rng):
    s = make()
    whole = s.prefill(0, 0, 290)
    for at in (0, 1, 69, 70, 127, 128, 255, 289):
        row = s.decode(0, at + 1)
        equal_bits(row, whole[at], f"decode at {at}")
        equal_bits(s.prefill(0, at, at + 1)[0], row, f"prefill of one row at {at}")
    for cut in (1, 37, 128):
        for begin in range(0, 290, cut)[-4:]:
            end = min(begin + cut, 290)
            equal_bits(s.prefill(0, begin, end), whole[begin:end], f"chunks of {cut}")
            chunk = s.ragged([(1, 140, 3), (0, end, end - begin)], 16, rng)
            equal_bits(chunk[3:], whole[begin:end], f"ragged chunks of {cut}")
    equal_bits(s.prefill(0, 250, 290, capacity=700), whole[250:], "capacity")


def test_threads_change_nothing(make, isa, rng):
    s = make()
    parts = [(0, 290, 40), (1, 140, 1), (2, 17, 2)]
    one, each = s.ragged(parts, 16, rng), s.batched([(0, 290), (1, 140)], 16, rng)
    s.runtime = open_runtime(isa, 2)
    equal_bits(s.ragged(parts, 16, rng), one, "two threads")
    equal_bits(s.batched([(0, 290), (1, 140)], 16, rng), each, "two threads, batched")


def test_no_row_depends_on_another(make, rng):
    """Positions after a row, another sequence and another row may be anything."""
    s = make()
    parts = [(0, 200, 30), (1, 140, 4)]
    before = s.ragged(parts, 16, rng)
    s.k[0][185], s.v[0][185], s.q[0][190] = 5, np.nan, np.nan
    s.k[1][:], s.v[1][:] = np.nan, np.nan
    after = s.ragged(parts, 16, rng)
    equal_bits(after[:15], before[:15], "rows before the change")
    assert np.isnan(after[15:]).all()


def test_p26_18_bad_pages_hold_nothing(make, rng):
    """Equal to a call in which the positions of the bad pages were never there: one page a block
    of 128 positions, so what is left keeps its place in its block."""
    s = make((384,))
    if "window" in s.options:
        s.options = {**s.options, "window": 1000}
    pool = s.pool([(0, 384)], 128, rng)
    left = s.pool([(0, 384)], 128, rng)
    wanted = s.call(s.q[0][383], lengths=[384], **left)
    pool["pages"][0, 1] = len(pool["k"]) // 128
    got = s.call(s.q[0][383], lengths=[384], **pool)
    assert (got != wanted).any()
    for x in (s.k, s.v):
        x[0] = np.delete(x[0], range(128, 256), 0)
    q, s.q = s.q, [s.q[0][[*range(255), 383]]]
    equal_bits(got, s.decode(0, 256), "without the page")
    pool["pages"][:] = [len(pool["k"]) // 128, NOWHERE, 2**25, 7 * 2**25]
    assert not s.call(q[0][383], lengths=[384], **pool).any()


def test_a_wrong_page_is_seen(isa, rng):
    """A planted mutation: two pages change places."""
    s = Sequences(isa, rng, np.float16, (100,))
    pool = s.pool([(0, 100)], 16, rng)
    first = s.call(s.q[0][99], lengths=[100], **pool)
    pool["pages"][0, [1, 2]] = pool["pages"][0, [2, 1]]
    with pytest.raises(AssertionError, match="differ"):
        equal_bits(s.call(s.q[0][99], lengths=[100], **pool), first, "mutated")


# ------------------------------------------------------------------ a whole step

PROMPTS = [IDS, IDS[::-1], [7, 7, 3]]
POOL = 44  # rows of the cache that all sequences share


class Batch:
    """Several sequences through the tiny model, their caches in pages that operators write."""

    def __init__(self, isa, size, weights, block, rng):
        self.runtime = open_runtime(isa)
        self.size, self.weights, self.block = size, weights, block
        pages = -(-max(map(len, PROMPTS)) // block)
        order = rng.permutation(POOL // block)[: pages * len(PROMPTS)]
        self.table = order.reshape(len(PROMPTS), pages).astype(np.uint32)
        self.lengths, self.caches = [0] * len(PROMPTS), None
        self.logits = [[] for _ in PROMPTS]

    def feed(self, counts, form="ragged", pad=0):
        """The next counts[b] tokens of sequence b; batched wants one of each."""
        ports = {name: [] for name in ("ids", "slots", "positions")}
        for b, n in enumerate(counts):
            at = np.arange(self.lengths[b], self.lengths[b] + n)
            ports["ids"] += PROMPTS[b][self.lengths[b] :][:n]
            ports["slots"] += [*(self.table[b, at // self.block] * self.block + at % self.block)]
            ports["positions"] += [*at]
            self.lengths[b] += n
        for name, fill in (("ids", NOWHERE), ("slots", NOWHERE), ("positions", 0)):
            ports[name] += [fill] * pad
        ports |= {"lengths": self.lengths, "pages": self.table}
        if form == "ragged":
            ports["extents"] = counts
        ports = {name: np.array(x, np.uint32) for name, x in ports.items()}
        g = tiny.record(self.runtime, self.size, self.weights, len(ports["ids"]), form,
                        self.caches, self.table.shape, self.block)  # fmt: skip
        got = run(self.runtime.device, g, ports=ports)
        for name, (values, _) in oracle(g, level_of(self.runtime.device.info.isa), ports).items():
            equal_bits(got[name], values, f"{name} against its orders")
        self.caches = (got["k"], got["v"])
        ends = np.cumsum(counts)
        for b, n in enumerate(counts):
            self.logits[b].append(got["logits"][ends[b] - n : ends[b]])
        return self


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("block", [1, 4, 7])
def test_a_batched_step_over_pages_gives_each_sequence_its_own_bits(isa, dtype, block, rng):
    size = tiny.Size(cache=dtype, capacity=POOL)
    weights = tiny.weights_of(size, np.random.default_rng(11))
    batch = Batch(isa, size, weights, block, rng)
    batch.feed([5, 1, 0], pad=2).feed([1, 1, 1], "batched").feed([1, 8, 1]).feed([5, 2, 1])
    for b, prompt in enumerate(PROMPTS):
        alone = Sequence(isa, size, weights).feed(prompt)
        logits = np.concatenate(batch.logits[b])
        assert np.isfinite(logits).all() and len(np.unique(logits)) > 100
        equal_bits(logits, alone.logits[0], f"sequence {b}")
        rows = batch.table[b].repeat(block) * block + np.tile(np.arange(block), len(batch.table[b]))
        rows = rows[: len(prompt)]
        for paged, own in zip(batch.caches, alone.caches, strict=True):
            equal_bits(paged[:, rows], own[:, : len(prompt)], f"caches of sequence {b}")


# ------------------------------------------------------------------ options


@DTYPES
def test_p26_31_options_that_change_nothing(isa, dtype, rng):
    """A window of all positions, and sinks of no weight, leave the bits; none is the default."""
    s = Sequences(isa, rng, dtype, (200,))
    plain, kernels = s.prefill(0, 0, 200), None
    for options in (
        {"window": None, "soft_cap": None, "sinks": None, "operands": None, "query_extents": None},
        {"window": 200},
        {"window": 2**40},
        {"sinks": np.full(HEADS, -np.inf, np.float32)},
    ):
        kernels = kernels or s.kernels
        s.options = options
        equal_bits(s.prefill(0, 0, 200), plain, str(options))
        assert s.kernels == kernels
    for options in ({"window": 199}, {"soft_cap": 100.0}, {"sinks": SINKS}):
        s.options = options
        assert (s.prefill(0, 0, 200) != plain).any()


@DTYPES
def test_a_window_of_one_copies_its_own_value(isa, dtype, rng):
    s = Sequences(isa, rng, dtype, (150,), window=1)
    own = np.repeat(s.v[0].astype(np.float32), HEADS // KV, axis=1)
    equal_bits(s.prefill(0, 0, 150), own, "one position")


@DTYPES
def test_a_row_without_positions_stays_zero_with_sinks(isa, dtype, rng):
    s = Sequences(isa, rng, dtype, (40, 8), sinks=SINKS, window=3)
    assert not s.batched([(0, 0), (1, 0)], 16, rng).any()
    k, v = s.caches(0, 40, 64)
    out = s.call(s.q[0][:8], k, v, [40], [("base", 38)])
    assert out[:4].any(axis=(1, 2)).all() and not out[4:].any()


def test_p26_41_narrow_operands_are_rounded_first(isa, rng):
    s = Sequences(isa, rng, np.float16, (200,))
    plain = s.prefill(0, 0, 200)
    s.options = {"operands": "f16"}
    narrow = s.prefill(0, 0, 200)
    assert [plain_name(name) for name in s.kernels] == ["attention_f16_narrow"]
    assert (narrow != plain).any()
    s.q[0] = s.q[0].astype(np.float16).astype(np.float32)
    equal_bits(s.prefill(0, 0, 200), narrow, "q rounded before")
    one = s.prefill(0, 0, 1)
    s.options = {}
    equal_bits(s.prefill(0, 0, 1), one, "a weight of 1 is not moved")
    assert [plain_name(name) for name in s.kernels] == ["attention_f16"]


def test_narrow_operands_overflow_as_cast_does(isa, rng):
    s = Sequences(isa, rng, np.float16, (5,), operands="f16")
    s.q[0][3, 1, 0], s.q[0][4, 1, 0] = 65519, 65520
    out = s.prefill(0, 0, 5)
    assert np.isfinite(out[3]).all()
    assert np.isnan(out[4, 1]).all() and np.isfinite(out[4, [0, 2, 3]]).all()


# ------------------------------------------------------------------ reports


def test_the_reason_names_form_positions_and_blocks(runtime):
    b = runtime.new_builder("reasons")
    k, v = b.state("k", accel.F16, [300, 2, 8]), b.state("v", accel.F16, [300, 2, 8])
    scale = b.scalar("scale", T.ScalarKind.F32)
    lengths, pages = b.input("len", accel.U32, [3]), b.input("pages", accel.U32, [3, 9])
    one = b.input("one", accel.U32, [1])
    q = b.input("q", accel.F32, [3, 1, 4, 8])
    options = {"lengths": lengths, "pages": pages, "block": 16, "scale_name": scale}
    b.output("a", T.attention(q, k, v, **options))
    flat, extents = T.reshape(q, [3, 4, 8]), b.input("n", accel.U32, [3])
    b.output("b", T.attention(flat, k, v, query_extents=extents, operands="f16", **options))
    base = b.scalar("base", T.ScalarKind.U32)
    b.output("c", T.attention(flat, k, v, lengths=one, scale_name=scale, base_name=base))
    reasons = {plain_name(s.kernel): s.reason for s in b.compile().selections()}
    first = next(s for s in b.compile().selections() if s.op == "attention")
    assert "batched, pages of 16, 144 positions in 2 blocks" in first.reason
    assert "ragged, pages of 16, 144 positions in 2 blocks" in reasons["attention_f16_narrow"]
    assert "rounded to f16" in reasons["attention_f16_narrow"]
    assert "prefill, 300 positions in 3 blocks" in reasons["attention_f16"]
    assert "segment_offsets" in reasons
