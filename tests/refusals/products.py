"""Refusals of matrix products."""

from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, rows


def product_rows(op: str, call):
    """call(x, w, **options) of matmul and linear."""
    return rows(
        op,
        ("x rank", lambda p: call(p, p.f32(8), p.f32(8, 4)), SHAPE, "x", "[8]|rank 2"),
        ("w rank", lambda p: call(p, p.f32(2, 8), p.f32(8)), SHAPE, "w", "[8]|rank 2"),
        ("K", lambda p: call(p, p.f32(2, 8), p.f32(7, 4)), SHAPE, "w", "[7 4]|[2 8]"),
        (
            "K in nk",
            lambda p: call(p, p.f32(2, 8), p.f32(8, 4), w_order="nk"),
            SHAPE,
            "w",
            "[8 4]|[2 8]|'nk'",
        ),
        (
            "order",
            lambda p: call(p, p.f32(2, 8), p.f32(8, 4), w_order="mn"),
            ATTR,
            "w_order",
            "'mn'|'kn' or 'nk'",
        ),
        (
            "f16 by f32",
            lambda p: call(p, p.f16(2, 8), p.f32(8, 4)),
            DTYPE,
            "w",
            "wider than the activation",
        ),
        (
            "bf16 activation",
            lambda p: call(p, p.bf16(2, 8), p.bf16(8, 4)),
            DTYPE,
            "x",
            "bf16|cast(x, f32)",
        ),
        ("i8 weight", lambda p: call(p, p.f32(2, 8), p.i8(8, 4)), DTYPE, "w", "i8"),
        (
            "strided",
            lambda p: call(p, p.f32(2, 8), T.transpose(p.f32(4, 8), 0, 1)),
            SHAPE,
            "w",
            "strides|contiguous(w)",
        ),
        ("no x", lambda p: call(p, None, p.f32(8, 4)), ATTR, "x", "None"),
        ("no w", lambda p: call(p, p.f32(2, 8), None), ATTR, "w", "None"),
        helper=call,
    )


def multiply(p, x, w, **kw):
    return T.matmul(x, w, **kw)


def project(p, x, w, **kw):
    return T.linear(x, w, None, **kw)


PRODUCTS = [
    *product_rows("matmul", multiply),
    *product_rows("linear", project),
    *rows("matmul", ("by @", lambda p: p.f32(2, 8) @ p.f32(7, 4), SHAPE, "w", "[7 4]|[2 8]")),
    *rows(
        "linear",
        (
            "bias shape",
            lambda p: T.linear(p.f32(2, 8), p.f32(8, 4), p.f32(8)),
            SHAPE,
            "bias",
            "[8]|[4]",
        ),
        (
            "bias dtype",
            lambda p: T.linear(p.f32(2, 8), p.f32(8, 4), p.f16(4)),
            DTYPE,
            "bias",
            "f16|f32",
        ),
    ),
    *rows(
        "quant_matmul",
        (
            "x rank",
            lambda p: T.quant_matmul(p.f32(32), p.quantized(32, 4)),
            SHAPE,
            "x",
            "[32]|rank 2",
        ),
        (
            "w rank",
            lambda p: T.quant_matmul(p.f32(2, 32), p.quantized(32)),
            SHAPE,
            "w.quants",
            "[32]|rank 2",
        ),
        (
            "K",
            lambda p: T.quant_matmul(p.f32(2, 32), p.quantized(16, 4)),
            SHAPE,
            "w.quants",
            "[16 4]|[2 32]",
        ),
        (
            "x dtype",
            lambda p: T.quant_matmul(p.bf16(2, 32), p.quantized(32, 4)),
            DTYPE,
            "x",
            "bf16|f32",
        ),
        (
            "quants dtype",
            lambda p: T.quant_matmul(p.f32(2, 32), T.Quantized(p.u32(32, 4), p.f16(4))),
            DTYPE,
            "w.quants",
            "u32|i8",
        ),
        (
            "scales dtype",
            lambda p: T.quant_matmul(p.f32(2, 32), T.Quantized(p.i8(32, 4), p.f32(4))),
            DTYPE,
            "w.scales",
            "f32|f16",
        ),
        (
            "scales count",
            lambda p: T.quant_matmul(p.f32(2, 32), p.quantized(32, 4, scales=p.f16(3))),
            SHAPE,
            "w.scales",
            "3|4",
        ),
        (
            "order",
            lambda p: T.quant_matmul(p.f32(2, 32), p.quantized(32, 4), w_order=""),
            ATTR,
            "w_order",
            "'kn' or 'nk'",
        ),
        (
            "no scales",
            lambda p: T.quant_matmul(p.f32(2, 32), T.Quantized(p.i8(32, 4), None)),
            ATTR,
            "w.scales",
            "None",
        ),
        ("no w", lambda p: T.quant_matmul(p.f32(2, 32), None), ATTR, "w", "None"),
        ("no x", lambda p: T.quant_matmul(None, p.quantized(32, 4)), ATTR, "x", "None"),
    ),
]


def plane_rows(op: str, shape):
    f = getattr(T, op)
    n = 4 * shape[-1]
    return rows(
        op,
        (
            "codes dtype",
            lambda p: f(p.f32(*shape), p.int4(n, codes=p.f32(n // 8))),
            DTYPE,
            "w.codes",
            "f32|u32",
        ),
        (
            "scales dtype",
            lambda p: f(p.f32(*shape), p.int4(n, scales=p.u32(-(-n // 128)))),
            DTYPE,
            "w.scales",
            "u32|f16, bf16 or f32",
        ),
        (
            "mixed planes",
            lambda p: f(p.f32(*shape), p.int4(n, zeros=p.f32(-(-n // 128)))),
            DTYPE,
            "w.zeros",
            "f32|f16",
        ),
        (
            "mixed biases",
            lambda p: f(
                p.f32(*shape), T.Int4(p.u32(n // 8), p.bf16(1), weights=n, biases=p.f16(1))
            ),
            DTYPE,
            "w.biases",
            "f16|bf16",
        ),
        ("weights", lambda p: f(p.f32(*shape), p.int4(0)), SHAPE, "w.weights", "0|positive"),
        (
            "weights left out",
            lambda p: f(p.f32(*shape), T.Int4(p.u32(4), p.f16(1), p.f16(1))),
            SHAPE,
            "w.weights",
            "0|positive",
        ),
    )


def count_rows(op: str, shape):
    f = getattr(T, op)
    n = 4 * shape[-1]
    return rows(
        op,
        (
            "codes count",
            lambda p: f(p.f32(*shape), p.int4(n, codes=p.u32(n // 8 + 1))),
            SHAPE,
            "w.codes",
            f"{n // 8 + 1}|{n // 8}",
        ),
        (
            "scales count",
            lambda p: f(p.f32(*shape), p.int4(n, scales=p.f16(9))),
            SHAPE,
            "w.scales",
            "9",
        ),
        (
            "zeros count",
            lambda p: f(p.f32(*shape), p.int4(n, zeros=p.f16(9))),
            SHAPE,
            "w.zeros",
            "9",
        ),
        (
            "group",
            lambda p: f(p.f32(*shape), T.Int4(p.u32(n // 8), p.f16(1), p.f16(1), n, 48)),
            ATTR,
            "w.group",
            "48|32, 64 or 128",
        ),
        (
            "no zeros",
            lambda p: f(p.f32(*shape), T.Int4(p.u32(n // 8), p.f16(1), weights=n)),
            ATTR,
            "w.zeros",
            "None|biases",
        ),
        (
            "zeros and biases",
            lambda p: f(p.f32(*shape), p.int4(n, biases=p.f16(1))),
            ATTR,
            "w.zeros",
            "biases|alone",
        ),
        (
            "no codes",
            lambda p: f(p.f32(*shape), T.Int4(None, p.f16(1), p.f16(1), n)),
            ATTR,
            "w.codes",
            "None",
        ),
        (
            "no scales",
            lambda p: f(p.f32(*shape), T.Int4(p.u32(n // 8), None, p.f16(1), n)),
            ATTR,
            "w.scales",
            "None",
        ),
    )


def int4_rows(op: str, shape, other: str, wrong_rank):
    f = getattr(T, op)
    n = 4 * shape[-1]
    own = rows(
        op,
        ("a dtype", lambda p: f(p.f16(*shape), p.int4(n)), DTYPE, "a", "f16|f32|cast"),
        ("rank", lambda p: f(p.f32(*wrong_rank), p.int4(n)), SHAPE, "a", other),
        ("K", lambda p: f(p.f32(*shape[:-1], 24), p.int4(n)), SHAPE, "w.weights", f"{n}|24"),
        (
            "order",
            lambda p: f(p.f32(*shape), p.int4(n), w_order="nm"),
            ATTR,
            "w_order",
            "'nm'|'kn' or 'nk'",
        ),
        ("no w", lambda p: f(p.f32(*shape), None), ATTR, "w", "None"),
        ("no a", lambda p: f(None, p.int4(n)), ATTR, "a", "None"),
    )
    return [*plane_rows(op, shape), *count_rows(op, shape), *own]


INT4 = [
    *int4_rows("int4_matvec", (32,), "int4_matmul", (2, 32)),
    *int4_rows("int4_matmul", (2, 32), "int4_matvec", (32,)),
]
