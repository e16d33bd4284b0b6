"""Refusals of routing and of the grouped products."""

import accel
from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, rows

ROUTING = [
    *rows(
        "route",
        ("ids dtype", lambda p: T.route(p.f32(4, 2), experts=8), DTYPE, "ids", "f32|u32"),
        ("ids rank", lambda p: T.route(p.u32(8), experts=8), SHAPE, "ids", "[8]|rank 2"),
        ("no experts", lambda p: T.route(p.u32(4, 2)), ATTR, "experts", "None"),
        ("zero", lambda p: T.route(p.u32(4, 2), experts=0), ATTR, "experts", "0|positive"),
        ("negative", lambda p: T.route(p.u32(4, 2), experts=-1), ATTR, "experts", "-1|positive"),
        ("2^32", lambda p: T.route(p.u32(4, 2), experts=2**32), ATTR, "experts", "4294967296|2^32"),
    ),
    *rows(
        "combine",
        (
            "y dtype",
            lambda p: T.combine(p.f16(8, 5), p.u32(8), p.f32(4, 2)),
            DTYPE,
            "y",
            "f16|f32|cast",
        ),
        (
            "inverse dtype",
            lambda p: T.combine(p.f32(8, 5), p.f32(8), p.f32(4, 2)),
            DTYPE,
            "inverse",
            "f32|u32",
        ),
        (
            "weights dtype",
            lambda p: T.combine(p.f32(8, 5), p.u32(8), p.f16(4, 2)),
            DTYPE,
            "weights",
            "f16|f32",
        ),
        ("y rank", lambda p: T.combine(p.f32(8), p.u32(8), p.f32(4, 2)), SHAPE, "y", "[8]|rank 2"),
        (
            "weights rank",
            lambda p: T.combine(p.f32(8, 5), p.u32(8), p.f32(8)),
            SHAPE,
            "weights",
            "[8]|rank 2",
        ),
        (
            "y rows",
            lambda p: T.combine(p.f32(7, 5), p.u32(8), p.f32(4, 2)),
            SHAPE,
            "y",
            "[7 5]|[8 N]|[4 2]",
        ),
        (
            "inverse entries",
            lambda p: T.combine(p.f32(8, 5), p.u32(7), p.f32(4, 2)),
            SHAPE,
            "inverse",
            "7|8",
        ),
        ("no y", lambda p: T.combine(None, p.u32(8), p.f32(4, 2)), ATTR, "y", "None"),
        (
            "no inverse",
            lambda p: T.combine(p.f32(8, 5), None, p.f32(4, 2)),
            ATTR,
            "inverse",
            "None",
        ),
        (
            "no weights",
            lambda p: T.combine(p.f32(8, 5), p.u32(8), None),
            ATTR,
            "weights",
            "None",
        ),
    ),
]


def float_rows(op: str):
    f = getattr(T, op)
    return rows(
        op,
        ("no x", lambda p: f(None, p.f32(2, 8, 4), p.u32(2)), ATTR, "x", "None"),
        ("no w", lambda p: f(p.f32(3, 8), None, p.u32(2)), ATTR, "w", "None|a weight"),
        ("no counts", lambda p: f(p.f32(3, 8), p.f32(2, 8, 4), None), ATTR, "counts", "None"),
        (
            "counts dtype",
            lambda p: f(p.f32(3, 8), p.f32(2, 8, 4), p.f32(2)),
            DTYPE,
            "counts",
            "f32|u32",
        ),
        (
            "counts entries",
            lambda p: f(p.f32(3, 8), p.f32(2, 8, 4), p.u32(3)),
            SHAPE,
            "counts",
            "[3]|[2]|[2 8 4]",
        ),
        ("x dtype", lambda p: f(p.f16(3, 8), p.f16(2, 8, 4), p.u32(2)), DTYPE, "x", "f16|f32|cast"),
        (
            "w dtype",
            lambda p: f(p.f32(3, 8), p.i8(2, 8, 4), p.u32(2)),
            DTYPE,
            "w",
            "i8|f32, f16 or bf16",
        ),
        ("x rank", lambda p: f(p.f32(8), p.f32(2, 8, 4), p.u32(2)), SHAPE, "x", "[8]|rank 2"),
        ("w rank", lambda p: f(p.f32(3, 8), p.f32(8, 4), p.u32(2)), SHAPE, "w", "[8 4]|rank 3"),
        (
            "K",
            lambda p: f(p.f32(3, 8), p.f32(2, 7, 4), p.u32(2)),
            SHAPE,
            "w",
            "[2 7 4]|[E 8 N]|[3 8]",
        ),
        (
            "K in nk",
            lambda p: f(p.f32(3, 8), p.f32(2, 8, 4), p.u32(2), w_order="nk"),
            SHAPE,
            "w",
            "[2 8 4]|[E N 8]|'nk'",
        ),
    )


def option_rows(op: str):
    f = getattr(T, op)
    return rows(
        op,
        (
            "order",
            lambda p: f(p.f32(3, 8), p.f32(2, 8, 4), p.u32(2), w_order="ken"),
            ATTR,
            "w_order",
            "'ken'|'kn' or 'nk'",
        ),
        (
            "strided",
            lambda p: f(p.f32(3, 8), T.transpose(p.f32(2, 4, 8), 1, 2), p.u32(2)),
            SHAPE,
            "w",
            "strides|contiguous(w)",
        ),
        (
            "bias shape",
            lambda p: f(p.f32(3, 8), p.f32(2, 8, 4), p.u32(2), bias=p.f32(4)),
            SHAPE,
            "bias",
            "[4]|[2 4]",
        ),
        (
            "bias dtype",
            lambda p: f(p.f32(3, 8), p.f32(2, 8, 4), p.u32(2), bias=p.f16(2, 4)),
            DTYPE,
            "bias",
            "f16|f32",
        ),
        (
            "two builders",
            lambda p: f(p.f32(3, 8), p.other(2, 8, 4), p.u32(2)),
            ATTR,
            "w",
            "'other'|'rows'",
        ),
    )


def plane_rows(op: str):
    f = getattr(T, op)

    def with_planes(p, **planes):
        return f(p.f32(3, 32), p.int4(256, **planes), p.u32(2))

    return rows(
        op,
        (
            "codes dtype",
            lambda p: with_planes(p, codes=p.f32(32)),
            DTYPE,
            "w.codes",
            "f32|u32",
        ),
        (
            "scales dtype",
            lambda p: with_planes(p, scales=p.u32(2)),
            DTYPE,
            "w.scales",
            "u32|f16, bf16 or f32",
        ),
        ("mixed planes", lambda p: with_planes(p, zeros=p.f32(2)), DTYPE, "w.zeros", "f32|f16"),
        (
            "mixed biases",
            lambda p: f(
                p.f32(3, 32),
                T.Int4(p.u32(32), p.bf16(2), weights=256, biases=p.f16(2)),
                p.u32(2),
            ),
            DTYPE,
            "w.biases",
            "f16|bf16",
        ),
        helper=with_planes,
    )


def count_rows(op: str):
    f = getattr(T, op)

    def with_planes(p, **planes):
        return f(p.f32(3, 32), p.int4(256, **planes), p.u32(2))

    return rows(
        op,
        ("codes count", lambda p: with_planes(p, codes=p.u32(33)), SHAPE, "w.codes", "33|32"),
        ("scales count", lambda p: with_planes(p, scales=p.f16(3)), SHAPE, "w.scales", "3|2"),
        ("zeros count", lambda p: with_planes(p, zeros=p.f16(3)), SHAPE, "w.zeros", "3|2"),
        (
            "weights",
            lambda p: f(p.f32(3, 32), p.int4(0), p.u32(2)),
            SHAPE,
            "w.weights",
            "0|positive",
        ),
        (
            "group",
            lambda p: f(p.f32(3, 32), T.Int4(p.u32(32), p.f16(6), p.f16(6), 256, 48), p.u32(2)),
            ATTR,
            "w.group",
            "48|32, 64 or 128",
        ),
        (
            "E * K",
            lambda p: f(p.f32(3, 24), p.int4(256), p.u32(2)),
            SHAPE,
            "w.weights",
            "256|2 * 24|[3 24]",
        ),
        (
            "E",
            lambda p: f(p.f32(3, 32), p.int4(256), p.u32(3)),
            SHAPE,
            "w.weights",
            "256|3 * 32",
        ),
        (
            "counts rank",
            lambda p: f(p.f32(3, 32), p.int4(256), p.u32(2, 1)),
            SHAPE,
            "counts",
            "[2 1]|rank 1",
        ),
        ("int4 x dtype", lambda p: f(p.f16(3, 32), p.int4(256), p.u32(2)), DTYPE, "x", "f16|f32"),
        ("int4 x rank", lambda p: f(p.f32(32), p.int4(256), p.u32(2)), SHAPE, "x", "rank 2"),
        helper=with_planes,
    )


def absent_rows(op: str):
    f = getattr(T, op)

    def with_planes(p, **planes):
        return f(p.f32(3, 32), p.int4(256, **planes), p.u32(2))

    return rows(
        op,
        (
            "no codes",
            lambda p: f(p.f32(3, 32), T.Int4(None, p.f16(2), p.f16(2), 256), p.u32(2)),
            ATTR,
            "w.codes",
            "None",
        ),
        (
            "no scales of int4",
            lambda p: f(p.f32(3, 32), T.Int4(p.u32(32), None, p.f16(2), 256), p.u32(2)),
            ATTR,
            "w.scales",
            "None",
        ),
        (
            "no zeros",
            lambda p: f(p.f32(3, 32), T.Int4(p.u32(32), p.f16(2), weights=256), p.u32(2)),
            ATTR,
            "w.zeros",
            "None|biases",
        ),
        (
            "zeros and biases",
            lambda p: with_planes(p, biases=p.f16(2)),
            ATTR,
            "w.zeros",
            "biases|alone",
        ),
        (
            "codes of another builder",
            lambda p: with_planes(
                p, codes=p.b_runtime.new_builder("other").input("x", accel.U32, [32])
            ),
            ATTR,
            "w.codes",
            "'other'|'rows'",
        ),
        helper=with_planes,
    )


def quantized_rows(op: str):
    f = getattr(T, op)
    return rows(
        op,
        (
            "no quants",
            lambda p: f(p.f32(3, 32), T.Quantized(None, p.f16(8)), p.u32(2)),
            ATTR,
            "w.quants",
            "None",
        ),
        (
            "no scales of quantized",
            lambda p: f(p.f32(3, 32), T.Quantized(p.i8(2, 32, 4), None), p.u32(2)),
            ATTR,
            "w.scales",
            "None",
        ),
        (
            "quants rank",
            lambda p: f(p.f32(3, 32), p.quantized(64, 4), p.u32(2)),
            SHAPE,
            "w.quants",
            "[64 4]|rank 3",
        ),
        (
            "quants K",
            lambda p: f(p.f32(3, 32), p.quantized(2, 31, 4), p.u32(2)),
            SHAPE,
            "w.quants",
            "[2 31 4]|[E 32 N]",
        ),
        (
            "quants dtype",
            lambda p: f(p.f32(3, 32), T.Quantized(p.u32(2, 32, 4), p.f16(8)), p.u32(2)),
            DTYPE,
            "w.quants",
            "u32|i8",
        ),
        (
            "quantized scales dtype",
            lambda p: f(p.f32(3, 32), p.quantized(2, 32, 4, scales=p.f32(8)), p.u32(2)),
            DTYPE,
            "w.scales",
            "f32|f16",
        ),
        (
            "quantized scales count",
            lambda p: f(p.f32(3, 32), p.quantized(2, 32, 4, scales=p.f16(7)), p.u32(2)),
            SHAPE,
            "w.scales",
            "7|8",
        ),
        (
            "quantized experts",
            lambda p: f(p.f32(3, 32), p.quantized(2, 32, 4), p.u32(4)),
            SHAPE,
            "counts",
            "[4]|[2]",
        ),
    )


GROUPED = [
    row
    for op in ("grouped_matvec", "grouped_matmul")
    for table in (float_rows, option_rows, plane_rows, count_rows, absent_rows, quantized_rows)
    for row in table(op)
]
MOE = [*ROUTING, *GROUPED]
