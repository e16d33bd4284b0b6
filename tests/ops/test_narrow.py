"""Products with rounded activations (E11, E13; CONTRACT 26 items 40, 41)."""

import ml_dtypes
import numpy as np
import pytest
from accel import tensor as T
from conftest import level_of, open_runtime
from runner import Graph, equal_bits, kernels_of, run

F32 = np.float32
TYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def int4_planes(rng, n, k, group, kind="zeros", dtype=np.float32):
    words = rng.integers(0, 2**32, n * k // 8, dtype=np.uint64).astype(np.uint32)
    scales = (rng.random(n * k // group) * 0.2 + 0.01).astype(dtype)
    offsets = rng.uniform(0, 15, n * k // group).astype(dtype)
    scales[::5] = 0
    return {"codes": words, "scales": scales, kind: offsets}


def int4(g, planes, n, k, group):
    handles = {name: g.port(f"w.{name}", array, "weight") for name, array in planes.items()}
    return T.Int4(**handles, weights=n * k, group=group)


def quantized(g, q, s):
    return T.Quantized(g.port("w.quants", q, "weight"), g.port("w.scales", s, "weight"))


def outcome(isa, build):
    g = Graph(open_runtime(isa))
    g.output("out", build(g))
    plan = g.builder.compile()
    return run(open_runtime(isa).device, g, plan)["out"], plan


# ------------------------------------------------------------------ int8


def round_block(x):
    """(scale, integers) of one block by the formula; NaN for a block that is not finite."""
    if not np.isfinite(x).all():
        return F32(np.nan), np.zeros(x.size, np.int64)
    scale = np.abs(x).max() / F32(127)
    if scale == 0:
        return F32(0), np.zeros(x.size, np.int64)
    return scale, np.clip(np.rint(x / scale), -127, 127).astype(np.int64)


def mul_add(a, b, c, isa):
    if level_of(isa) == "base":
        return F32(F32(a * b) + c)
    return F32(np.longdouble(a) * np.longdouble(b) + np.longdouble(c))


def by_integer_loops(x, codes, scales, offsets, group, isa):
    """codes [N, K], scales and offsets [N, K / group] as f32; offsets may be None."""
    out = np.zeros((len(x), len(codes)), F32)
    for m, row in enumerate(x):
        blocks = [round_block(row[k : k + group]) for k in range(0, row.size, group)]
        for n in range(len(codes)):
            acc = F32(0)
            for g, (step, q) in enumerate(blocks):
                c = codes[n, g * group : (g + 1) * group].astype(np.int64)
                acc = mul_add(F32(scales[n, g] * step), F32((q * c).sum()), acc, isa)
                if offsets is not None:
                    acc = mul_add(offsets[n, g], F32(step * F32(q.sum())), acc, isa)
            out[m, n] = acc
    return out


def activations(rng, m, k, group):
    """Ordinary rows, and blocks that are zero, subnormal, at whole and half steps, not finite."""
    x = rng.standard_normal((m, k)).astype(F32)
    x[0, :group] = 0
    x[1, group : 2 * group] *= F32(1e-42)
    x[2, :group] = rng.integers(-127, 128, group) + 0.5
    x[2, 0] = 127
    x[3, :group] = rng.choice([-127, 127], group)
    x[4, 3], x[5, k - 1] = np.nan, -np.inf
    return x


@pytest.mark.parametrize("m", [6, 1])
def test_p26_40_int8_blocks_are_the_formula_bit_for_bit(m, isa, rng):
    n, k = 21, 96
    x = activations(rng, 6, k, 32)
    q = rng.integers(-128, 128, (n, k)).astype(np.int8)
    s = (rng.random(n * k // 32) * 0.1).astype(np.float16)
    want = by_integer_loops(x, q, s.astype(F32).reshape(n, -1), None, 32, isa)
    assert np.isnan(want[4:]).all() and np.isfinite(want[:4]).all()
    for first in range(0, 6, m):
        rows = x[first : first + m]

        def build(g, rows=rows):
            w = quantized(g, q, s)
            return T.quant_matmul(g.port("x", rows), w, w_order="nk", activations="int8")

        equal_bits(outcome(isa, build)[0], want[first : first + m], f"rows from {first}")


@pytest.mark.parametrize("kind", ["zeros", "biases"])
@pytest.mark.parametrize("group", [32, 64, 128])
def test_p26_40_int4_groups_are_the_formula_bit_for_bit(kind, group, isa, rng):
    n, k = 19, 3 * group
    x = activations(rng, 6, k, group)
    planes = int4_planes(rng, n, k, group, kind)
    codes = (planes["codes"][:, None] >> np.arange(0, 32, 4, dtype=np.uint32)) & 15
    s = planes["scales"].reshape(n, -1)
    o = planes[kind].reshape(n, -1)
    if kind == "zeros":
        o = np.where(s == 0, o, -o * s)
    want = by_integer_loops(x, codes.reshape(n, k), s, o, group, isa)
    assert np.isnan(want[4:]).all() and np.isfinite(want[:4]).all()

    def whole(g):
        w = int4(g, planes, n, k, group)
        return T.int4_matmul(g.port("x", x), w, w_order="nk", activations="int8")

    got, plan = outcome(isa, whole)
    equal_bits(got, want, "int4_matmul")
    assert kernels_of(plan) == ["int4_matmul_int8_f32"]
    reason = plan.selections()[0].reason
    assert "int8" in reason and "int8_group" in reason
    for row in range(6):

        def alone(g, row=row):
            w = int4(g, planes, n, k, group)
            return T.int4_matvec(g.port("x", x[row]), w, w_order="nk", activations="int8")

        equal_bits(outcome(isa, alone)[0], want[row], f"int4_matvec {row}")


@pytest.mark.parametrize("m", range(1, 18))
def test_int8_rows_do_not_see_each_other(m, isa, rng):
    n, k = 35, 1088
    x = rng.standard_normal((17, k)).astype(F32)
    planes = int4_planes(rng, n, k, 64)

    def build(rows):
        def f(g):
            w = int4(g, planes, n, k, 64)
            return T.int4_matmul(g.port("x", rows), w, w_order="nk", activations="int8")

        return outcome(isa, f)[0]

    equal_bits(build(x[:m]), build(x)[:m], f"{m} rows")


# ------------------------------------------------------------------ f16 and bf16


def narrow_cases(rng):
    """Each operator in both orders as build(x, keyword)."""
    n, k = 18, 64
    q = rng.integers(-127, 128, n * k).astype(np.int8)
    s = (rng.random(n * k // 32) * 0.1).astype(np.float16)
    planes = int4_planes(rng, n, k, 32, dtype=np.float16)
    for order in ("kn", "nk"):
        shape = (n, k) if order == "nk" else (k, n)

        def by_quant(x, order=order, shape=shape, **kw):
            def f(g):
                w = quantized(g, q.reshape(shape), s)
                return T.quant_matmul(g.port("x", x), w, w_order=order, **kw)

            return f

        def by_int4(x, order=order, **kw):
            def f(g):
                w = int4(g, planes, n, k, 32)
                op = T.int4_matmul if x.ndim == 2 else T.int4_matvec
                return op(g.port("x", x), w, w_order=order, **kw)

            return f

        yield by_quant, (5, k)
        yield by_quant, (1, k)
        yield by_int4, (7, k)
        yield by_int4, (k,)


@pytest.mark.parametrize("to", TYPES)
def test_p26_41_it_is_the_product_of_the_rounded_row(to, isa, rng):
    for build, shape in narrow_cases(rng):
        x = (rng.standard_normal(shape) * rng.choice([1e-7, 1, 300], shape)).astype(F32)
        rounded = x.astype(TYPES[to]).astype(F32)
        assert (rounded != x).any()
        plain, whole = outcome(isa, build(rounded))
        got, plan = outcome(isa, build(x, activations=to))
        equal_bits(got, plain, f"{to} {shape}")
        assert kernels_of(plan) == kernels_of(whole)
        assert f"activations rounded to {to}" in plan.selections()[0].reason
        assert "activations rounded" not in whole.selections()[0].reason
        unrounded, _ = outcome(isa, build(x))
        assert (unrounded != got).any()


@pytest.mark.parametrize(("to", "large"), [("f16", 65520.0), ("bf16", 3.4e38)])
def test_p26_41_what_leaves_the_type_overflows_as_in_cast(to, large, isa, rng):
    for build, shape in narrow_cases(rng):
        x = np.zeros(shape, F32)
        x.reshape(-1, shape[-1])[0, 5] = large
        with np.errstate(over="ignore"):
            rounded = x.astype(TYPES[to]).astype(F32)
        assert np.isinf(rounded).sum() == 1 and np.isfinite(x).all()
        got, _ = outcome(isa, build(x, activations=to))
        equal_bits(got, outcome(isa, build(rounded))[0], f"{to} {shape}")
        first = got if got.ndim == 1 else got[0]
        assert not np.isfinite(first).any() and np.isinf(first).any()


def test_f16_activations_rounded_to_f16_stay(isa, rng):
    q = rng.integers(-127, 128, (9, 64)).astype(np.int8)
    s = (rng.random(18) * 0.1).astype(np.float16)
    x = rng.standard_normal((4, 64)).astype(np.float16)

    def build(**kw):
        def f(g):
            return T.quant_matmul(g.port("x", x), quantized(g, q, s), w_order="nk", **kw)

        return f

    equal_bits(outcome(isa, build(activations="f16"))[0], outcome(isa, build())[0], "f16")
