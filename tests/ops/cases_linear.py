"""Rows of the operators that carry a state along each sequence."""

from __future__ import annotations

import numpy as np
from case import BUDGET, EXACT, Case, In, P


def _extents(*v) -> In:
    return In((len(v),), "u32", ("list", v))


def _runs(extents, tokens):
    """(slot, begin, end) of each sequence that has tokens."""
    ends = np.minimum(np.cumsum(extents), tokens).astype(int)
    return [(b, i, j) for b, (i, j) in enumerate(zip([0, *ends], ends, strict=False)) if i < j]


# ------------------------------------------------------------------ the short convolution

CAUSAL_CONV1D = Case(
    "causal_conv1d",
    EXACT,
    tuple(
        P(
            In((t, c), data=data),
            In((c, w), kind="weight"),
            In((len(n), w - 1, c), data=data, kind="state"),
            query_extents=_extents(*n),
            name=f"{t}x{c}w{w}{data}-{'-'.join(map(str, n))}{'-bias' if bias else ''}",
            **({"bias": In((c,))} if bias else {}),
        )
        for t, c, w, n, data in [
            (1, 1, 2, (1,), "normal"),
            (1, 16, 4, (1,), "normal"),
            (5, 17, 4, (2, 0, 1), "normal"),  # padding, and a slot that nothing touches
            (9, 33, 3, (0, 7, 2), "normal"),
            (6, 15, 9, (2, 4), "normal"),  # fewer tokens than rows of state
            (7, 64, 2, (3, 2**32 - 1), "subnormal"),  # beyond the rows
            (8, 40, 4, (8,), "row_specials"),
            (130, 200, 4, (1, 100, 20), "normal"),
            (12, 31, 4, (5, 7), "signed_zeros"),
        ]
        for bias in (False, True)
    ),
)

# ------------------------------------------------------------------ the gated delta rule

_LINEAR = [  # T, H, Dk, Dv, extents
    (1, 1, 1, 1, (1,)),
    (1, 2, 16, 16, (1,)),
    (3, 2, 7, 5, (1, 0, 1)),  # padding, and a slot that nothing touches
    (4, 1, 33, 17, (0, 3)),
    (5, 3, 16, 31, (2, 2**32 - 1)),  # beyond the rows
    (2, 2, 64, 130, (2,)),
    (6, 2, 130, 16, (6,)),
]


def _gate(layout: str, t: int, h: int, dk: int) -> tuple[int, ...]:
    return {"token": (t,), "head": (t, h), "column": (t, 1), "key": (t, h, dk)}[layout]


def _linear_points():
    for t, h, dk, dv, n in _LINEAR:
        for layout in ("token", "head", "column", "key"):
            for decay_first in (False, True):
                for rule in ("delta", "add"):
                    if layout == "key" and not decay_first and rule == "delta":
                        continue
                    yield P(
                        In((t, h, dk)),
                        In((t, h, dk), data=("scaled", dk**-0.5)),
                        In((t, h, dv)),
                        In((len(n), h, dv, dk), kind="state"),
                        alpha=In(_gate(layout, t, h, dk), data="uniform"),
                        beta=In(_gate(layout.replace("key", "head"), t, h, dk), data="uniform"),
                        query_extents=_extents(*n),
                        decay_first=decay_first,
                        rule=rule,
                        name=f"{layout}-{rule}{'-first' if decay_first else ''}-{t}x{h}x{dk}x{dv}",
                    )
    for data in ("zeros", "specials", "signed_zeros"):
        yield P(
            In((4, 2, 19)),
            In((4, 2, 19)),
            In((4, 2, 21)),
            In((1, 2, 21, 19), kind="state"),
            alpha=In((4, 2), data="uniform"),
            beta=In((4, 2), data=data),
            query_extents=_extents(4),
            name=f"beta-{data}",
            trivial=data == "specials",  # the state ends as NaN
        )
    yield P(  # infinite, not NaN: what stands behind the last key takes no part
        In((3, 2, 19), data="uniform"),
        In((3, 2, 19), data="uniform"),
        In((3, 2, 21)),
        In((1, 2, 21, 19), data="uniform", kind="state"),
        alpha=In((3,), data=("list", (np.inf, 1.0, 0.0))),
        beta=In((3,), data=("list", (0.0, 0.5, 1.0))),
        query_extents=_extents(3),
        name="alpha-inf",
        trivial=True,
    )
    yield P(
        In((6, 1, 20)),
        In((6, 1, 20), data=("scaled", 0.2)),
        In((6, 1, 18)),
        In((2, 1, 18, 20), data="row_specials", kind="state"),
        alpha=In((6,), data="uniform"),
        beta=In((6,), data="uniform"),
        query_extents=_extents(3, 2),
        name="state-specials",
    )


def gated_delta(q, k, v, state, alpha, beta, extents, decay_first=False, rule="delta"):
    """The recurrence in float64; gives the result and the state afterwards."""
    tokens, heads, dk = k.shape
    alpha = np.broadcast_to(
        alpha.reshape(tokens, -1, alpha.shape[-1] if alpha.ndim == 3 else 1), (tokens, heads, dk)
    )
    beta = np.broadcast_to(beta.reshape(tokens, -1), (tokens, heads))
    out, state = np.zeros(v.shape), state.astype(np.float64).copy()
    for b, begin, end in _runs(extents, tokens):
        for t in range(begin, end):
            for h in range(heads):
                decayed = state[b, h] * alpha[t, h]
                u = (decayed if decay_first else state[b, h]) @ k[t, h]
                change = v[t, h] if rule == "add" else v[t, h] - u
                state[b, h] = decayed
                if beta[t, h] != 0:
                    state[b, h] += np.outer(beta[t, h] * change, k[t, h])
                out[t, h] = state[b, h] @ q[t, h]
    return out, state


LINEAR_ATTENTION = Case(
    "linear_attention",
    BUDGET,
    tuple(_linear_points()),
    outside=lambda *arrays, **options: gated_delta(*arrays, **options)[0],
)

LINEAR = (CAUSAL_CONV1D, LINEAR_ATTENTION)
