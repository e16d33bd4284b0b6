"""Rows of the operators beyond the base set (CONTRACT E7); cases.py joins them."""

from __future__ import annotations

import numpy as np
from case import BUDGET, EXACT, Case, In, P

# ------------------------------------------------------------------ rows


def _log_softmax(x):
    with np.errstate(invalid="ignore"):
        d = x - x.max(-1, keepdims=True)
        return d - np.log(np.exp(d).sum(-1, keepdims=True))


LOG_SOFTMAX = Case(
    "log_softmax",
    BUDGET,
    tuple(
        P(In(s, data=data), trivial=trivial)
        for s, data, trivial in [
            ((1, 1), "normal", True),
            ((3, 15), "normal", False),
            ((3, 16), "normal", False),
            ((3, 17), "ties", False),
            ((2, 5, 64), "negative", False),
            ((3, 127), "wide", False),
            ((7, 100), "at_88", False),
            ((2, 1031), "normal", False),
            ((1, 20011), "normal", False),
            ((3, 9001), "wide", False),
            ((170, 300), "normal", False),
            ((3, 70), "equal", True),
            ((4, 33), "some_minus_inf", False),
            ((3, 50), "huge", False),
            ((64,), "subnormal", True),
        ]
    )
    + (
        P(In((5, 40), data="row_specials")),
        P(In((2, 40), data="minus_inf"), trivial=True),
        P(In((2, 40), data="nan"), trivial=True),
        P(In((2, 2), data=("list", (3.4028235e38, -3.4028235e38) * 2)), name="overflow"),
    ),
    outside=_log_softmax,
)

# ------------------------------------------------------------------ moves


def _ids(*values):
    return ("list", values)


def _take(x, ids):
    rows = np.arange(len(x))
    inside = ids < x.shape[1]
    return np.where(inside, x[rows, np.where(inside, ids, 0).astype(np.int64)], 0.0)


TAKE = Case(
    "take",
    EXACT,
    tuple(
        P(In((r, w), d, data), In((r,), "u32", ids), name=f"{d}-{r}x{w}-{i}", trivial=r == 1)
        for d, data in [("f32", "specials"), ("f16", "normal"), ("u32", "codes")]
        for i, (r, w, ids) in enumerate(
            [
                (1, 1, _ids(0)),
                (1, 49, _ids(48)),
                (5, 13, _ids(12, 0, 13, 2**32 - 1, 2**31)),
                (31, 17, ("below", 20)),
                (16, 64, ("below", 64)),
                (70001, 3, ("below", 4)),  # more rows than one chunk has
            ]
        )
    ),
    outside=_take,
)

MORE = (LOG_SOFTMAX, TAKE)
