"""Tokens to experts and back: grouped products beside matmul, routing beside a stable sort, and
the whole layer beside its composed form (CONTRACT 14, 24.3, E7, E12; 26.17, 26.46)."""

import accel
import numpy as np
import pytest
from accel import tensor as T
from conftest import level_of, open_runtime, without_matrix
from runner import Graph, equal_bits, equal_bytes, kernels_of, oracle, run
from values import NUMPY

OPERATORS = ("grouped_matvec", "grouped_matmul")


# ------------------------------------------------------------------ weights of every kind


def weight_of(kind: str, shape, rng):
    """(ports of the weight, the weight dequantized to float)."""
    n = int(np.prod(shape))
    values = rng.standard_normal(shape).astype(np.float32)
    if kind in ("f32", "f16", "bf16"):
        array = values.astype(NUMPY[kind])
        return {"w": array}, array
    if kind == "int8":
        quants, scales = accel.quant.int8_quantize(values)
        whole = accel.quant.int8_dequantize(quants, scales)
        return {"quants": quants, "scales": scales}, np.reshape(whole, shape)
    planes = accel.quant.int4_quantize(values.reshape(-1), group=int(kind[4:]))
    ports = {"codes": planes.codes, "scales": planes.scales, "zeros": planes.zeros}
    whole = accel.quant.int4_dequantize(**ports, weights=n, group=int(kind[4:]))
    return ports, np.reshape(whole, shape)


def bound_weight(g: Graph, kind: str, ports: dict, weights: int):
    handles = {name: g.port(name, array, "weight") for name, array in ports.items()}
    if "w" in handles:
        return handles["w"]
    if kind == "int8":
        return T.Quantized(**handles)
    return T.Int4(**handles, weights=weights, group=int(kind[4:]))


def grouped(runtime, op, kind, ports, weights, x, counts, order, bias=None, **options):
    g = Graph(runtime)
    if bias is not None:
        options["bias"] = g.port("bias", bias)
    w = bound_weight(g, kind, ports, weights)
    counts = g.port("counts", np.array(counts, np.uint32))
    g.output("out", getattr(T, op)(g.port("x", x), w, counts, w_order=order, **options))
    return run(runtime.device, g)["out"]


def by_expert(runtime, whole, x, counts, order, bias=None):
    """matmul, or linear, over each expert's rows; padding rows are zero."""
    out = np.zeros((len(x), whole.shape[1 if order == "nk" else 2]), np.float32)
    begin = 0
    for e, n in enumerate(counts):
        end = min(begin + n, len(x))
        if end > begin:
            g = Graph(runtime)
            b = None if bias is None else g.port("b", bias[e])
            w = g.port("w", whole[e], "weight")
            g.output("out", T.linear(g.port("x", x[begin:end]), w, b, w_order=order))
            out[begin:end] = run(runtime.device, g)["out"]
        begin = end
    return out


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("order", ["kn", "nk"])
@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "int8", "int432", "int464", "int4128"])
@pytest.mark.parametrize("k", [128, 37])  # whole groups a row, and groups across rows and experts
def test_p26_17_grouped_is_matmul_over_each_expert_s_rows(op, order, kind, k, isa, rng):
    runtime, n, counts = open_runtime(isa), 21, (3, 0, 1, 14, 2)
    shape = (5, n, k) if order == "nk" else (5, k, n)
    x = rng.standard_normal((23, k)).astype(np.float32)
    bias = rng.standard_normal((5, n)).astype(np.float32)
    ports, whole = weight_of(kind, shape, rng)
    alike = open_runtime(without_matrix(isa))  # grouped products take no matrix units
    for b in (None, bias):
        want = by_expert(alike, whole, x, counts, order, b)
        got = grouped(runtime, op, kind, ports, whole.size, x, counts, order, b)
        equal_bits(got, want, f"{op} of {kind} in {order}")
        assert not got[20:].any() and not np.signbit(got[20:]).any()


def part_of(ports: dict, expert: int, experts: int):
    """An expert's part of a weight whose blocks or groups do not straddle experts."""
    parts = {name: np.split(a.reshape(-1), experts)[expert] for name, a in ports.items()}
    if "quants" in ports:
        parts["quants"] = ports["quants"][expert]
    return parts


def alone(runtime, kind, ports, weights, x, **options):
    """One expert's rows through the product that is not grouped."""
    g = Graph(runtime)
    op = T.quant_matmul if kind == "int8" else T.int4_matmul
    g.output("out", op(g.port("x", x), bound_weight(g, kind, ports, weights), **options))
    return run(runtime.device, g)["out"]


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("to", ["int8", "f16", "bf16"])
@pytest.mark.parametrize("kind", ["int8", "int432", "int464", "int4128"])
def test_p26_40_grouped_rows_are_rounded_as_those_of_the_product(op, to, kind, isa, rng):
    runtime, n, k, counts = open_runtime(isa), 21, 384, (3, 0, 1, 14, 2)
    x = (rng.standard_normal((23, k)) * rng.choice([1e-7, 1, 300], (23, k))).astype(np.float32)
    bias = rng.standard_normal((5, n)).astype(np.float32)
    for order in ("nk",) if to == "int8" else ("nk", "kn"):
        options = {"w_order": order, "activations": to}
        shape = (5, n, k) if order == "nk" else (5, k, n)
        ports, whole = weight_of(kind, shape, rng)
        ports = {p: np.reshape(a, shape) if p == "quants" else a for p, a in ports.items()}
        want = np.zeros((23, n), np.float32)
        ends = np.cumsum(counts)
        for e, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            part = part_of(ports, e, 5)
            if end > begin:
                want[begin:end] = alone(runtime, kind, part, n * k, x[begin:end], **options)
        given = (op, kind, ports, whole.size, x, counts, order)
        equal_bits(grouped(runtime, *given, activations=to), want, f"{op} {order}")
        for e, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
            want[begin:end] += bias[e]
        for threads in (1, 3, 8):
            other = open_runtime(isa, threads)
            equal_bits(grouped(other, *given, bias, activations=to), want, f"{threads} threads")
        unrounded = grouped(runtime, *given, bias)
        assert (unrounded != want).any()


@pytest.mark.parametrize("to", ["int8", "f16", "bf16"])
def test_p26_41_a_grouped_product_names_what_it_rounds_to(to, isa):
    b = open_runtime(isa).new_builder("named")
    x, counts = b.input("x", accel.F32, [6, 64]), b.input("counts", accel.U32, [3])
    y = T.grouped_matmul(
        x, b.int4("a", [3, 64, 64], group=32), counts, w_order="nk", activations=to
    )
    w = b.quantized("c", [3, 64, 64])
    b.output("y", T.grouped_matvec(y, w, counts, w_order="nk", activations=to))
    _, first, second = b.compile().selections()
    for s in (first, second):
        assert f"activations rounded to {to}" in s.reason
        assert ("int8_group" in s.reason) is (to == "int8")
    assert ("_by_int8" in first.kernel) is (to == "int8")


@pytest.mark.parametrize("order", ["kn", "nk"])
@pytest.mark.parametrize(
    "counts",
    [(0, 0, 0), (30, 0, 0), (0, 0, 30), (10, 10, 10), (1, 2**32 - 1, 5), (2**32 - 1, 2**32 - 1, 1)],
)
def test_p26_17_counts_of_every_kind(counts, order, isa, rng):
    """Zero counts, one expert, counts beyond the rows: both operators as matmul."""
    runtime, k, n = open_runtime(isa), 33, 40
    shape = (3, n, k) if order == "nk" else (3, k, n)
    x = rng.standard_normal((30, k)).astype(np.float32)
    ports, whole = weight_of("f32", shape, rng)
    want = by_expert(runtime, whole, x, counts, order)
    for op in OPERATORS:
        got = grouped(runtime, op, "f32", ports, whole.size, x, counts, order)
        equal_bits(got, want, f"{op} with counts {counts}")
        for threads in (2, 3, 8):
            other = open_runtime(isa, threads)
            again = grouped(other, op, "f32", ports, whole.size, x, counts, order)
            equal_bits(again, want, f"{op}, {threads} threads")


@pytest.mark.parametrize("op", OPERATORS)
@pytest.mark.parametrize("order", ["kn", "nk"])
def test_p26_17_a_row_depends_on_nothing_but_itself_and_its_expert(op, order, isa, rng):
    """Other rows, padding and the weights of other experts may be NaN."""
    runtime, k, n = open_runtime(isa), 48, 35
    shape = (3, n, k) if order == "nk" else (3, k, n)
    x = rng.standard_normal((12, k)).astype(np.float32)
    _, whole = weight_of("f32", shape, rng)
    want = grouped(runtime, op, "f32", {"w": whole}, whole.size, x, (4, 5, 2), order)
    alone, w = np.full_like(x, np.nan), np.full_like(whole, np.nan)
    alone[6], w[1] = x[6], whole[1]
    got = grouped(runtime, op, "f32", {"w": w}, whole.size, alone, (4, 5, 2), order)
    equal_bits(got[6], want[6], "the row beside NaN")
    assert not got[11].any()  # padding, although its row of x is NaN


def test_a_row_of_the_wrong_expert_is_caught(isa, rng):
    """A planted mutation: one count too many for the first expert."""
    runtime = open_runtime(isa)
    x = rng.standard_normal((9, 16)).astype(np.float32)
    ports, whole = weight_of("f32", (3, 16, 8), rng)
    want = by_expert(runtime, whole, x, (3, 2, 4), "kn")
    moved = grouped(runtime, "grouped_matmul", "f32", ports, whole.size, x, (4, 1, 4), "kn")
    with pytest.raises(AssertionError, match="first at \\(3,"):
        equal_bits(moved, want, "mutated")


def test_p26_46_declared_bundles_of_rank_3_serve_grouped_products(isa, rng):
    """b.int4 and b.quantized declare the ports that the operators want."""
    runtime = open_runtime(isa)
    b = runtime.new_builder("bundles")
    x, counts = b.input("x", accel.F32, [6, 64]), b.input("counts", accel.U32, [3])
    y = T.grouped_matmul(x, b.int4("a", [3, 32, 64], group=32), counts, w_order="nk")
    b.output("y", T.grouped_matvec(y, b.quantized("c", [3, 32, 5]), counts))
    plan = b.compile()
    assert kernels_of(plan) == [
        "segment_offsets",
        "grouped_matmul_nk_int4_f16",
        "grouped_matvec_kn_int8",
    ]


def test_one_node_counts_for_all_products_of_a_layer(isa):
    runtime = open_runtime(isa)
    b = runtime.new_builder("shared")
    x, counts = b.input("x", accel.F32, [6, 8]), b.input("counts", accel.U32, [3])
    w = b.weight("w", accel.F32, [3, 8, 8])
    b.output("y", T.grouped_matmul(T.grouped_matmul(x, w, counts), w, counts))
    assert kernels_of(b.compile()).count("segment_offsets") == 1


# ------------------------------------------------------------------ poison and absent planes


def test_poison_passes_through_and_unpacks(isa):
    b = open_runtime(isa).new_builder("poison")
    x = b.input("x", accel.F32, [6, 8])
    bad = T.reshape(x, [5])
    counts = b.input("counts", accel.U32, [3])
    for y in (
        T.grouped_matmul(bad, b.quantized("q", [3, 8, 2]), counts),
        T.grouped_matmul(x, bad, counts),
        T.grouped_matvec(x, T.Int4(bad, bad, biases=bad, weights=48), counts),
        T.grouped_matvec(x, T.Quantized(bad, bad), counts),
        *T.route(bad, experts=3),
        T.combine(bad, counts, x),
    ):
        assert not y.valid
    rows, chosen, inverse = T.route(bad, experts=3)
    assert not (rows.valid or chosen.valid or inverse.valid)
    assert len(b.err().diagnostics) == 1
    # A missing plane is reported although another one is poison.
    T.grouped_matmul(x, T.Quantized(bad, None), counts)
    assert len(b.err().diagnostics) == 2


# ------------------------------------------------------------------ routing


def routed(runtime, ids, experts):
    g = Graph(runtime)
    for name, value in zip(
        ("rows", "counts", "inverse"), T.route(g.port("ids", ids), experts=experts), strict=True
    ):
        g.output(name, value)
    return run(runtime.device, g)


@pytest.mark.parametrize(
    ("t", "k", "experts", "above"), [(1, 1, 1, 0), (50, 4, 7, 3), (9, 8, 64, 0)]
)
def test_route_is_a_stable_sort(t, k, experts, above, isa, rng):
    ids = rng.integers(0, experts + above, (t, k)).astype(np.uint32)
    ids[rng.random(ids.shape) < above / 10] = 2**32 - 1
    order = np.argsort(np.minimum(ids.reshape(-1), experts), kind="stable")
    got = routed(open_runtime(isa), ids, experts)
    np.testing.assert_array_equal(got["rows"], order // k)
    np.testing.assert_array_equal(got["counts"], np.bincount(ids[ids < experts], minlength=experts))
    np.testing.assert_array_equal(got["inverse"][order], np.arange(t * k))


def test_counts_are_cleared_each_step(isa, rng):
    runtime = open_runtime(isa)
    g = Graph(runtime)
    _, counts, _ = T.route(g.port("ids", np.zeros((6, 2), np.uint32)), experts=4)
    g.output("counts", counts)
    plan = g.builder.compile()
    for _ in range(3):
        ids = rng.integers(0, 4, (6, 2)).astype(np.uint32)
        got = run(runtime.device, g, plan, {"ids": ids})["counts"]
        np.testing.assert_array_equal(got, np.bincount(ids.reshape(-1), minlength=4))


def test_combine_is_gather_mul_add(isa, rng):
    t, k, n = 11, 3, 37
    runtime = open_runtime(isa)
    y = rng.standard_normal((t * k, n)).astype(np.float32)
    weights = rng.random((t, k)).astype(np.float32)
    inverse = rng.permutation(t * k).astype(np.uint32)
    inverse[5] = 2**32 - 1
    g = Graph(runtime)
    ty, ti = g.port("y", y), g.port("i", inverse)
    g.output("combined", T.combine(ty, ti, g.port("w", weights)))
    slots = T.gather_rows(ty, ti)
    total = None
    for j in range(k):
        own = T.contiguous(T.slice(T.reshape(slots, [t, k, n]), 1, j, j + 1))
        factor = T.broadcast(g.port(f"w{j}", weights[:, j : j + 1]), [t, n])
        term = T.mul(T.reshape(own, [t, n]), T.contiguous(factor))
        total = term if total is None else T.add(total, term)
    g.output("composed", total)
    got = run(runtime.device, g)
    equal_bits(got["combined"], got["composed"], "combine")


def layer(g: Graph, op, x, ids, gates, up, down):
    rows, counts, inverse = T.route(g.port("ids", ids), experts=len(up))
    h = T.gather_rows(g.port("x", x), rows)
    h = T.silu(getattr(T, op)(h, g.port("up", up, "weight"), counts, w_order="nk"))
    y = getattr(T, op)(h, g.port("down", down, "weight"), counts, w_order="nk")
    g.output("out", T.combine(y, inverse, g.port("gates", gates)))


def test_a_layer_of_experts_against_a_loop_over_tokens(isa, rng):
    t, k, experts, hidden, inner = 17, 2, 6, 24, 40
    runtime = open_runtime(isa)
    x = rng.standard_normal((t, hidden)).astype(np.float32)
    ids = np.argsort(rng.random((t, experts)), axis=1)[:, :k].astype(np.uint32)
    ids[3] = experts  # no expert: its rows come out as zero
    gates = rng.random((t, k)).astype(np.float32)
    up = (rng.standard_normal((experts, inner, hidden)) / hidden**0.5).astype(np.float32)
    down = (rng.standard_normal((experts, hidden, inner)) / inner**0.5).astype(np.float32)
    results = []
    for op in OPERATORS:
        g = Graph(runtime)
        layer(g, op, x, ids, gates, up, down)
        results.append(run(runtime.device, g))
        equal_bits(results[-1]["out"], oracle(g, level_of(isa))["out"][0], "against its orders")
    equal_bytes(*results, "matvec and matmul")
    terms = np.zeros((t, k, hidden))
    for i, j in np.ndindex(t, k):
        if ids[i, j] < experts:
            h = up[ids[i, j]].astype(np.float64) @ x[i]
            terms[i, j] = gates[i, j] * (
                down[ids[i, j]].astype(np.float64) @ (h / (1 + np.exp(-h)))
            )
    # The oracle's combine rounds y, the products and the sum to f32.
    error = np.abs(oracle(g)["out"][0] - terms.sum(1))
    assert (error <= 4 * 2.0**-24 * np.abs(terms).sum(1)).all()
    assert not results[0]["out"][3].any() and results[0]["out"][2].any()


def test_a_token_alone_gives_the_bits_of_the_batch(isa, rng):
    runtime, experts, hidden = open_runtime(isa), 5, 32
    x = rng.standard_normal((9, hidden)).astype(np.float32)
    ids = rng.integers(0, experts, (9, 3)).astype(np.uint32)
    gates = rng.random((9, 3)).astype(np.float32)
    up = rng.standard_normal((experts, 48, hidden)).astype(np.float32)
    down = rng.standard_normal((experts, hidden, 48)).astype(np.float32)

    def outcome(part):
        g = Graph(runtime)
        layer(g, "grouped_matmul", x[part], ids[part], gates[part], up, down)
        return run(runtime.device, g)["out"]

    whole = outcome(slice(None))
    for i in range(9):
        equal_bits(outcome(slice(i, i + 1))[0], whole[i], f"token {i}")
