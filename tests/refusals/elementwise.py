"""Refusals of elementwise operators, gathers and row operators."""

import accel
from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, rows


def column(p):
    return T.broadcast(p.f32(4, 1), [4, 8])


def binary_rows(op: str):
    f = getattr(T, op)
    return rows(
        op,
        ("dtypes differ", lambda p: f(p.f32(4, 8), p.f16(4, 8)), DTYPE, "y", "f16|f32|cast"),
        ("not a float", lambda p: f(p.u32(4), p.u32(4)), DTYPE, "x", "u32|f32 or f16"),
        ("bf16", lambda p: f(p.bf16(4), p.bf16(4)), DTYPE, "x", "bf16|cast(x, f32)"),
        ("shapes", lambda p: f(p.f32(4, 8), p.f32(3, 8)), SHAPE, "y", "[3 8]|[4 8]"),
        (
            "a column",
            lambda p: f(p.f32(4, 8), p.f32(4, 1)),
            SHAPE,
            "y",
            "[4 1]|[4 8]|contiguous(broadcast(y, [4, 8]))",
        ),
        ("a column view", lambda p: f(p.f32(4, 8), column(p)), SHAPE, "y", "strides|contiguous(y)"),
        (
            "transposed",
            lambda p: f(T.transpose(p.f32(8, 4), 0, 1), p.f32(4, 8)),
            SHAPE,
            "x",
            "strides|contiguous(x)",
        ),
        ("no x", lambda p: f(None, p.f32(4)), ATTR, "x", "None"),
        ("no y", lambda p: f(p.f32(4), None), ATTR, "y", "None"),
        ("two builders", lambda p: f(p.f32(4), p.other(4)), ATTR, "y", "'other'|'rows'"),
    )


ELEMENTWISE = [
    *binary_rows("add"),
    *binary_rows("mul"),
    *rows("add", ("by +", lambda p: p.f32(4, 8) + p.f32(5), SHAPE, "y", "[5]|[4 8]")),
    *rows("mul", ("by *", lambda p: p.f32(4, 8) * p.f32(5), SHAPE, "y", "[5]|[4 8]")),
    *rows(
        "scale",
        (
            "undeclared",
            lambda p: T.scale(p.f32(4), "factor"),
            ATTR,
            "scalar_name",
            "'factor'|declared|f32",
        ),
        ("kind", lambda p: T.scale(p.f32(4), p.uscalar()), ATTR, "scalar_name", "u32|f32"),
        ("no name", lambda p: T.scale(p.f32(4), None), ATTR, "scalar_name", "None"),
        ("dtype", lambda p: T.scale(p.u32(4), p.fscalar()), DTYPE, "x", "u32|f32 or f16"),
        (
            "transposed",
            lambda p: T.scale(T.transpose(p.f32(8, 4), 0, 1), p.fscalar()),
            SHAPE,
            "x",
            "strides|contiguous(x)",
        ),
    ),
    *rows(
        "silu",
        ("dtype", lambda p: T.silu(p.u32(4)), DTYPE, "x", "u32|f32 or f16"),
        (
            "transposed",
            lambda p: T.silu(T.transpose(p.f32(8, 4), 0, 1)),
            SHAPE,
            "x",
            "strides|contiguous(x)",
        ),
    ),
    *rows(
        "swiglu",
        ("shapes", lambda p: T.swiglu(p.f32(4, 8), p.f32(8)), SHAPE, "value", "[8]|[4 8]"),
        ("dtypes", lambda p: T.swiglu(p.f32(4), p.f16(4)), DTYPE, "value", "f16|f32|cast"),
        ("no gate", lambda p: T.swiglu(None, p.f32(4)), ATTR, "gate", "None"),
        ("no value", lambda p: T.swiglu(p.f32(4), None), ATTR, "value", "None"),
    ),
    *rows(
        "cast",
        (
            "bf16 to f16",
            lambda p: T.cast(p.bf16(4), accel.F16),
            DTYPE,
            "x",
            "two steps",
        ),
        ("f32 to u32", lambda p: T.cast(p.f32(4), accel.U32), DTYPE, "x", "f32|u32|pairs"),
        ("f32 to bf16", lambda p: T.cast(p.f32(4), accel.BF16), DTYPE, "x", "f32|bf16|pairs"),
        ("from u32", lambda p: T.cast(p.u32(4), accel.F32), DTYPE, "x", "u32"),
        ("no dtype", lambda p: T.cast(p.f32(4), None), ATTR, "to", "None"),
        (
            "transposed",
            lambda p: T.cast(T.transpose(p.f32(8, 4), 0, 1), accel.F16),
            SHAPE,
            "x",
            "strides|contiguous(x)",
        ),
    ),
]

GATHERS = [
    *rows(
        "gather_rows",
        (
            "table dtype",
            lambda p: T.gather_rows(p.u32(8, 4), p.u32(2)),
            DTYPE,
            "table",
            "u32|f32, f16 or bf16",
        ),
        (
            "an i8 table",
            lambda p: T.gather_rows(p.i8(8, 4), p.u32(2)),
            DTYPE,
            "table",
            "i8|quant_gather_rows",
        ),
        ("ids dtype", lambda p: T.gather_rows(p.f32(8, 4), p.f32(2)), DTYPE, "ids", "f32|u32"),
        ("table rank", lambda p: T.gather_rows(p.f32(8), p.u32(2)), SHAPE, "table", "[8]|rank 2"),
        (
            "strided table",
            lambda p: T.gather_rows(T.transpose(p.f32(8, 4), 0, 1), p.u32(2)),
            SHAPE,
            "table",
            "strides|contiguous(table)",
        ),
        ("no table", lambda p: T.gather_rows(None, p.u32(2)), ATTR, "table", "None"),
        ("no ids", lambda p: T.gather_rows(p.f32(8, 4), None), ATTR, "ids", "None"),
    ),
    *rows(
        "quant_gather_rows",
        (
            "ids dtype",
            lambda p: T.quant_gather_rows(p.quantized(8, 32), p.f32(2)),
            DTYPE,
            "ids",
            "f32|u32",
        ),
        (
            "quants dtype",
            lambda p: T.quant_gather_rows(T.Quantized(p.u32(8, 32), p.f16(8)), p.u32(2)),
            DTYPE,
            "table.quants",
            "u32|i8",
        ),
        (
            "scales dtype",
            lambda p: T.quant_gather_rows(T.Quantized(p.i8(8, 32), p.f32(8)), p.u32(2)),
            DTYPE,
            "table.scales",
            "f32|f16",
        ),
        (
            "scales count",
            lambda p: T.quant_gather_rows(p.quantized(8, 32, scales=p.f16(9)), p.u32(2)),
            SHAPE,
            "table.scales",
            "9|8",
        ),
        (
            "rank",
            lambda p: T.quant_gather_rows(p.quantized(64), p.u32(2)),
            SHAPE,
            "table.quants",
            "[64]|rank 2",
        ),
        (
            "no scales",
            lambda p: T.quant_gather_rows(T.Quantized(p.i8(8, 32), None), p.u32(2)),
            ATTR,
            "table.scales",
            "None",
        ),
        (
            "no quants",
            lambda p: T.quant_gather_rows(T.Quantized(None, p.f16(8)), p.u32(2)),
            ATTR,
            "table.quants",
            "None",
        ),
        ("no table", lambda p: T.quant_gather_rows(None, p.u32(2)), ATTR, "table", "None"),
    ),
]

ROWS = [
    *rows(
        "rms_norm",
        (
            "dtype",
            lambda p: T.rms_norm(p.u32(4, 8), p.f32(8), eps=1e-5),
            DTYPE,
            "x",
            "u32|f32 or f16",
        ),
        (
            "gain dtype",
            lambda p: T.rms_norm(p.f32(4, 8), p.f16(8), eps=1e-5),
            DTYPE,
            "gain",
            "f16|f32|cast",
        ),
        (
            "gain shape",
            lambda p: T.rms_norm(p.f32(4, 8), p.f32(7), eps=1e-5),
            SHAPE,
            "gain",
            "[7]|[8]",
        ),
        (
            "eps zero",
            lambda p: T.rms_norm(p.f32(4, 8), p.f32(8), eps=0.0),
            ATTR,
            "eps",
            "0|finite and positive",
        ),
        (
            "eps negative",
            lambda p: T.rms_norm(p.f32(4, 8), p.f32(8), eps=-1e-5),
            ATTR,
            "eps",
            "finite and positive",
        ),
        (
            "eps nan",
            lambda p: T.rms_norm(p.f32(4, 8), p.f32(8), eps=float("nan")),
            ATTR,
            "eps",
            "nan|finite",
        ),
        (
            "eps infinite",
            lambda p: T.rms_norm(p.f32(4, 8), p.f32(8), eps=float("inf")),
            ATTR,
            "eps",
            "inf|finite",
        ),
        (
            "eps rounds to infinity",
            lambda p: T.rms_norm(p.f32(4, 8), p.f32(8), eps=1e60),
            ATTR,
            "eps",
            "inf|finite",
        ),
        (
            "eps rounds to zero",
            lambda p: T.rms_norm(p.f32(4, 8), p.f32(8), eps=1e-60),
            ATTR,
            "eps",
            "0|positive",
        ),
        ("no eps", lambda p: T.rms_norm(p.f32(4, 8), p.f32(8)), ATTR, "eps", "None"),
        ("no gain", lambda p: T.rms_norm(p.f32(4, 8), None, eps=1e-5), ATTR, "gain", "None"),
        ("no x", lambda p: T.rms_norm(None, p.f32(8), eps=1e-5), ATTR, "x", "None"),
        (
            "strided",
            lambda p: T.rms_norm(T.transpose(p.f32(8, 4), 0, 1), p.f32(8), eps=1e-5),
            SHAPE,
            "x",
            "strides|contiguous(x)",
        ),
    ),
    *rows(
        "softmax",
        ("dtype", lambda p: T.softmax(p.f16(4, 8)), DTYPE, "x", "f16|f32|cast(x, f32)"),
        ("axis", lambda p: T.softmax(p.f32(4, 8), axis=0), ATTR, "axis", "0|last"),
        (
            "strided",
            lambda p: T.softmax(T.transpose(p.f32(8, 4), 0, 1)),
            SHAPE,
            "x",
            "strides|contiguous(x)",
        ),
    ),
    *rows(
        "rope",
        (
            "zero",
            lambda p: T.rope(p.f32(4, 8), p.u32(4), rotary_dim=0, base_name=p.fscalar()),
            ATTR,
            "rotary_dim",
            "0|at most 8",
        ),
        (
            "odd",
            lambda p: T.rope(p.f32(4, 8), p.u32(4), rotary_dim=3, base_name=p.fscalar()),
            ATTR,
            "rotary_dim",
            "3|even",
        ),
        (
            "wide",
            lambda p: T.rope(p.f32(4, 8), p.u32(4), rotary_dim=10, base_name=p.fscalar()),
            ATTR,
            "rotary_dim",
            "10|at most 8",
        ),
        (
            "no rotary_dim",
            lambda p: T.rope(p.f32(4, 8), p.u32(4), base_name=p.fscalar()),
            ATTR,
            "rotary_dim",
            "None",
        ),
        (
            "base undeclared",
            lambda p: T.rope(p.f32(4, 8), p.u32(4), rotary_dim=8, base_name="base"),
            ATTR,
            "base_name",
            "'base'|declared",
        ),
        (
            "base kind",
            lambda p: T.rope(p.f32(4, 8), p.u32(4), rotary_dim=8, base_name=p.uscalar()),
            ATTR,
            "base_name",
            "u32|f32",
        ),
        (
            "neither",
            lambda p: T.rope(p.f32(4, 8), p.u32(4), rotary_dim=8),
            ATTR,
            "base_name",
            "None|frequencies",
        ),
        (
            "both",
            lambda p: T.rope(
                p.f32(4, 8), p.u32(4), rotary_dim=8, base_name=p.fscalar(), frequencies=p.f32(4)
            ),
            ATTR,
            "base_name",
            "frequencies|alone",
        ),
        (
            "positions dtype",
            lambda p: T.rope(p.f32(4, 8), p.f32(4), rotary_dim=8, base_name=p.fscalar()),
            DTYPE,
            "positions",
            "f32|u32",
        ),
        (
            "positions count",
            lambda p: T.rope(p.f32(4, 8), p.u32(3), rotary_dim=8, base_name=p.fscalar()),
            SHAPE,
            "positions",
            "3|4",
        ),
        (
            "more positions than rows",
            lambda p: T.rope(p.f32(4, 8), p.u32(8), rotary_dim=8, base_name=p.fscalar()),
            SHAPE,
            "positions",
            "8|4",
        ),
        (
            "pairing",
            lambda p: T.rope(
                p.f32(4, 8), p.u32(4), rotary_dim=8, base_name=p.fscalar(), pairing="both"
            ),
            ATTR,
            "pairing",
            "'both'|'adjacent' or 'halves'",
        ),
        (
            "frequencies shape",
            lambda p: T.rope(p.f32(4, 8), p.u32(4), rotary_dim=8, frequencies=p.f32(8)),
            SHAPE,
            "frequencies",
            "[8]|[4]",
        ),
        (
            "frequencies dtype",
            lambda p: T.rope(p.f32(4, 8), p.u32(4), rotary_dim=8, frequencies=p.f16(4)),
            DTYPE,
            "frequencies",
            "f16|f32",
        ),
        (
            "x dtype",
            lambda p: T.rope(p.f16(4, 8), p.u32(4), rotary_dim=8, base_name=p.fscalar()),
            DTYPE,
            "x",
            "f16|f32|cast",
        ),
        (
            "no positions",
            lambda p: T.rope(p.f32(4, 8), None, rotary_dim=8, base_name=p.fscalar()),
            ATTR,
            "positions",
            "None",
        ),
        (
            "strided",
            lambda p: T.rope(
                T.transpose(p.f32(8, 4), 0, 1), p.u32(4), rotary_dim=8, base_name=p.fscalar()
            ),
            SHAPE,
            "x",
            "strides|contiguous(x)",
        ),
    ),
]
