"""What a row of cases.py is made of: operands, points, and one case an operator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from values import make

EXACT = "exact"  # equal bits, signed zeros included; a NaN is a NaN
BUDGET = "budget"  # within the oracle's derived error budget (specs 007)


@dataclass(frozen=True)
class In:
    """One operand: a port of its kind, filled by the generator `data`, seen through `view`."""

    shape: tuple[int, ...]
    dtype: str = "f32"
    data: Any = "normal"
    kind: str = "input"  # input, weight, state
    view: Callable | None = None

    def values(self, rng) -> np.ndarray:
        return make(self.data, rng, self.shape, self.dtype)


@dataclass(frozen=True)
class Int4:
    """An Int4 bundle of `weights` weights; its planes are filled directly: every code occurs."""

    weights: int
    group: int = 128
    dtype: str = "f16"
    affine: bool = False
    constant_groups: bool = False


@dataclass(frozen=True)
class Quantized:
    shape: tuple[int, ...]
    data: Any = "normal"


@dataclass(frozen=True)
class Scalar:
    kind: str
    value: float | int


@dataclass(frozen=True)
class Point:
    name: str
    operands: tuple
    keywords: dict
    trivial: bool = False  # a result that is all equal or all zero is the right one

    def __str__(self) -> str:
        return self.name


def P(*operands, name: str = "", trivial: bool = False, **keywords) -> Point:
    return Point(name or _name(operands, keywords), operands, keywords, trivial)


def _name(operands, keywords) -> str:
    parts = []
    for o in (*operands, *keywords.values()):
        if isinstance(o, In):
            data = o.data if isinstance(o.data, str) and o.data != "normal" else ""
            parts.append(
                f"{'x'.join(map(str, o.shape))}{'' if o.dtype == 'f32' else o.dtype}{data}"
            )
        elif isinstance(o, Int4):
            parts.append(f"int4_{o.weights}g{o.group}{o.dtype}{'affine' if o.affine else ''}")
        elif isinstance(o, Quantized):
            parts.append("q" + "x".join(map(str, o.shape)))
        elif isinstance(o, Scalar):
            parts.append(f"{o.value}")
        else:
            parts.append(str(o))
    return "-".join(parts)


@dataclass(frozen=True)
class Case:
    op: str
    bound: str
    points: tuple[Point, ...]
    # An independent formula: (arrays in operand order, keywords) -> float64 array.
    outside: Callable | None = None
    bench: tuple[Point, ...] = ()


# ------------------------------------------------------------------ what several rows share


def rows_from_1(t, T):
    return T.slice(t, 0, 1, t.shape[0])


def repeated(n):
    def view(t, T):
        return T.broadcast(t, [n, *t.shape])

    view.__name__ = f"repeated{n}"
    return view


def binary_points() -> tuple[Point, ...]:
    """Two operands that broadcast: shapes, special values, packed views."""
    return tuple(
        P(In(x, d, dx), In(y, d, dy))
        for d in ("f32", "f16")
        for x, y, dx, dy in [
            ((1,), (1,), "normal", "normal"),
            ((7, 13), (7, 13), "normal", "normal"),
            ((3, 4, 5), (5,), "normal", "normal"),
            ((5,), (3, 5), "normal", "normal"),
            ((1, 5), (3, 5), "normal", "normal"),
            ((4, 31), (1,), "normal", "normal"),
            ((257,), (257,), "wide", "wide"),
            ((64,), (64,), "specials", "reversed_specials"),
            ((1031,), (1031,), "subnormal", "normal"),
        ]
    ) + (
        P(In((3, 50021)), In((50021,)), name="many-chunks"),
        P(In((7, 6), view=rows_from_1), In((6,)), name="slice-packed"),
        P(In((2, 6)), In((6,), view=repeated(2)), name="broadcast-packed"),
    )
