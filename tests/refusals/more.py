"""Refusals of the operators beyond the base set (CONTRACT E7)."""

import accel
from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, rows
from refusals.elementwise import binary_rows

NAN, INF = float("nan"), float("inf")


def unary_rows(op: str, **keywords):
    def f(x):
        return getattr(T, op)(x, **keywords)

    return rows(
        op,
        ("dtype", lambda p: f(p.u32(4)), DTYPE, "x", "u32|f32 or f16"),
        ("bf16", lambda p: f(p.bf16(4)), DTYPE, "x", "bf16|cast(x, f32)"),
        (
            "transposed",
            lambda p: f(T.transpose(p.f32(8, 4), 0, 1)),
            SHAPE,
            "x",
            "strides|[4 8]|contiguous(x)",
        ),
        (
            "a column",
            lambda p: f(T.broadcast(p.f32(4, 1), [4, 8])),
            SHAPE,
            "x",
            "strides|contiguous(x)",
        ),
        helper=f,
    )


def stale_read(p):
    state = p.state(accel.F32, 4, 2)
    old = T.read_state(state)
    T.scatter_rows(state, p.f32(1, 2), p.u32(1))
    return T.concat(p.f32(4, 2), old, axis=0)


MORE = [
    *binary_rows("sub"),
    *rows("sub", ("by -", lambda p: p.f32(4, 8) - p.f32(5), SHAPE, "y", "[5]|[4 8]")),
    *unary_rows("exp"),
    *unary_rows("tanh"),
    *unary_rows("sigmoid"),
    *unary_rows("softplus"),
    *unary_rows("gelu"),
    *rows(
        "gelu",
        ("form", lambda p: T.gelu(p.f32(4), form="exact"), ATTR, "form", "'exact'|'erf' or 'tanh'"),
    ),
    *unary_rows("clamp", low=0.0, high=1.0),
    *rows(
        "clamp",
        ("no low", lambda p: T.clamp(p.f32(4), high=1.0), ATTR, "low", "None"),
        ("no high", lambda p: T.clamp(p.f32(4), low=1.0), ATTR, "high", "None"),
        ("nan low", lambda p: T.clamp(p.f32(4), low=NAN, high=1), ATTR, "low", "nan|number"),
        ("nan high", lambda p: T.clamp(p.f32(4), low=1, high=NAN), ATTR, "high", "nan|number"),
        ("crossed", lambda p: T.clamp(p.f32(4), low=2, high=1.5), ATTR, "low", "2|at most|1.5"),
        (
            "infinities",
            lambda p: T.clamp(p.f32(4), low=INF, high=-INF),
            ATTR,
            "low",
            "inf|-inf",
        ),
    ),
    *rows(
        "l2_norm",
        ("dtype", lambda p: T.l2_norm(p.f16(4, 8), eps=1e-5), DTYPE, "x", "f16|f32|cast"),
        ("eps zero", lambda p: T.l2_norm(p.f32(4, 8), eps=0.0), ATTR, "eps", "0|positive"),
        ("eps nan", lambda p: T.l2_norm(p.f32(4, 8), eps=NAN), ATTR, "eps", "nan|finite"),
        ("eps infinite", lambda p: T.l2_norm(p.f32(4, 8), eps=INF), ATTR, "eps", "inf|finite"),
        ("no eps", lambda p: T.l2_norm(p.f32(4, 8)), ATTR, "eps", "None"),
        (
            "strided",
            lambda p: T.l2_norm(T.transpose(p.f32(8, 4), 0, 1), eps=1e-5),
            SHAPE,
            "x",
            "strides|contiguous(x)",
        ),
    ),
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
    *rows(
        "top_k",
        ("dtype", lambda p: T.top_k(p.f16(8), 2), DTYPE, "x", "f16|f32|cast"),
        ("zero", lambda p: T.top_k(p.f32(8), 0), ATTR, "k", "0|1 or more"),
        ("negative", lambda p: T.top_k(p.f32(8), -1), ATTR, "k", "-1|1 or more"),
        ("beyond the axis", lambda p: T.top_k(p.f32(2, 8), 9), ATTR, "k", "9|8"),
        ("no k", lambda p: T.top_k(p.f32(8), None), ATTR, "k", "None"),
        (
            "strided",
            lambda p: T.top_k(T.transpose(p.f32(8, 4), 0, 1), 2),
            SHAPE,
            "x",
            "strides|contiguous(x)",
        ),
    ),
    *rows(
        "concat",
        ("one", lambda p: T.concat(p.f32(4), axis=0), ATTR, "xs", "one tensor|two or more"),
        (
            "dtypes",
            lambda p: T.concat(p.f32(4), p.f32(4), p.f16(4), axis=0),
            DTYPE,
            "xs[2]",
            "f16|f32, as xs[0] is|cast(xs[2], f32)",
        ),
        (
            "dtypes without a cast",
            lambda p: T.concat(p.u32(4), p.i8(4), axis=0),
            DTYPE,
            "xs[1]",
            "i8|u32, as xs[0] is",
        ),
        (
            "extents",
            lambda p: T.concat(p.f32(4, 8), p.f32(2, 8), p.f32(4, 7), axis=0),
            SHAPE,
            "xs[2]",
            "[4 7]|[any 8]",
        ),
        (
            "ranks",
            lambda p: T.concat(p.f32(4, 8), p.f32(8), axis=0),
            SHAPE,
            "xs[1]",
            "[8]|[any 8]",
        ),
        (
            "rank 9",
            lambda p: T.concat(*(p.f32(*[1] * 9) for _ in range(2)), axis=0),
            SHAPE,
            "xs[0]",
            "rank 8",
        ),
        (
            "axis",
            lambda p: T.concat(p.f32(4, 8), p.f32(4, 8), axis=2),
            ATTR,
            "axis",
            "2|[4 8]|-2 to 1",
        ),
        (
            "negative axis",
            lambda p: T.concat(p.f32(4, 8), p.f32(4, 8), axis=-3),
            ATTR,
            "axis",
            "-3|-2 to 1",
        ),
        ("no axis", lambda p: T.concat(p.f32(4), p.f32(4)), ATTR, "axis", "None"),
        (
            "None among them",
            lambda p: T.concat(p.f32(4), None, p.f32(4), axis=0),
            ATTR,
            "xs[1]",
            "None|a tensor",
        ),
        ("None first", lambda p: T.concat(None, p.f32(4), axis=0), ATTR, "xs[0]", "None"),
        (
            "two builders",
            lambda p: T.concat(p.f32(4), p.f32(4), p.other(4), axis=0),
            ATTR,
            "xs[2]",
            "'other'|'rows'",
        ),
        ("a stale read", stale_read, ATTR, "xs[1]", "version 0|1 write ago|version 1"),
        helper=stale_read,
    ),
]
