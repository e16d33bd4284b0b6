"""A call with several mistakes records the first in the order of its list (CONTRACT 5.3).

A list holds one operator's mistakes in that order; each two of them that can be made in one call
are made, and the earlier one must be what is recorded.
"""

from typing import NamedTuple

import accel
from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, Row
from refusals.every import SPECS, call


class Mistake(NamedTuple):
    """What replaces an operand or option, and what is refused by it."""

    name: str
    replaces: str
    by: object  # Ports -> value
    error: type
    operand: str
    words: str


def product(p, **given):
    o = {"x": p.f32(2, 8), "w": p.f32(8, 4), "bias": None, **given}
    return T.linear(o["x"], o["w"], o["bias"])


def int4(op: str, *shape):
    def f(p, a=None, weights=128, group=128, **planes):
        given = {"codes": p.u32(16), "scales": p.f16(1), "zeros": p.f16(1), **planes}
        a = p.f32(*shape) if a is None else a
        return getattr(T, op)(a, T.Int4(**given, weights=weights, group=group))

    return f


def group(p, **given):
    return call(p, "grouped_matmul", **given)


def attend(p, **given):
    options = {
        "q": lambda: p.f32(2, 1, 4, 8),
        "k": lambda: p.state(accel.F32, 16, 2, 8),
        "v": lambda: p.state(accel.F32, 16, 2, 8),
        "lengths": lambda: p.u32(2),
        "scale_name": p.fscalar,
        "pages": lambda: p.u32(2, 4),
        "block": lambda: 4,
    }
    o = {**{n: f() for n, f in options.items() if n not in given}, **given}
    return T.attention(o.pop("q"), o.pop("k"), o.pop("v"), **o)


def linear_attention(p, **given):
    return call(p, "linear_attention", **given)


def scatter(p, **given):
    return call(p, "scatter_rows", **given)


def rotate(p, **given):
    o = {"positions": p.u32(4), "rotary_dim": 4, **given}
    base = o["base_name"] if "base_name" in o else p.fscalar()
    return T.rope(p.f32(4, 8), o["positions"], rotary_dim=o["rotary_dim"], base_name=base)


def norm(p, **given):
    o = {"x": p.f32(4, 8), "gain": p.f32(8), "eps": 1e-5, **given}
    return T.rms_norm(o["x"], o["gain"], eps=o["eps"])


PAGES = (
    Mistake("pages dtype", "pages", lambda p: p.f32(2, 4), DTYPE, "pages", "f32|u32"),
    Mistake("pages shape", "pages", lambda p: p.u32(3, 4), SHAPE, "pages", "[3 4]|[2, "),
    Mistake("block", "block", lambda p: 0, ATTR, "block", "0|positive"),
    Mistake("base", "base_name", lambda p: p.uscalar(), ATTR, "base_name", "None|batched"),
    Mistake("q axis 1", "q", lambda p: p.f32(2, 3, 4, 8), SHAPE, "q", "[2 3 4 8]|[B, 1, "),
    Mistake(
        "extents",
        "query_extents",
        lambda p: p.u32(2),
        SHAPE,
        "query_extents",
        "u32[2]|[2 1 4 8]",
    ),
)

LISTS = {
    "scatter_rows": (
        scatter,
        Mistake("state dtype", "state", lambda p: p.state(accel.I8, 4, 2), DTYPE, "state", "i8"),
        Mistake("rows dtype", "rows", lambda p: p.u32(3, 2), DTYPE, "rows", "u32|f32"),
        Mistake("ids dtype", "ids", lambda p: p.f32(3), DTYPE, "ids", "f32|u32"),
        Mistake("width", "rows", lambda p: p.f32(3, 3), SHAPE, "rows", "[3 3]|2"),
        Mistake("count", "ids", lambda p: p.u32(5), SHAPE, "rows", "[3 2]|5 rows of 2"),
        Mistake("stale", "state", lambda p: p.stale(accel.F32, 4, 2), ATTR, "state", "version 0"),
    ),
    "rms_norm": (
        norm,
        Mistake("x dtype", "x", lambda p: p.u32(4, 8), DTYPE, "x", "u32|f32"),
        Mistake("gain", "gain", lambda p: p.f32(7), SHAPE, "gain", "[7]|[8]"),
        Mistake("eps", "eps", lambda p: 0.0, ATTR, "eps", "0|positive"),
    ),
    "linear": (
        product,
        Mistake("x rank", "x", lambda p: p.f32(8), SHAPE, "x", "[8]|rank 2"),
        Mistake("w rank", "w", lambda p: p.f32(8), SHAPE, "w", "[8]|rank 2"),
        Mistake("K", "w", lambda p: p.f32(7, 4), SHAPE, "w", "[7 4]|[2 8]"),
        Mistake("pair", "x", lambda p: p.f16(2, 8), DTYPE, "w", "f32|wider"),
        Mistake("bias", "bias", lambda p: p.f32(5), SHAPE, "bias", "[5]|[4]"),
    ),
    **{
        op: (
            int4(op, *shape),
            Mistake("codes missing", "codes", lambda p: None, ATTR, "w.codes", "None"),
            Mistake("codes dtype", "codes", lambda p: p.f32(16), DTYPE, "w.codes", "f32|u32"),
            Mistake("scales dtype", "scales", lambda p: p.u32(1), DTYPE, "w.scales", "u32|f16"),
            Mistake("zeros dtype", "zeros", lambda p: p.f32(1), DTYPE, "w.zeros", "f32|f16"),
            Mistake("weights", "weights", lambda p: 0, SHAPE, "w.weights", "0|positive"),
            Mistake("codes count", "codes", lambda p: p.u32(17), SHAPE, "w.codes", "17|16"),
            Mistake("scales count", "scales", lambda p: p.f16(2), SHAPE, "w.scales", "2|1"),
            Mistake("zeros count", "zeros", lambda p: p.f16(2), SHAPE, "w.zeros", "2|1"),
            Mistake("a dtype", "a", lambda p, s=shape: p.f16(*s), DTYPE, "a", "f16|f32"),
            Mistake("K", "a", lambda p: p.f32(3, 3, 30), SHAPE, "w.weights", "128|30"),
        )
        for op, shape in (("int4_matvec", (32,)), ("int4_matmul", (2, 32)))
    },
    "grouped_matmul": (
        group,
        Mistake("counts dtype", "counts", lambda p: p.f32(2), DTYPE, "counts", "f32|u32"),
        Mistake("counts entries", "counts", lambda p: p.u32(3), SHAPE, "counts", "[3]|[2]"),
        Mistake("x dtype", "x", lambda p: p.f16(3, 8), DTYPE, "x", "f16|f32"),
        Mistake("x rank", "x", lambda p: p.f32(8), SHAPE, "x", "[8]|rank 2"),
        Mistake("K", "w", lambda p: p.f32(2, 7, 4), SHAPE, "w", "[2 7 4]|[E 8 N]"),
    ),
    "attention": (
        attend,
        Mistake("q dtype", "q", lambda p: p.f16(2, 1, 4, 8), DTYPE, "q", "f16|f32"),
        Mistake("q rank", "q", lambda p: p.f32(8), SHAPE, "q", "[8]"),
        Mistake(
            "q strided",
            "q",
            lambda p: T.transpose(p.f32(2, 1, 8, 4), 2, 3),
            SHAPE,
            "q",
            "strides|contiguous(q)",
        ),
        Mistake("v dtype", "v", lambda p: p.state(accel.F16, 16, 2, 8), DTYPE, "v", "f16|f32"),
        Mistake(
            "v shape", "v", lambda p: p.state(accel.F32, 9, 2, 8), SHAPE, "v", "[9 2 8]|[16 2 8]"
        ),
        Mistake("head_dim", "q", lambda p: p.f32(2, 1, 4, 16), SHAPE, "q", "[2 1 4 16]|8"),
        Mistake("heads", "q", lambda p: p.f32(2, 1, 3, 8), SHAPE, "q", "[2 1 3 8]|2"),
        Mistake("lengths dtype", "lengths", lambda p: p.f32(2), DTYPE, "lengths", "f32|u32"),
        Mistake("lengths count", "lengths", lambda p: p.u32(3), SHAPE, "lengths", "[3]|2"),
        Mistake("scale", "scale_name", lambda p: "s", ATTR, "scale_name", "'s'|declared"),
        Mistake("k stale", "k", lambda p: p.stale(accel.F32, 16, 2, 8), ATTR, "k", "version 0"),
        Mistake("v stale", "v", lambda p: p.stale(accel.F32, 16, 2, 8), ATTR, "v", "version 0"),
        *PAGES,
    ),
    "linear_attention": (
        linear_attention,
        Mistake("extents", "query_extents", lambda p: None, ATTR, "query_extents", "None"),
        Mistake("q dtype", "q", lambda p: p.f16(5, 2, 8), DTYPE, "q", "f16|f32"),
        Mistake("v rank", "v", lambda p: p.f32(5, 12), SHAPE, "v", "[5 12]|rank 3"),
        Mistake("q and k", "k", lambda p: p.f32(5, 2, 7), SHAPE, "k", "[5 2 7]|[5 2 8]"),
        Mistake("v heads", "v", lambda p: p.f32(5, 3, 6), SHAPE, "v", "[5 3 6]|[5 2 6]"),
        Mistake("alpha", "alpha", lambda p: p.f32(2, 5), SHAPE, "alpha", "[2 5]|[5], [5 2]"),
        Mistake("beta", "beta", lambda p: p.f32(5, 1), SHAPE, "beta", "[5 1]|[5 2]"),
        Mistake(
            "state shape",
            "state",
            lambda p: p.state(accel.F32, 3, 2, 8, 6),
            SHAPE,
            "state",
            "[3 2 8 6]|[3 2 6 8]",
        ),
        Mistake(
            "stale",
            "state",
            lambda p: p.stale(accel.F32, 3, 2, 6, 8),
            ATTR,
            "state",
            "version 0",
        ),
    ),
    "rope": (
        rotate,
        Mistake("rotary_dim", "rotary_dim", lambda p: 3, ATTR, "rotary_dim", "3|even"),
        Mistake("base", "base_name", lambda p: "none", ATTR, "base_name", "'none'|declared"),
        Mistake("positions dtype", "positions", lambda p: p.f32(4), DTYPE, "positions", "f32|u32"),
        Mistake("positions count", "positions", lambda p: p.u32(3), SHAPE, "positions", "3|4"),
    ),
}


def both(op: str, f, first: Mistake, second: Mistake) -> Row:
    def made(p):
        return f(p, **{m.replaces: m.by(p) for m in (first, second)})

    name = f"{op}: {first.name}, before {second.name}"
    return Row(name, made, first.error, op, first.operand, first.words.split("|"), helper_of(op))


def helper_of(op: str):
    """The function in which the operator is called."""
    f = LISTS[op][0]
    return SPECS[op].call if f in (scatter, group, linear_attention) else f


def pairs_of(op: str, f, *mistakes) -> list[Row]:
    return [
        both(op, f, first, second)
        for i, first in enumerate(mistakes)
        for second in mistakes[i + 1 :]
        if first.replaces != second.replaces
    ]


ORDER = [row for op in LISTS for row in pairs_of(op, *LISTS[op])]
