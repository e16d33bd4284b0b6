"""What the rows of refusals are made of: ports declared in passing, and the row itself."""

from typing import NamedTuple

import accel
import numpy as np
from accel import tensor as T

SHAPE, DTYPE, ATTR = accel.ShapeError, accel.DTypeError, accel.AttrError


class Ports:
    """Declares unnamed ports on a builder, so that a row holds the refused call and little else."""

    def __init__(self, builder):
        self.b = builder
        self.n = 0

    def name(self) -> str:
        self.n += 1
        return f"p{self.n}"

    def f32(self, *shape):
        return self.b.input(self.name(), accel.F32, shape)

    def f16(self, *shape):
        return self.b.input(self.name(), accel.F16, shape)

    def bf16(self, *shape):
        return self.b.input(self.name(), accel.BF16, shape)

    def u32(self, *shape):
        return self.b.input(self.name(), accel.U32, shape)

    def i8(self, *shape):
        return self.b.input(self.name(), accel.I8, shape)

    def state(self, dtype, *shape):
        return self.b.state(self.name(), dtype, shape)

    def fscalar(self) -> str:
        return self.b.scalar(self.name(), T.ScalarKind.F32)

    def uscalar(self) -> str:
        return self.b.scalar(self.name(), T.ScalarKind.U32)

    def int4(self, weights, group=128, dtype=None, codes=None, scales=None, zeros=None, **planes):
        dtype = dtype or accel.F16
        groups = -(-max(weights, 1) // group)
        given = {
            "codes": self.u32(-(-max(weights, 1) // 8)) if codes is None else codes,
            "scales": self.b.input(self.name(), dtype, [groups]) if scales is None else scales,
            "zeros": self.b.input(self.name(), dtype, [groups]) if zeros is None else zeros,
        }
        return T.Int4(**{**given, **planes}, weights=weights, group=group)

    def quantized(self, *shape, scales=None):
        blocks = -(-int(np.prod(shape)) // 32)
        return T.Quantized(self.i8(*shape), self.f16(blocks) if scales is None else scales)

    def stale(self, dtype, *shape):
        """A handle that a later write has superseded."""
        state = self.state(dtype, *shape)
        rows = self.b.input(self.name(), dtype, [1, *shape[1:]])
        T.scatter_rows(state, rows, self.u32(1))
        return state

    def other(self, *shape):
        """A tensor of another builder."""
        return self.b_runtime.new_builder("other").input("x", accel.F32, shape)


class Row(NamedTuple):
    """One refused call. The text holds every word of `words`; `helper` is where the call stands."""

    name: str
    call: object
    error: type
    op: str
    operand: str
    words: list
    helper: object = None


def rows(op: str, *entries, helper=None) -> list[Row]:
    return [
        Row(f"{op}: {name}", call, error, op, operand, words.split("|"), helper)
        for name, call, error, operand, words in entries
    ]
