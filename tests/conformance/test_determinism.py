"""CONTRACT 24: what never changes a bit, factor by factor, and equal bits between operators."""

import dataclasses

import accel
import numpy as np
import pytest
import tiny
from accel import tensor as T
from conftest import fma_tables, level_of, open_runtime
from runner import Graph, equal_bits, equal_bytes, oracle, run
from values import NUMPY

K = 70
ROWS = 17


# ------------------------------------------------------------------ one row, any batch


def _float(order, dtype):
    def op(g, x, rng):
        w = rng.standard_normal((33, K) if order == "nk" else (K, 33)).astype(dtype)
        return T.linear(
            x,
            g.port("w", w, "weight"),
            g.port("b", rng.random(33).astype(np.float32)),
            w_order=order,
        )

    return op


def _int8(order):
    def op(g, x, rng):
        q = rng.integers(-127, 128, (33, K) if order == "nk" else (K, 33)).astype(np.int8)
        s = rng.random(-(-33 * K // 32)).astype(np.float16)
        return T.quant_matmul(
            x, T.Quantized(g.port("q", q, "weight"), g.port("s", s, "weight")), w_order=order
        )

    return op


def _int4_bundle(g, rng, n, group, affine=False):
    codes = rng.integers(0, 2**32, -(-n // 8), dtype=np.uint64).astype(np.uint32)
    scales = rng.random(-(-n // group)).astype(np.float16)
    third = rng.integers(0, 16, len(scales)).astype(np.float16)
    planes = {"biases" if affine else "zeros": g.port("z", third, "weight")}
    return T.Int4(
        g.port("c", codes, "weight"),
        g.port("s", scales, "weight"),
        weights=n,
        group=group,
        **planes,
    )


def _int4(order, affine):
    def op(g, x, rng):
        return T.int4_matmul(x, _int4_bundle(g, rng, 40 * K, 32, affine), w_order=order)

    return op


def _rope(g, x, rng):
    p = g.port("p", np.arange(x.shape[0], dtype=np.uint32) * 0 + 77)
    return T.rope(x, p, rotary_dim=K, base_name=g.scalar("base", 10000.0))


def _sample(g, x, rng):
    draws = g.port("draws", np.full(x.shape[0], 0.4, np.float32))
    return T.sample_categorical(T.top_p_mask(T.top_k_mask(T.softmax(x), 40), 0.9), draws)


ROW_OPERATORS = {
    "silu": lambda g, x, rng: T.silu(x),
    "swiglu": lambda g, x, rng: T.swiglu(x, x),
    "rms_norm": lambda g, x, rng: T.rms_norm(
        x, g.port("gain", rng.random(K).astype(np.float32)), eps=1e-5
    ),
    "softmax": lambda g, x, rng: T.softmax(x),
    "rope": _rope,
    "argmax": lambda g, x, rng: T.argmax(x),
    "top_k_mask": lambda g, x, rng: T.top_k_mask(x, 7),
    "top_p_mask": lambda g, x, rng: T.top_p_mask(T.softmax(x), 0.5),
    "sample": _sample,
    "linear-kn": _float("kn", np.float32),
    "linear-nk": _float("nk", np.float32),
    "linear-kn-f16": _float("kn", np.float16),
    "linear-nk-f16": _float("nk", np.float16),
    "quant_matmul-kn": _int8("kn"),
    "quant_matmul-nk": _int8("nk"),
    "int4_matmul-kn": _int4("kn", False),
    "int4_matmul-nk": _int4("nk", False),
    "int4_matmul-nk-affine": _int4("nk", True),
}


def run_rows(runtime, op, x, seed=5) -> np.ndarray:
    """The operator over rows x; weights come from the seed alone."""
    g = Graph(runtime)
    g.output("out", op(g, g.port("x", x), np.random.default_rng(seed)))
    return run(runtime.device, g)["out"]


@pytest.mark.parametrize("name", ROW_OPERATORS)
def test_p26_29_a_row_alone_equals_the_row_in_any_batch(name, isa, rng):
    runtime, op = open_runtime(isa), ROW_OPERATORS[name]
    x = rng.standard_normal((ROWS, K)).astype(np.float32)
    alone = [run_rows(runtime, op, x[i : i + 1])[0] for i in range(ROWS)]
    assert len({np.asarray(a).tobytes() for a in alone}) > 1
    for m in range(1, ROWS + 1):
        equal_bits(run_rows(runtime, op, x[:m]), np.stack(alone[:m]), f"{name} at M = {m}")
        kept = m // 2
        batch = np.full_like(x[:m], np.nan)
        batch[kept] = x[kept]
        equal_bits(run_rows(runtime, op, batch)[kept], alone[kept], f"{name} beside NaN at M = {m}")


@pytest.mark.parametrize("name", ROW_OPERATORS)
def test_p26_29_the_number_of_threads_changes_nothing(name, isa, rng):
    x = rng.standard_normal((301, K)).astype(np.float32)
    one = run_rows(open_runtime(isa, 1), ROW_OPERATORS[name], x)
    for threads in (2, 3):
        equal_bits(
            run_rows(open_runtime(isa, threads), ROW_OPERATORS[name], x),
            one,
            f"{name}, {threads} threads",
        )


def test_a_row_that_reads_its_neighbour_is_caught(isa, rng):
    """A planted mutation: row i takes a bit of row i - 1, as a kernel with a wrong index would."""
    runtime, op = open_runtime(isa), ROW_OPERATORS["rms_norm"]
    x = rng.standard_normal((4, K)).astype(np.float32)
    alone = np.stack([run_rows(runtime, op, x[i : i + 1])[0] for i in range(4)])
    mixed = x.copy()
    mixed[1, 0] = x[0, 0]
    assert (mixed != x).sum() == 1
    with pytest.raises(AssertionError):
        equal_bits(run_rows(runtime, op, mixed), alone, "mutated")


# ------------------------------------------------------------------ between operators (24.3)


def quantized_planes(rng, n, group, data):
    """Planes of random weights, or planes whose zero points do not fit beside a code in 24 bits."""
    if data == "random":
        planes = accel.quant.int4_quantize(rng.standard_normal(n).astype(np.float32), group=group)
        return planes.codes, planes.scales, planes.zeros
    codes = rng.integers(0, 2**32, n // 8, dtype=np.uint64).astype(np.uint32)
    scales = rng.random(n // group).astype(np.float16)
    scales[::3] = 0
    return codes, scales, (10.0 ** -rng.uniform(2, 7, n // group)).astype(np.float16)


@pytest.mark.parametrize("order", ["kn", "nk"])
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("data", ["random", "tiny-zeros"])
def test_int4_products_equal_matmul_over_the_dequantized_weight(data, order, group, isa, rng):
    runtime, n, k = open_runtime(isa), 20, 128
    x = rng.standard_normal((5, k)).astype(np.float32)
    codes, scales, zeros = quantized_planes(rng, n * k, group, data)
    w = accel.quant.int4_dequantize(codes, scales, zeros, n * k, group=group)

    def bundle(g):
        return T.Int4(
            g.port("c", codes, "weight"),
            g.port("s", scales, "weight"),
            g.port("z", zeros, "weight"),
            weights=n * k,
            group=group,
        )

    def outcome(f):
        g = Graph(runtime)
        g.output("out", f(g))
        return run(runtime.device, g)["out"]

    product = outcome(lambda g: T.int4_matmul(g.port("x", x), bundle(g), w_order=order))
    plain = w.reshape((n, k) if order == "nk" else (k, n))
    over = outcome(lambda g: T.matmul(g.port("x", x), g.port("w", plain, "weight"), w_order=order))
    equal_bits(product, over, "int4_matmul against matmul")
    for row in range(len(x)):
        vector = outcome(
            lambda g, row=row: T.int4_matvec(g.port("x", x[row]), bundle(g), w_order=order)
        )
        equal_bits(vector, product[row], f"int4_matvec against row {row}")


@pytest.mark.parametrize("order", ["kn", "nk"])
def test_quant_matmul_equals_matmul_over_the_dequantized_weight(order, isa, rng):
    runtime, n, k = open_runtime(isa), 19, 96
    x = rng.standard_normal((5, k)).astype(np.float32)
    shape = (n, k) if order == "nk" else (k, n)
    quants, scales = accel.quant.int8_quantize(rng.standard_normal(shape).astype(np.float32))
    g, h = Graph(runtime), Graph(runtime)
    q = T.Quantized(g.port("q", quants, "weight"), g.port("s", scales, "weight"))
    g.output("out", T.quant_matmul(g.port("x", x), q, w_order=order))
    w = np.asarray(accel.quant.int8_dequantize(quants, scales), np.float32).reshape(shape)
    h.output("out", T.matmul(h.port("x", x), h.port("w", w, "weight"), w_order=order))
    equal_bytes(run(runtime.device, g), run(runtime.device, h), "quant_matmul")


@pytest.mark.parametrize("order", ["kn", "nk"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_p26_29_linear_equals_matmul_plus_add(order, dtype, isa, rng):
    runtime = open_runtime(isa)
    x, b = rng.standard_normal((6, 50)).astype(dtype), rng.standard_normal(21).astype(np.float32)
    w = rng.standard_normal((21, 50) if order == "nk" else (50, 21)).astype(dtype)
    g = Graph(runtime)
    tx, tw, tb = g.port("x", x), g.port("w", w), g.port("b", b)
    g.output("fused", T.linear(tx, tw, tb, w_order=order))
    g.output("composed", T.add(T.matmul(tx, tw, w_order=order), tb))
    g.output("none", T.linear(tx, tw, None, w_order=order))
    g.output("matmul", T.matmul(tx, tw, w_order=order))
    got = run(runtime.device, g)
    equal_bits(got["fused"], got["composed"], "linear")
    equal_bits(got["none"], got["matmul"], "linear without bias")


@pytest.mark.parametrize("wide", [np.float16, "bf16"])
def test_p26_16_f16_and_f32_activations_of_equal_value_give_equal_bits(wide, isa, rng):
    runtime = open_runtime(isa)
    x = rng.standard_normal((6, 50)).astype(np.float16)
    w = rng.standard_normal((21, 50)).astype(NUMPY["bf16"] if wide == "bf16" else wide)
    g = Graph(runtime)
    tw = g.port("w", w)
    g.output("half", T.matmul(g.port("x", x), tw, w_order="nk"))
    g.output("single", T.matmul(g.port("y", x.astype(np.float32)), tw, w_order="nk"))
    got = run(runtime.device, g)
    equal_bits(got["half"], got["single"], "mixed pair")


# ------------------------------------------------------------------ attention


def attend(runtime, q, k, v, length, base=None):
    g = Graph(runtime)
    ks, vs = g.port("k", k, "state"), g.port("v", v, "state")
    options = {} if base is None else {"base_name": g.scalar("base", base, "u32")}
    out = T.attention(
        g.port("q", q),
        ks,
        vs,
        lengths=g.port("len", np.array([length], np.uint32)),
        scale_name=g.scalar("scale", 0.3),
        **options,
    )
    g.output("out", out)
    return run(runtime.device, g)["out"]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_p26_18_attention_forms_chunks_and_capacity_give_equal_bits(dtype, isa, rng):
    runtime, s = open_runtime(isa), 140
    q = rng.standard_normal((s, 4, 16)).astype(np.float32)
    k, v = (rng.standard_normal((s, 2, 16)).astype(dtype) for _ in range(2))
    whole = attend(runtime, q, k, v, s, 0)
    for row in (0, 1, 63, 127, 128, 139):
        decoded = attend(runtime, q[row], k, v, row + 1)
        equal_bits(decoded, whole[row], f"decode at {row}")
        equal_bits(
            attend(runtime, q[row : row + 1], k, v, row + 1, row)[0],
            decoded,
            f"prefill of one at {row}",
        )
    for cut in (1, 7, 128):
        pieces = [
            attend(runtime, q[i : i + cut], k, v, min(i + cut, s), i) for i in range(0, s, cut)
        ][-3:]
        equal_bits(np.concatenate(pieces), whole[-sum(map(len, pieces)) :], f"chunks of {cut}")
    room = np.full((300, 2, 16), np.nan, dtype)
    k2, v2 = room.copy(), room.copy()
    k2[:s], v2[:s] = k, v
    equal_bits(attend(runtime, q, k2, v2, s, 0), whole, "capacity beyond the length")
    equal_bits(attend(open_runtime(isa, 2), q, k, v, s, 0), whole, "two threads")


def test_a_changed_future_position_alters_no_earlier_row(isa, rng):
    runtime, s = open_runtime(isa), 20
    q, k, v = (rng.standard_normal((s, 2, 8)).astype(np.float32) for _ in range(3))
    before = attend(runtime, q, k, v, s, 0)
    k[15], v[15] = 9, np.nan
    after = attend(runtime, q, k, v, s, 0)
    equal_bits(after[:15], before[:15], "rows before the change")
    assert np.isnan(after[15:]).all()


# ------------------------------------------------------------------ a whole step


class Sequence:
    """Feeds tokens through the tiny model in given cuts; keeps all logits and the caches."""

    def __init__(self, isa, size, weights, threads=1):
        self.runtime = open_runtime(isa, threads)
        self.size, self.weights = size, weights
        self.caches = None
        self.length = 0
        self.logits = []

    def feed(self, ids, form="prefill", bucket=None, base_shift=0):
        tokens = bucket or len(ids)
        g = tiny.record(self.runtime, self.size, self.weights, tokens, form, self.caches)
        if form == "prefill":
            g.scalars["base"] = ("u32", self.length + base_shift)
        got = run(self.runtime.device, g, ports=tiny.inputs(ids, self.length, tokens))
        self.caches = (got["k"], got["v"])
        self.logits.append(got["logits"][: len(ids)])
        self.length += len(ids)
        return self

    def result(self):
        return {"logits": np.concatenate(self.logits), "k": self.caches[0], "v": self.caches[1]}


@pytest.fixture(params=["f16", "f32"])
def model(request):
    size = tiny.Size(cache=request.param)
    return size, tiny.weights_of(size, np.random.default_rng(11))


IDS = [5, 99, 0, 3, 3, 17, 64, 100, 2, 41, 8, 8]


def same_step(a: Sequence, b: Sequence, what: str) -> None:
    x, y = a.result(), b.result()
    assert np.isfinite(x["logits"]).all() and len(np.unique(x["logits"])) > 100
    equal_bytes(x, y, what)


def test_p26_29_a_prefill_cut_any_way_gives_the_bits_of_the_whole(model, isa):
    whole = Sequence(isa, *model).feed(IDS)
    for cuts in ([1] * 12, [1, 4, 7], [11, 1], [5, 7]):
        parts, at = Sequence(isa, *model), 0
        for n in cuts:
            parts.feed(IDS[at : at + n])
            at += n
        same_step(parts, whole, f"cut {cuts}")


def test_token_by_token_decode_gives_the_bits_of_the_prefill(model, isa):
    whole, steps = Sequence(isa, *model).feed(IDS), Sequence(isa, *model)
    for token in IDS:
        steps.feed([token], "decode")
    same_step(steps, whole, "decode")


def test_p26_29_buckets_and_padding_change_nothing(model, isa):
    whole = Sequence(isa, *model).feed(IDS)
    padded = Sequence(isa, *model).feed(IDS[:5], bucket=8).feed(IDS[5:], bucket=16)
    same_step(padded, whole, "buckets")


def test_threads_change_nothing_in_a_step(model, isa):
    same_step(
        Sequence(isa, *model, threads=2).feed(IDS), Sequence(isa, *model).feed(IDS), "threads"
    )


def test_p26_38_instruction_sets_of_one_level_give_equal_steps(model):
    steps = [Sequence(isa, *model).feed(IDS) for isa in fma_tables()]
    for other in steps[1:]:
        same_step(other, steps[0], "instruction sets")


def test_a_wrong_base_is_caught(model, isa):
    """A planted mutation: the second chunk's rows stand one position too early."""
    whole = Sequence(isa, *model).feed(IDS)
    shifted = Sequence(isa, *model).feed(IDS[:5]).feed(IDS[5:], base_shift=-1)
    with pytest.raises(AssertionError, match="logits"):
        same_step(shifted, whole, "mutated")


def test_p26_29_capacity_beyond_the_length_changes_nothing(model, isa):
    size, weights = model
    small, large = (
        Sequence(isa, dataclasses.replace(size, capacity=c), weights).feed(IDS) for c in (12, 333)
    )
    equal_bits(small.result()["logits"], large.result()["logits"], "capacity")
    equal_bits(small.result()["k"], large.result()["k"][:, :12], "cache")


def test_p26_29_earlier_submissions_change_nothing(model, isa):
    """One plan, other data in between; states are bound afresh each time."""
    size, weights = model
    runtime = open_runtime(isa)
    g = tiny.record(runtime, size, weights, len(IDS))
    plan = g.builder.compile()
    first = run(runtime.device, g, plan, tiny.inputs(IDS, 0, len(IDS)))
    other = run(runtime.device, g, plan, tiny.inputs(IDS[::-1], 0, len(IDS)))
    assert (other["logits"] != first["logits"]).any()
    equal_bytes(
        run(runtime.device, g, plan, tiny.inputs(IDS, 0, len(IDS))), first, "third submission"
    )


def test_p26_38_the_step_walks_its_orders(model, isa):
    """The whole graph by the oracle's slow walk of each node's registered order, bit for bit."""
    size, weights = model
    runtime = open_runtime(isa)
    g = tiny.record(runtime, size, weights, len(IDS))
    ports = tiny.inputs(IDS, 0, len(IDS))
    got = run(runtime.device, g, ports=ports)
    for name, (values, _) in oracle(g, level_of(isa), ports).items():
        equal_bits(got[name], values, f"{name} against its orders")


@pytest.mark.parametrize("order", ["kn", "nk"])
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_p26_43_narrow_weights_meet_the_whole_f32_activation(dtype, order, isa, rng):
    """No operand is rounded below its storage width: the product is that of the widened weight."""
    x = rng.standard_normal((5, K)).astype(np.float32)
    assert (x.view(np.uint32) & 0xFFFF).any(1).all(), "every row has bits that narrow types lack"
    w = rng.standard_normal((33, K) if order == "nk" else (K, 33)).astype(NUMPY[dtype])
    results = []
    for weight in (w, w.astype(np.float32)):
        g = Graph(open_runtime(isa))
        g.output("out", T.matmul(g.port("x", x), g.port("w", weight, "weight"), w_order=order))
        results.append(run(open_runtime(isa).device, g))
    equal_bytes(results[0], results[1], f"{dtype} {order}")
