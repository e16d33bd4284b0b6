"""Refusals of the operators that carry a state along each sequence."""

import accel
from accel import tensor as T

from refusals.common import ATTR, DTYPE, SHAPE, rows


def operands_of(p, shapes: dict) -> dict:
    """A port of each shape; what is no tuple is an operand itself."""
    operands = dict(shapes)
    for name, value in shapes.items():
        if not isinstance(value, tuple):
            continue
        if name == "state":
            operands[name] = p.state(accel.F32, *value)
        else:
            operands[name] = p.u32(*value) if name == "query_extents" else p.f32(*value)
    return operands


def convolve(p, **given):
    shapes = {"x": (5, 8), "w": (8, 4), "state": (2, 3, 8), "query_extents": (2,), **given}
    return T.causal_conv1d(**operands_of(p, shapes))


CONV = rows(
    "causal_conv1d",
    ("x dtype", lambda p: convolve(p, x=p.f16(5, 8)), DTYPE, "x", "f16|f32|cast"),
    ("w dtype", lambda p: convolve(p, w=p.bf16(8, 4)), DTYPE, "w", "bf16|f32"),
    (
        "state dtype",
        lambda p: convolve(p, state=p.state(accel.F16, 2, 3, 8)),
        DTYPE,
        "state",
        "f16|f32",
    ),
    (
        "extents dtype",
        lambda p: convolve(p, query_extents=p.f32(2)),
        DTYPE,
        "query_extents",
        "f32|u32",
    ),
    ("bias dtype", lambda p: convolve(p, bias=p.f16(8)), DTYPE, "bias", "f16|f32"),
    ("x rank", lambda p: convolve(p, x=(8,)), SHAPE, "x", "[8]|rank 2"),
    ("w rank", lambda p: convolve(p, w=(8,)), SHAPE, "w", "[8]|rank 2"),
    ("channels", lambda p: convolve(p, w=(7, 4)), SHAPE, "w", "[7 4]|[8 W]|[5 8]"),
    ("one tap", lambda p: convolve(p, w=(8, 1)), SHAPE, "w", "[8 1]|2 or more"),
    (
        "extents rank",
        lambda p: convolve(p, query_extents=(2, 1)),
        SHAPE,
        "query_extents",
        "[2 1]|rank 1",
    ),
    ("state shape", lambda p: convolve(p, state=(2, 4, 8)), SHAPE, "state", "[2 4 8]|[2 3 8]"),
    ("slots", lambda p: convolve(p, query_extents=(3,)), SHAPE, "state", "[2 3 8]|[3 3 8]"),
    ("bias shape", lambda p: convolve(p, bias=(5,)), SHAPE, "bias", "[5]|[8]"),
    ("stale", lambda p: convolve(p, state=p.stale(accel.F32, 2, 3, 8)), ATTR, "state", "version"),
    ("no x", lambda p: convolve(p, x=None), ATTR, "x", "None"),
    ("no w", lambda p: convolve(p, w=None), ATTR, "w", "None"),
    ("no state", lambda p: convolve(p, state=None), ATTR, "state", "None|a state"),
    (
        "no extents",
        lambda p: convolve(p, query_extents=None),
        ATTR,
        "query_extents",
        "None",
    ),
    helper=convolve,
)

WIDE = {"q": (5, 2, 8), "k": (5, 2, 8), "v": (5, 2, 6), "alpha": (5, 2), "beta": (5, 2)}


def attend(p, decay_first=False, rule="delta", **given):
    shapes = {**WIDE, "state": (3, 2, 6, 8), "query_extents": (3,), **given}
    return T.linear_attention(**operands_of(p, shapes), decay_first=decay_first, rule=rule)


ATTEND = rows(
    "linear_attention",
    *[
        (
            f"{name} dtype",
            lambda p, n=name: attend(p, **{n: p.f16(*WIDE[n])}),
            DTYPE,
            name,
            "f16|f32",
        )
        for name in WIDE
    ],
    (
        "state dtype",
        lambda p: attend(p, state=p.state(accel.F16, 3, 2, 6, 8)),
        DTYPE,
        "state",
        "f16|f32",
    ),
    (
        "extents dtype",
        lambda p: attend(p, query_extents=p.f32(3)),
        DTYPE,
        "query_extents",
        "f32|u32",
    ),
    *[
        (f"{name} rank", lambda p, n=name: attend(p, **{n: (5, 8)}), SHAPE, name, "[5 8]|rank 3")
        for name in "qkv"
    ],
    ("q and k", lambda p: attend(p, k=(5, 2, 7)), SHAPE, "k", "[5 2 7]|[5 2 8]|as q is"),
    ("tokens of v", lambda p: attend(p, v=(4, 2, 6)), SHAPE, "v", "[4 2 6]|[5 2 6]"),
    ("heads of v", lambda p: attend(p, v=(5, 3, 6)), SHAPE, "v", "[5 3 6]|[5 2 6]"),
    (
        "extents rank",
        lambda p: attend(p, query_extents=(3, 1)),
        SHAPE,
        "query_extents",
        "[3 1]|rank 1",
    ),
    (
        "alpha layout",
        lambda p: attend(p, alpha=(2, 5)),
        SHAPE,
        "alpha",
        "[2 5]|[5], [5 2] or [5 1]",
    ),
    ("beta layout", lambda p: attend(p, beta=(4,)), SHAPE, "beta", "[4]|[5], [5 2] or [5 1]"),
    ("layouts differ", lambda p: attend(p, beta=(5, 1)), SHAPE, "beta", "[5 1]|[5 2]|alpha"),
    (
        "keys of alpha",
        lambda p: attend(p, alpha=(5, 2, 6), decay_first=True),
        SHAPE,
        "alpha",
        "[5 2 6]|[5 2 8]|one decay a key",
    ),
    (
        "a key's decay read late",
        lambda p: attend(p, alpha=(5, 2, 8)),
        ATTR,
        "decay_first",
        "False|True|'add'|[5 2 8]",
    ),
    (
        "beta beside a key's decay",
        lambda p: attend(p, alpha=(5, 2, 8), beta=(5,), decay_first=True),
        SHAPE,
        "beta",
        "[5]|[5 2]",
    ),
    (
        "swapped axes",
        lambda p: attend(p, state=(3, 2, 8, 6)),
        SHAPE,
        "state",
        "[3 2 8 6]|[3 2 6 8]|[B H Dv Dk]",
    ),
    ("slots", lambda p: attend(p, query_extents=(2,)), SHAPE, "state", "[3 2 6 8]|[2 2 6 8]"),
    ("rule", lambda p: attend(p, rule="sub"), ATTR, "rule", "'sub'|'delta' or 'add'"),
    ("stale", lambda p: attend(p, state=p.stale(accel.F32, 3, 2, 6, 8)), ATTR, "state", "version"),
    *[
        (f"no {name}", lambda p, n=name: attend(p, **{n: None}), ATTR, name, "None")
        for name in (*WIDE, "state", "query_extents")
    ],
    helper=attend,
)

LINEAR = [*CONV, *ATTEND]
