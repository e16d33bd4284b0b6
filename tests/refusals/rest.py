"""Refusals of declarations, views, states, pairs of dtypes and samplers, clause by clause, beside
those of the other files."""

import accel
from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, rows
from refusals.every import CASTS, DTYPES, dtype_of

KINDS = ("input", "weight", "state")


def declaration_rows(op: str):
    def f(p, shape, name="a"):
        getattr(p.b, op)(name, accel.F32, shape)

    return rows(
        op,
        ("a shape without an axis", lambda p: f(p, []), SHAPE, "shape", "[]|a scalar is [1]"),
        (
            "an extent of 0",
            lambda p: f(p, [3, 0, 2]),
            SHAPE,
            "shape",
            "[3 0 2]|axis 1 is 0|positive",
        ),
        (
            "an extent below 0",
            lambda p: f(p, [3, -7]),
            SHAPE,
            "shape",
            "[3 -7]|axis 1 is -7|positive",
        ),
        (
            "2^63 elements",
            lambda p: f(p, [2**62, 2]),
            SHAPE,
            "shape",
            f"[{2**62} 2]|at most 2^63-1",
        ),
        ("a name of none", lambda p: f(p, [1], ""), ATTR, "name", "''|not be empty"),
        *[
            (
                f"the name of {kind}",
                lambda p, kind=kind: (getattr(p.b, kind)("a", accel.F32, [1]), f(p, [1])),
                ATTR,
                "name",
                f"'a'|new|{kind} 'a'",
            )
            for kind in KINDS
        ],
        (
            "the name of output",
            lambda p: (p.b.output("a", T.silu(p.f32(4))), f(p, [1])),
            ATTR,
            "name",
            "'a'|new|output 'a'",
        ),
        helper=f,
    )


def bundle_rows(op: str, plane: str):
    def f(p, shape, name="w"):
        getattr(p.b, op)(name, shape)

    return rows(
        op,
        ("no axis", lambda p: f(p, []), SHAPE, "shape", "[]|axis"),
        ("extent below 0", lambda p: f(p, [4, -1]), SHAPE, "shape", "axis 1 is -1|positive"),
        ("2^63 elements", lambda p: f(p, [2**62, 2]), SHAPE, "shape", "at most 2^63-1"),
        (
            "taken name",
            lambda p: (p.b.input(f"w.{plane}", accel.F32, [1]), f(p, [4, 32])),
            ATTR,
            "name",
            f"'w.{plane}'|new|input",
        ),
        helper=f,
    )


PORTS = [
    *[row for op in KINDS for row in declaration_rows(op)],
    *bundle_rows("int4", "codes"),
    *bundle_rows("quantized", "quants"),
    *rows(
        "output",
        *[
            (
                f"the name of {kind}",
                lambda p, kind=kind: (
                    getattr(p.b, kind)("o", accel.F32, [4]),
                    p.b.output("o", T.silu(p.f32(4))),
                ),
                ATTR,
                "name",
                f"'o'|new|{kind} 'o'",
            )
            for kind in ("weight", "state")
        ],
        (
            "the name of output",
            lambda p: (p.b.output("o", T.silu(p.f32(4))), p.b.output("o", T.silu(p.f32(4)))),
            ATTR,
            "name",
            "'o'|new|output 'o'",
        ),
        (
            "of another builder",
            lambda p: p.b.output("o", p.other(4)),
            ATTR,
            "t",
            "'other'|'rows'",
        ),
        (
            "a view of a weight",
            lambda p: p.b.output("o", T.slice(p.b.weight("w", accel.F32, [4]), 0, 0, 2)),
            ATTR,
            "t",
            "weight 'w'|computed|copy",
        ),
        (
            "a contiguous input",
            lambda p: p.b.output("o", T.contiguous(p.b.input("x", accel.F32, [4]))),
            ATTR,
            "t",
            "input 'x'|computed|copy",
        ),
        (
            "a view of a read of a state",
            lambda p: p.b.output("o", T.reshape(T.read_state(p.state(accel.F32, 4, 2)), [8])),
            ATTR,
            "t",
            "state 'p1'|computed|owns",
        ),
        (
            "a read of a written state",
            lambda p: p.b.output(
                "o",
                T.read_state(T.scatter_rows(p.state(accel.F32, 4, 2), p.f32(1, 2), p.u32(1))),
            ),
            ATTR,
            "t",
            "state 'p1'|owns",
        ),
    ),
]

VIEWS = [
    *rows(
        "reshape",
        ("extent 0", lambda p: T.reshape(p.f32(4, 8), [0]), SHAPE, "shape", "[0]|axis 0 is 0"),
        (
            "2^63 elements",
            lambda p: T.reshape(p.f32(4), [2**62, 4]),
            SHAPE,
            "shape",
            f"[{2**62} 4]|2^63-1",
        ),
        (
            "a slice with an offset",
            lambda p: T.reshape(T.slice(p.f32(4, 8), 0, 1, 3), [16]),
            SHAPE,
            "x",
            "f32[2 8]|offset 8|contiguous(x)",
        ),
        (
            "a broadcast",
            lambda p: T.reshape(T.broadcast(p.f32(8), [4, 8]), [32]),
            SHAPE,
            "x",
            "f32[4 8]|strides [0 1]|contiguous(x)",
        ),
    ),
    *rows(
        "permute",
        ("too many", lambda p: T.permute(p.f32(4, 8), [0, 1, 1]), ATTR, "axes", "[0 1 1]|2|[4 8]"),
        ("none", lambda p: T.permute(p.f32(4, 8), []), ATTR, "axes", "[]|2|[4 8]"),
        ("below", lambda p: T.permute(p.f32(4, 8), [-3, 0]), ATTR, "axes", "-3|[-2, 1]|[4 8]"),
        ("twice", lambda p: T.permute(p.f32(4, 8), [0, 0]), ATTR, "axes", "[0 0]|once"),
    ),
    *rows(
        "transpose",
        ("axis_a below", lambda p: T.transpose(p.f32(4, 8), -3, 0), ATTR, "axis_a", "-3|[-2, 1]"),
        ("axis_b above", lambda p: T.transpose(p.f32(4, 8), 0, 2), ATTR, "axis_b", "2|[-2, 1]"),
    ),
    *rows(
        "slice",
        ("axis below", lambda p: T.slice(p.f32(4, 8), -3, 0, 1), ATTR, "axis", "-3|[-2, 1]|[4 8]"),
        ("end before start", lambda p: T.slice(p.f32(4, 8), 1, 5, 3), ATTR, "end", "3|above|5"),
        ("end below 0", lambda p: T.slice(p.f32(4, 8), 1, 0, -1), ATTR, "end", "-1|above|0"),
        (
            "end of a view",
            lambda p: T.slice(T.slice(p.f32(4, 8), 0, 0, 2), -2, 0, 3),
            ATTR,
            "end",
            "3|at most 2|[2 8]",
        ),
    ),
    *rows(
        "broadcast",
        (
            "extent below 0",
            lambda p: T.broadcast(p.f32(8), [-4, 8]),
            SHAPE,
            "shape",
            "[-4 8]|axis 0 is -4|positive",
        ),
        (
            "a new axis in place of an old one",
            lambda p: T.broadcast(p.f32(4, 8), [8, 4, 1]),
            SHAPE,
            "shape",
            "[8 4 1]|axis 1|[4 8]",
        ),
        ("no axis", lambda p: T.broadcast(p.f32(8), []), SHAPE, "shape", "[]|[8]"),
        (
            "2^63 elements",
            lambda p: T.broadcast(p.f32(2, 1), [2, 2**62]),
            SHAPE,
            "shape",
            f"[2 {2**62}]|2^63-1",
        ),
    ),
    *rows(
        "contiguous",
        (
            "rank 9 of a broadcast",
            lambda p: T.contiguous(T.broadcast(p.u32(2), [3, 1, 1, 1, 1, 1, 1, 1, 2])),
            SHAPE,
            "x",
            "[3 1 1 1 1 1 1 1 2]|rank 8 or less",
        ),
    ),
]


def binary_rows(op: str, x: str = "x", y: str = "y"):
    f = getattr(T, op)
    return rows(
        op,
        *[
            (
                f"{a} beside {b}",
                lambda p, a=a, b=b: f(
                    p.b.input("x", dtype_of(a), [4, 8]), p.b.input("y", dtype_of(b), [4, 8])
                ),
                DTYPE,
                y,
                f"{b}|{a}, as {x} is",
            )
            for a in ("f32", "f16")
            for b in DTYPES
            if a != b
        ],
        (
            f"{y} turned",
            lambda p: f(p.f32(4, 8), T.transpose(p.f32(8, 4), 0, 1)),
            SHAPE,
            y,
            f"f32[4 8]|strides [1 4]|offset 0|[4 8]|contiguous({y})",
        ),
        (
            "halves of rows",
            lambda p: f(p.f32(4, 8), half_rows(p, 4, 8)),
            SHAPE,
            y,
            f"f32[4 8]|strides [16 1]|offset 8|[4 8]|contiguous({y})",
        ),
    )


def half_rows(p, r, c):
    """The second half of each row of twice the width."""
    return T.slice(p.f32(r, 2 * c), 1, c, 2 * c)


def column_rows(op: str):
    f = getattr(T, op)
    return rows(
        op,
        (
            "a column of x",
            lambda p: f(p.f32(4, 1), p.f32(4, 8)),
            SHAPE,
            "x",
            "f32[4 1]|strides [1 1]|offset 0|result [4 8]|contiguous(broadcast(x, [4, 8]))",
        ),
        (
            "a plane in the middle",
            lambda p: f(p.f32(2, 3, 4), p.f32(2, 1, 4)),
            SHAPE,
            "y",
            "f32[2 1 4]|strides [4 4 1]|[2 3 4]|contiguous(broadcast(y, [2, 3, 4]))",
        ),
        ("ranks", lambda p: f(p.f32(8), p.f32(2, 4)), SHAPE, "y", "[2 4]|[8]"),
    )


def cast_row(a: str, b: str):
    words = f"{a}|{b}|pairs" if a != "bf16" else f"bf16|{b}|cast(cast(x, f32), {b})|two steps"
    return (
        f"{a} to {b}, by name",
        lambda p: T.cast(p.b.input("x", dtype_of(a), [4]), dtype_of(b)),
        DTYPE,
        "x",
        words,
    )


ELEMENTWISE = [
    *[row for op in ("add", "sub", "mul") for row in (*binary_rows(op), *column_rows(op))],
    *binary_rows("swiglu", "gate", "value"),
    *rows(
        "swiglu",
        (
            "a row of value",
            lambda p: T.swiglu(p.f32(4, 8), p.f32(1, 8)),
            SHAPE,
            "value",
            "[1 8]|[4 8]",
        ),
        (
            "gate turned",
            lambda p: T.swiglu(T.transpose(p.f32(8, 4), 0, 1), p.f32(4, 8)),
            SHAPE,
            "gate",
            "f32[4 8]|strides [1 4]|contiguous(gate)",
        ),
    ),
    *rows(
        "cast",
        *[cast_row(a, b) for a in DTYPES for b in DTYPES if a != b and (a, b) not in CASTS],
        (
            "a column",
            lambda p: T.cast(T.broadcast(p.bf16(4, 1), [4, 8]), accel.F32),
            SHAPE,
            "x",
            "bf16[4 8]|strides [1 0]|offset 0|contiguous(x)",
        ),
    ),
    *rows(
        "scale",
        ("an empty name", lambda p: T.scale(p.f32(4), ""), ATTR, "scalar_name", "''|f32"),
        ("the name of a port", lambda p: T.scale(p.f32(4), "p1"), ATTR, "scalar_name", "'p1'|f32"),
    ),
]

PAIRS = {(x, w) for x in ("f32", "f16") for w in ("f16", "bf16")} | {("f32", "f32")}


def pair_rows(op: str):
    def f(p, x, w):
        args = (p.b.input("x", dtype_of(x), [2, 8]), p.b.input("w", dtype_of(w), [8, 4]))
        return getattr(T, op)(*args)

    def operand(x):
        return "w" if x in ("f32", "f16") else "x"

    return rows(
        op,
        *[
            (
                f"{x} by {w}, as a pair",
                lambda p, x=x, w=w: f(p, x, w),
                DTYPE,
                operand(x),
                w if operand(x) == "w" else x,
            )
            for x in DTYPES
            for w in DTYPES
            if (x, w) not in PAIRS
        ],
        helper=f,
    )


def vast(p, dtype=accel.F32):
    return p.b.input(p.name(), dtype, [2**40, 1])


PRODUCTS = [
    *[row for op in ("matmul", "linear") for row in pair_rows(op)],
    *rows(
        "matmul",
        ("x rank 3", lambda p: T.matmul(p.f32(2, 3, 8), p.f32(8, 4)), SHAPE, "x", "[2 3 8]|rank 2"),
        ("w rank 3", lambda p: T.matmul(p.f32(2, 8), p.f32(1, 8, 4)), SHAPE, "w", "[1 8 4]|rank 2"),
        (
            "2^80 elements",
            lambda p: T.matmul(vast(p), vast(p), w_order="nk"),
            SHAPE,
            "result",
            f"[{2**40} {2**40}]|at most 2^63-1",
        ),
    ),
    *rows(
        "linear",
        (
            "bias rank",
            lambda p: T.linear(p.f32(2, 8), p.f32(8, 4), p.f32(1, 4)),
            SHAPE,
            "bias",
            "[1 4]|[4]",
        ),
    ),
    *rows(
        "gather_rows",
        ("rank 3", lambda p: T.gather_rows(p.f32(8, 2, 2), p.u32(2)), SHAPE, "table", "rank 2"),
        (
            "2^80 elements",
            lambda p: T.gather_rows(p.f32(1, 2**40), p.u32(2**40)),
            SHAPE,
            "result",
            f"[{2**40} {2**40}]|at most 2^63-1",
        ),
    ),
    *rows(
        "int4_matvec",
        ("rank 3", lambda p: T.int4_matvec(p.f32(1, 1, 32), p.int4(128)), SHAPE, "a", "rank 1"),
        (
            "negative weights",
            lambda p: T.int4_matvec(p.f32(32), p.int4(-128)),
            SHAPE,
            "w.weights",
            "-128|positive",
        ),
    ),
    *rows(
        "int4_matmul",
        ("rank 3", lambda p: T.int4_matmul(p.f32(1, 2, 32), p.int4(128)), SHAPE, "a", "rank 2"),
        (
            "group of none",
            lambda p: T.int4_matmul(
                p.f32(2, 32), T.Int4(p.u32(16), p.f16(1), p.f16(1), 128, group=0)
            ),
            ATTR,
            "w.group",
            "0|32, 64 or 128",
        ),
    ),
    *rows(
        "quant_matmul",
        (
            "K in nk",
            lambda p: T.quant_matmul(p.f32(2, 32), p.quantized(32, 4), w_order="nk"),
            SHAPE,
            "w.quants",
            "[32 4]|[N 32]|'nk'|[2 32]",
        ),
        (
            "no quants",
            lambda p: T.quant_matmul(p.f32(2, 32), T.Quantized(None, p.f16(4))),
            ATTR,
            "w.quants",
            "None",
        ),
    ),
]


def stale_view(p):
    """A reshaped read of a state that a later write has superseded."""
    state = p.state(accel.F32, 4, 2)
    old = T.reshape(T.read_state(state), [8])
    T.scatter_rows(state, p.f32(1, 2), p.u32(1))
    return old


def stale_by(p, writes: int):
    state = p.state(accel.F32, 4, 2)
    newest = state
    for _ in range(writes):
        newest = T.scatter_rows(newest, p.f32(1, 2), p.u32(1))
    return state


def layered(p):
    """A state of two layers of [4 2], and its second layer after a write to it."""
    state = p.state(accel.F32, 2, 4, 2)
    return state, T.scatter_rows(T.layer_state(state, 1), p.f32(1, 2), p.u32(1))


STATES = [
    *rows(
        "silu",
        ("a stale read", lambda p: T.silu(stale_view(p)), ATTR, "x", "version 0|1 write ago|1"),
    ),
    *rows(
        "gather_rows",
        (
            "a stale table",
            lambda p: T.gather_rows(T.reshape(stale_view(p), [4, 2]), p.u32(1)),
            ATTR,
            "table",
            "version 0|1 write ago",
        ),
    ),
    *rows(
        "read_state",
        (
            "three writes ago",
            lambda p: T.read_state(stale_by(p, 3)),
            ATTR,
            "state",
            "version 0|'p1'|3 writes ago|version 3",
        ),
        (
            "the whole after a write to a layer",
            lambda p: T.read_state(layered(p)[0]),
            ATTR,
            "state",
            "version 0|1 write ago|version 1",
        ),
        (
            "a layer of the declared handle after a write to it",
            lambda p: T.read_state(T.layer_state(layered(p)[0], 1)),
            ATTR,
            "state",
            "version 0|1 write ago|version 1",
        ),
    ),
    *rows(
        "scatter_rows",
        (
            "a layer of the declared handle after a write to it",
            lambda p: T.scatter_rows(T.layer_state(layered(p)[0], 1), p.f32(1, 2), p.u32(1)),
            ATTR,
            "state",
            "version 0|1 write ago|version 1",
        ),
        (
            "ids of more rows",
            lambda p: T.scatter_rows(p.state(accel.F32, 4, 6), p.f32(2, 2, 3), p.u32(3, 2)),
            SHAPE,
            "rows",
            "[2 2 3]|6 rows of 6|[3 2]",
        ),
    ),
    *rows(
        "layer_state",
        (
            "of a layer, beyond",
            lambda p: T.layer_state(T.layer_state(p.state(accel.F32, 2, 3, 4), 1), 3),
            ATTR,
            "layer",
            "3|[0, 2]|[3 4]",
        ),
        (
            "of the last axis",
            lambda p: T.layer_state(T.layer_state(p.state(accel.F32, 2, 3), 1), 0),
            SHAPE,
            "state",
            "[3]|axis",
        ),
    ),
]


def normal(p, **kw):
    return T.rope(p.f32(4, 8), p.u32(4), **{"rotary_dim": 8, **kw})


NAN, INF = float("nan"), float("inf")

ROWS = [
    *rows(
        "rms_norm",
        (
            "gain rank",
            lambda p: T.rms_norm(p.f32(4, 8), p.f32(1, 8), eps=1e-5),
            SHAPE,
            "gain",
            "[1 8]|[8]",
        ),
        (
            "eps -inf",
            lambda p: T.rms_norm(p.f32(4, 8), p.f32(8), eps=-INF),
            ATTR,
            "eps",
            "-inf|finite",
        ),
    ),
    *rows(
        "l2_norm",
        ("eps negative", lambda p: T.l2_norm(p.f32(4, 8), eps=-1), ATTR, "eps", "-1|positive"),
        ("eps rounds to 0", lambda p: T.l2_norm(p.f32(4, 8), eps=1e-60), ATTR, "eps", "0|positive"),
    ),
    *rows(
        "softmax",
        ("axis beyond", lambda p: T.softmax(p.f32(4, 8), axis=2), ATTR, "axis", "2|last|1 or -1"),
        ("axis -2", lambda p: T.softmax(p.f32(4, 8), axis=-2), ATTR, "axis", "-2|last"),
    ),
    *rows(
        "rope",
        (
            "negative",
            lambda p: normal(p, rotary_dim=-2, base_name=p.fscalar()),
            ATTR,
            "rotary_dim",
            "-2|positive",
        ),
        (
            "frequencies of a narrower part",
            lambda p: normal(p, rotary_dim=4, frequencies=p.f32(4)),
            SHAPE,
            "frequencies",
            "[4]|[2]",
        ),
        ("empty base", lambda p: normal(p, base_name=""), ATTR, "base_name", "''|f32"),
        helper=normal,
    ),
]

SAMPLERS = [
    *rows(
        "top_k_mask",
        (
            "above 2^32",
            lambda p: T.top_k_mask(p.f32(8), 2**32 + 1, exact=True),
            ATTR,
            "k",
            f"{2**32 + 1}|8",
        ),
    ),
    *rows(
        "top_p_mask",
        ("rounds to 0", lambda p: T.top_p_mask(p.f32(8), 1e-60), ATTR, "p", "0"),
        ("infinite", lambda p: T.top_p_mask(p.f32(8), INF), ATTR, "p", "inf"),
        (
            "one bit above 1",
            lambda p: T.top_p_mask(p.f32(8), 1 + 2**-23),
            ATTR,
            "p",
            "1.00000012",
        ),
        ("exact, 0", lambda p: T.top_p_mask(p.f32(8), 0.0, exact=True), ATTR, "p", "0"),
    ),
    *rows(
        "sample_categorical",
        (
            "more draws than rows",
            lambda p: T.sample_categorical(p.f32(8), p.f32(8)),
            SHAPE,
            "draws",
            "8|1",
        ),
    ),
    *rows(
        "top_k", ("above 2^32", lambda p: T.top_k(p.f32(8), 2**32 + 1), ATTR, "k", f"{2**32 + 1}|8")
    ),
]


def declare(p, prefix="s", **kw):
    T.declare_sampling_scalars(p.b, T.SamplingOptions(**kw), prefix)


OPTIONS = {
    "temperature nan": ({"temperature": NAN}, "temperature", "nan|finite"),
    "temperature -inf": ({"temperature": -INF}, "temperature", "-inf|finite"),
    "temperature beyond f32": ({"temperature": 1e39}, "temperature", "1e+39|finite"),
    "temperature below 0": ({"temperature": -0.5}, "temperature", "-0.5|0 or more"),
    "temperature below the least": ({"temperature": 9.9e-4}, "temperature", "0.00099|0 for greedy"),
    "temperature 1e-60": ({"temperature": 1e-60}, "temperature", "1e-60|0 for greedy"),
    "top_k below 0": ({"top_k": -3}, "top_k", "-3|0 or more"),
    "top_k above 128": ({"top_k": 129}, "top_k", "129|128|exact"),
    "top_p nan": ({"top_p": NAN}, "top_p", "nan|[0, 1]"),
    "top_p below 0": ({"top_p": -0.1}, "top_p", "-0.1|[0, 1]"),
    "top_p above 1": ({"top_p": 1.25}, "top_p", "1.25|[0, 1]"),
    **{
        f"{name} {value}": ({name: value}, name, f"{value}|finite")
        for name in ("repetition", "presence", "frequency")
        for value in (NAN, INF, -INF)
    },
    "repetition below 0": ({"repetition": -1.5}, "repetition", "-1.5|0 or more"),
    # The order of the list, where several are wrong.
    "temperature before top_k": ({"temperature": NAN, "top_k": -1}, "temperature", "nan"),
    "top_k before top_p": ({"top_k": -1, "top_p": 2}, "top_k", "-1"),
    "top_p before presence": ({"top_p": 2, "presence": NAN}, "top_p", "2|[0, 1]"),
    "frequency before a repetition below 0": (
        {"frequency": NAN, "repetition": -1},
        "frequency",
        "nan",
    ),
}

DECLARED = rows(
    "declare_sampling_scalars",
    *[
        (name, lambda p, kw=kw: declare(p, **kw), ATTR, operand, words)
        for name, (kw, operand, words) in OPTIONS.items()
    ],
    ("empty prefix", lambda p: declare(p, "", temperature=1), ATTR, "prefix", "''|name"),
    helper=declare,
)

REST = [
    *PORTS,
    *VIEWS,
    *ELEMENTWISE,
    *PRODUCTS,
    *STATES,
    *ROWS,
    *SAMPLERS,
    *DECLARED,
]
