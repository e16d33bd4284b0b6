"""Rows of the operators that move tokens to experts and back, and of the grouped products."""

from __future__ import annotations

import numpy as np
from case import BUDGET, EXACT, Case, In, Int4, P, Quantized
from cases_narrow import grouped_points


def _counts(*v) -> In:
    return In((len(v),), "u32", ("list", v))


# ------------------------------------------------------------------ routing

ROUTE = Case(
    "route",
    EXACT,
    tuple(
        P(
            In((t, k), "u32", ids),
            experts=e,
            name=f"{t}x{k}-{ids[0]}{ids[1]}-of-{e}",
            trivial=trivial,
        )
        for t, k, e, ids, trivial in [
            (1, 1, 1, ("below", 1), True),
            (1, 8, 16, ("below", 16), True),
            (5, 2, 4, ("below", 4), False),
            (7, 3, 5, ("below", 9), False),  # ids that are no expert
            (13, 2, 3, ("list", [2, 2**32 - 1] * 13), False),
            (6, 4, 8, ("list", [7, 0, 7, 3] * 6), False),
            (4, 2, 3, ("list", [3] * 8), True),  # no expert at all
            (300, 8, 64, ("below", 64), False),
        ]
    ),
)
COMBINE = Case(
    "combine",
    EXACT,
    tuple(
        P(
            In((t * k, n), data=data),
            In((t * k,), "u32", ("below", t * k + 1)),  # one that is no row
            In((t, k), data=weights),
            name=f"{t}x{k}x{n}{data}",
            trivial=t * n == 1,
        )
        for t, k, n, data, weights in [
            (1, 1, 1, "normal", "normal"),
            (1, 8, 130, "normal", "uniform"),
            (3, 2, 15, "normal", "uniform"),
            (5, 3, 17, "signed_zeros", "normal"),
            (4, 4, 64, "subnormal", "normal"),
            (4, 2, 33, "specials", "reversed_specials"),
            (90, 8, 576, "normal", "uniform"),
        ]
    ),
)

# ------------------------------------------------------------------ grouped products

_GROUPED = [  # T, K, N, counts
    (1, 1, 1, (1,)),
    (1, 17, 5, (0, 1, 0)),
    (5, 64, 33, (2, 0, 1)),  # two rows of padding
    (9, 31, 16, (0, 7, 2, 0)),
    (13, 128, 65, (1, 1, 6, 5)),
    (6, 40, 7, (4, 2**32 - 1, 3)),  # counts beyond T
    (3, 96, 19, (0, 0)),  # padding alone
    (70, 160, 48, (50, 3, 0, 17)),
    (4, 1300, 9, (3, 1)),  # beyond one slice of K
    (40, 250, 4, (4,) * 10),  # many rows, few of them an expert's, and a narrow result
    (40, 64, 8, (4,) * 10),
]


def _weights(n: int, k: int, experts: int, w_order: str):
    """Every kind of weight of [experts, K, N] or [experts, N, K]."""
    shape = (experts, n, k) if w_order == "nk" else (experts, k, n)
    for dtype in ("f32", "f16", "bf16"):
        yield dtype, In(shape, dtype, kind="weight")
    yield "int8", Quantized(shape)
    for group, dtype, affine in [
        (32, "f16", False),
        (32, "bf16", True),
        (32, "f32", True),
        (64, "bf16", False),
        (64, "f16", True),
        (128, "f32", False),
    ]:
        yield (
            f"int4g{group}{dtype}{'affine' if affine else ''}",
            Int4(n * k * experts, group, dtype, affine, constant_groups=not affine),
        )


def _grouped_points():
    for w_order in ("kn", "nk"):
        for i, (t, k, n, counts) in enumerate(_GROUPED):
            for j, (kind, w) in enumerate(_weights(n, k, len(counts), w_order)):
                bias = {"bias": In((len(counts), n))} if (i + j) % 2 else {}
                yield P(
                    In((t, k)),
                    w,
                    _counts(*counts),
                    w_order=w_order,
                    name=f"{w_order}-{kind}-{t}x{k}x{n}-{'bias' if bias else 'plain'}",
                    trivial=sum(counts) == 0 or t * n == 1,
                    **bias,
                )
        w = (3, 5, 40) if w_order == "nk" else (3, 40, 5)
        yield P(
            In((9, 40), data="row_specials"),
            In(w, kind="weight"),
            _counts(2, 0, 6),
            w_order=w_order,
            name=f"{w_order}-specials",
        )


def _grouped(x, w, counts, bias=None, w_order="kn"):
    out = np.zeros((len(x), w.shape[1 if w_order == "nk" else 2]))
    ends = np.minimum(np.cumsum(counts), len(x)).astype(int)
    for e, (begin, end) in enumerate(zip([0, *ends], ends, strict=False)):
        out[begin:end] = x[begin:end] @ (w[e].T if w_order == "nk" else w[e])
        if bias is not None:
            out[begin:end] += bias[e]
    return out


def _floats_alone(*arrays, w_order="kn", **_):
    """The formula reads float weights; bundles have no array of their own among the operands."""
    if np.ndim(arrays[1]) != 3:
        return np.full((1, 1), np.nan)
    return _grouped(*arrays, w_order=w_order)


_POINTS = (*_grouped_points(), *grouped_points())
GROUPED_MATVEC = Case("grouped_matvec", BUDGET, _POINTS, outside=_floats_alone)
GROUPED_MATMUL = Case("grouped_matmul", BUDGET, _POINTS, outside=_floats_alone)

MOE = (ROUTE, COMBINE, GROUPED_MATVEC, GROUPED_MATMUL)
