"""Refusals at the ends of what 64 bits count, and the order of the short lists."""

import accel
from accel import tensor as T

from refusals.common import ATTR, SHAPE, rows

EDGES = [
    *rows(
        "broadcast",
        (
            "a changed axis, before a target of 0",
            lambda p: T.broadcast(p.f32(4, 8), [4, 0]),
            SHAPE,
            "shape",
            "[4 0]|keep axis 1|[4 8]",
        ),
    ),
    *rows(
        "layer_state",
        (
            "a layer outside, before nothing left",
            lambda p: T.layer_state(p.state(accel.F32, 4), 9),
            ATTR,
            "layer",
            "9|[0, 3]|[4]",
        ),
    ),
    *rows(
        "int4_matvec",
        (
            "2^63-1 weights",
            lambda p: T.int4_matvec(p.f32(1), T.Int4(p.u32(1), p.f16(1), p.f16(1), 2**63 - 1)),
            SHAPE,
            "w.codes",
            f"[1]|must have {2**60}",
        ),
    ),
    *rows(
        "scatter_rows",
        (
            "ids whose rows wrap",
            lambda p: T.scatter_rows(p.state(accel.F32, 4, 4), p.f32(1, 4), p.u32(2**62 + 1)),
            SHAPE,
            "rows",
            f"[1 4]|{2**62 + 1} rows of 4",
        ),
    ),
]
