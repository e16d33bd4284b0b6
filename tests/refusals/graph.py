"""Refusals of declarations, views and states."""

import accel
from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, rows

DECLARATIONS = [
    *rows(
        "input",
        ("empty name", lambda p: p.b.input("", accel.F32, [1]), ATTR, "name", "''|empty"),
        (
            "taken name",
            lambda p: (p.b.weight("a", accel.F32, [1]), p.b.input("a", accel.F32, [1])),
            ATTR,
            "name",
            "'a'|weight",
        ),
        ("no axis", lambda p: p.b.input("a", accel.F32, []), SHAPE, "shape", "[]|a scalar is [1]"),
        (
            "zero extent",
            lambda p: p.b.input("a", accel.F32, [4, 0]),
            SHAPE,
            "shape",
            "[4 0]|axis 1 is 0|positive",
        ),
        (
            "negative extent",
            lambda p: p.b.input("a", accel.F32, [-2, 3]),
            SHAPE,
            "shape",
            "axis 0 is -2|positive",
        ),
        (
            "too many elements",
            lambda p: p.b.input("a", accel.F32, [2**40, 2**40]),
            SHAPE,
            "shape",
            "2^63-1",
        ),
    ),
    *rows(
        "weight",
        ("empty name", lambda p: p.b.weight("", accel.F32, [1]), ATTR, "name", "''|empty"),
        (
            "taken name",
            lambda p: (p.b.input("a", accel.F32, [1]), p.b.weight("a", accel.F32, [1])),
            ATTR,
            "name",
            "'a'|input",
        ),
        ("zero extent", lambda p: p.b.weight("a", accel.F32, [0]), SHAPE, "shape", "axis 0 is 0"),
    ),
    *rows(
        "state",
        ("empty name", lambda p: p.b.state("", accel.F32, [1]), ATTR, "name", "''|empty"),
        (
            "taken name",
            lambda p: (p.b.input("a", accel.F32, [1]), p.b.state("a", accel.F32, [1])),
            ATTR,
            "name",
            "'a'|input",
        ),
        ("no axis", lambda p: p.b.state("a", accel.F32, []), SHAPE, "shape", "a scalar is [1]"),
    ),
    *rows(
        "scalar",
        ("empty name", lambda p: p.b.scalar("", T.ScalarKind.F32), ATTR, "name", "''|empty"),
        (
            "twice",
            lambda p: (p.b.scalar("s", T.ScalarKind.F32), p.b.scalar("s", T.ScalarKind.U32)),
            ATTR,
            "name",
            "'s'|new",
        ),
    ),
    *rows(
        "int4",
        ("group", lambda p: p.b.int4("w", [4, 32], group=16), ATTR, "group", "16|32, 64 or 128"),
        (
            "dtype",
            lambda p: p.b.int4("w", [4, 32], dtype=accel.U32),
            DTYPE,
            "dtype",
            "u32|f16, bf16 or f32",
        ),
        ("empty name", lambda p: p.b.int4("", [4, 32]), ATTR, "name", "empty"),
        ("extent", lambda p: p.b.int4("w", [4, 0]), SHAPE, "shape", "axis 1 is 0"),
    ),
    *rows(
        "quantized",
        ("empty name", lambda p: p.b.quantized("", [4, 32]), ATTR, "name", "empty"),
        ("extent", lambda p: p.b.quantized("w", [0, 4]), SHAPE, "shape", "axis 0 is 0"),
    ),
    *rows(
        "output",
        ("none", lambda p: p.b.output("o", None), ATTR, "t", "None"),
        ("empty name", lambda p: p.b.output("", T.silu(p.f32(4))), ATTR, "name", "empty"),
        (
            "taken name",
            lambda p: (p.b.input("o", accel.F32, [4]), p.b.output("o", T.silu(p.f32(4)))),
            ATTR,
            "name",
            "'o'|input",
        ),
        ("an input", lambda p: p.b.output("o", p.f32(4)), ATTR, "t", "input|copy"),
        (
            "a view of an input",
            lambda p: p.b.output("o", T.reshape(p.f32(4), [2, 2])),
            ATTR,
            "t",
            "input|copy",
        ),
        (
            "a weight",
            lambda p: p.b.output("o", p.b.weight("w", accel.F32, [4])),
            ATTR,
            "t",
            "weight 'w'",
        ),
        (
            "a read of a state",
            lambda p: p.b.output("o", T.read_state(p.state(accel.F32, 4, 2))),
            ATTR,
            "t",
            "state|owns",
        ),
        (
            "a transpose",
            lambda p: p.b.output("o", T.transpose(T.silu(p.f32(4, 8)), 0, 1)),
            ATTR,
            "t",
            "strides|contiguous(",
        ),
        (
            "a broadcast",
            lambda p: p.b.output("o", T.broadcast(T.silu(p.f32(1, 8)), [4, 8])),
            ATTR,
            "t",
            "strides|contiguous(",
        ),
        (
            "a slice with an offset",
            lambda p: p.b.output("o", T.slice(T.silu(p.f32(4, 8)), 0, 1, 3)),
            ATTR,
            "t",
            "offset 8|contiguous(",
        ),
    ),
]

VIEWS = [
    *rows(
        "reshape",
        ("count", lambda p: T.reshape(p.f32(4, 8), [5, 6]), SHAPE, "shape", "[5 6]|30|32|[4 8]"),
        (
            "extent",
            lambda p: T.reshape(p.f32(4, 8), [-1, 32]),
            SHAPE,
            "shape",
            "axis 0 is -1|positive",
        ),
        ("no axis", lambda p: T.reshape(p.f32(1), []), SHAPE, "shape", "[]"),
        (
            "strided",
            lambda p: T.reshape(T.transpose(p.f32(4, 8), 0, 1), [32]),
            SHAPE,
            "x",
            "[8 4]|strides|contiguous(x)",
        ),
    ),
    *rows(
        "permute",
        ("count", lambda p: T.permute(p.f32(4, 8), [0]), ATTR, "axes", "[0]|2|[4 8]"),
        ("out of range", lambda p: T.permute(p.f32(4, 8), [0, 2]), ATTR, "axes", "2|[-2, 1]"),
        ("repeated", lambda p: T.permute(p.f32(4, 8), [1, -1]), ATTR, "axes", "[1 -1]|once"),
    ),
    *rows(
        "transpose",
        ("first axis", lambda p: T.transpose(p.f32(4, 8), 2, 0), ATTR, "axis_a", "2|[-2, 1]"),
        ("second axis", lambda p: T.transpose(p.f32(4, 8), 0, -3), ATTR, "axis_b", "-3|[-2, 1]"),
    ),
    *rows(
        "slice",
        ("axis", lambda p: T.slice(p.f32(4, 8), 2, 0, 1), ATTR, "axis", "2|[-2, 1]"),
        ("start", lambda p: T.slice(p.f32(4, 8), 0, -1, 2), ATTR, "start", "-1|[4 8]"),
        ("empty", lambda p: T.slice(p.f32(4, 8), 0, 2, 2), ATTR, "end", "2"),
        ("end", lambda p: T.slice(p.f32(4, 8), 0, 2, 5), ATTR, "end", "5|4"),
    ),
    *rows(
        "broadcast",
        ("rank", lambda p: T.broadcast(p.f32(4, 8), [8]), SHAPE, "shape", "[8]|[4 8]"),
        (
            "extent changes",
            lambda p: T.broadcast(p.f32(4, 8), [4, 16]),
            SHAPE,
            "shape",
            "[4 16]|[4 8]",
        ),
        (
            "target",
            lambda p: T.broadcast(p.f32(4, 1), [4, 0]),
            SHAPE,
            "shape",
            "axis 1 is 0|positive",
        ),
    ),
    *rows(
        "contiguous",
        (
            "rank 9",
            lambda p: T.contiguous(T.transpose(p.f32(1, 1, 1, 1, 1, 1, 1, 2, 3), 7, 8)),
            SHAPE,
            "x",
            "8",
        ),
    ),
]

STATES = [
    *rows(
        "read_state",
        (
            "stale",
            lambda p: T.read_state(p.stale(accel.F32, 4, 2)),
            ATTR,
            "state",
            "version 0|1 write ago|version 1",
        ),
    ),
    *rows(
        "layer_state",
        (
            "beyond",
            lambda p: T.layer_state(p.state(accel.F32, 2, 4, 3), 2),
            ATTR,
            "layer",
            "2|[0, 1]|[2 4 3]",
        ),
        (
            "negative",
            lambda p: T.layer_state(p.state(accel.F32, 2, 4, 3), -1),
            ATTR,
            "layer",
            "-1|[0, 1]",
        ),
        (
            "nothing left",
            lambda p: T.layer_state(p.state(accel.F32, 4), 0),
            SHAPE,
            "state",
            "[4]|layer",
        ),
    ),
    *rows(
        "scatter_rows",
        (
            "state dtype",
            lambda p: T.scatter_rows(p.state(accel.I8, 4, 2), p.i8(1, 2), p.u32(1)),
            DTYPE,
            "state",
            "i8|f32, f16, bf16 or u32",
        ),
        (
            "rows dtype, cast",
            lambda p: T.scatter_rows(p.state(accel.F16, 4, 2), p.f32(1, 2), p.u32(1)),
            DTYPE,
            "rows",
            "f32|f16|cast",
        ),
        (
            "rows dtype, no cast",
            lambda p: T.scatter_rows(p.state(accel.U32, 4, 2), p.f32(1, 2), p.u32(1)),
            DTYPE,
            "rows",
            "f32|u32",
        ),
        (
            "ids dtype",
            lambda p: T.scatter_rows(
                p.state(accel.F32, 4, 2), p.f32(1, 2), p.b.input("i", accel.I32, [1])
            ),
            DTYPE,
            "ids",
            "i32|u32",
        ),
        (
            "width",
            lambda p: T.scatter_rows(p.state(accel.F32, 4, 2, 3), p.f32(4, 4), p.u32(4)),
            SHAPE,
            "rows",
            "[4 4]|6|[4 2 3]",
        ),
        (
            "count",
            lambda p: T.scatter_rows(p.state(accel.F32, 4, 6), p.f32(3, 6), p.u32(2)),
            SHAPE,
            "rows",
            "[3 6]|2 rows of 6",
        ),
        (
            "stale",
            lambda p: T.scatter_rows(p.stale(accel.F32, 4, 2), p.f32(1, 2), p.u32(1)),
            ATTR,
            "state",
            "version 0|1 write ago|version 1",
        ),
        (
            "strided rows",
            lambda p: T.scatter_rows(
                p.state(accel.F32, 4, 2), T.transpose(p.f32(2, 3), 0, 1), p.u32(3)
            ),
            SHAPE,
            "rows",
            "strides|contiguous(rows)",
        ),
        ("no state", lambda p: T.scatter_rows(None, p.f32(1, 2), p.u32(1)), ATTR, "state", "None"),
        (
            "no rows",
            lambda p: T.scatter_rows(p.state(accel.F32, 4, 2), None, p.u32(1)),
            ATTR,
            "rows",
            "None",
        ),
        (
            "no ids",
            lambda p: T.scatter_rows(p.state(accel.F32, 4, 2), p.f32(1, 2), None),
            ATTR,
            "ids",
            "None",
        ),
    ),
]
