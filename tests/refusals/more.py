"""Refusals of the operators beyond the base set (CONTRACT E7)."""

from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, rows

MORE = [
    *rows(
        "log_softmax",
        ("dtype", lambda p: T.log_softmax(p.f16(4, 8)), DTYPE, "x", "f16|f32|cast(x, f32)"),
        (
            "strided",
            lambda p: T.log_softmax(T.transpose(p.f32(8, 4), 0, 1)),
            SHAPE,
            "x",
            "strides|contiguous(x)",
        ),
    ),
    *rows(
        "take",
        ("dtype", lambda p: T.take(p.i8(4, 8), p.u32(4)), DTYPE, "x", "i8|f32, f16 or u32"),
        ("bf16", lambda p: T.take(p.bf16(4, 8), p.u32(4)), DTYPE, "x", "bf16|cast(x, f32)"),
        ("ids dtype", lambda p: T.take(p.f32(4, 8), p.f32(4)), DTYPE, "ids", "f32|u32"),
        ("rank", lambda p: T.take(p.f32(8), p.u32(1)), SHAPE, "x", "[8]|rank 2"),
        ("ids count", lambda p: T.take(p.f32(4, 8), p.u32(3)), SHAPE, "ids", "[3]|[4]"),
        ("ids rank", lambda p: T.take(p.f32(4, 8), p.u32(4, 1)), SHAPE, "ids", "[4 1]|[4]"),
        ("no x", lambda p: T.take(None, p.u32(4)), ATTR, "x", "None"),
        ("no ids", lambda p: T.take(p.f32(4, 8), None), ATTR, "ids", "None"),
        ("two builders", lambda p: T.take(p.f32(4, 8), p.other(4)), ATTR, "ids", "other|rows"),
        (
            "strided",
            lambda p: T.take(T.transpose(p.f32(8, 4), 0, 1), p.u32(4)),
            SHAPE,
            "x",
            "strides|contiguous(x)",
        ),
    ),
]
