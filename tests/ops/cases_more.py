"""Rows of the operators beyond the base set (CONTRACT E7); cases.py joins them."""

from __future__ import annotations

import numpy as np
from case import BUDGET, EXACT, Case, In, P, binary_points, repeated, rows_from_1

# ------------------------------------------------------------------ elementwise

INF = float("inf")
SUB = Case("sub", EXACT, binary_points(), outside=lambda x, y: x - y)


def _unary(op, *extra, **keywords):
    sizes = [
        ((1,), "normal"),
        ((5, 67), "normal"),
        ((4099,), "wide"),
        ((100003,), "normal"),
        ((64,), "specials"),
        ((1031,), "subnormal"),
        ((7, 100), "at_88"),
        *extra,
    ]
    return tuple(
        P(
            In(s, d, data),
            **keywords,
            name="-".join([*keywords.values(), "x".join(map(str, s)), d, data]),
            # exp and its like are one value there in f16; f16 holds nothing huge.
            trivial=data == "huge" or data == "subnormal" and op in ("exp", "sigmoid", "softplus"),
        )
        for d in ("f32", "f16")
        for s, data in sizes
    ) + (
        P(In((7, 6), view=rows_from_1), **keywords, name="-".join([*keywords.values(), "slice"])),
        P(In((6,), view=repeated(3)), **keywords, name="-".join([*keywords.values(), "repeated"])),
    )


def _erf(x):
    """By its series below 3 and 1 - exp(-x^2) / (x sqrt(pi)) / (1 + 1/2x^2 / ...) above."""
    a = np.abs(x)
    small, term, series = np.minimum(a, 3), np.minimum(a, 3), 0.0
    for n in range(80):
        series = series + term / (2 * n + 1)
        term = -term * small**2 / (n + 1)
    large, fraction = np.maximum(a, 3), 0.0
    for n in range(120, 0, -1):
        fraction = n / 2 / (large + fraction)
    tail = 1 - np.exp(-(large**2)) / np.sqrt(np.pi) / (large + fraction)
    return np.sign(x) * np.where(a < 3, 2 / np.sqrt(np.pi) * series, tail)


def _gelu(x, form="erf"):
    if form == "erf":
        return 0.5 * x * (1 + _erf(x / np.sqrt(2)))
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


EXP = Case("exp", BUDGET, _unary("exp"), outside=np.exp)
TANH = Case("tanh", BUDGET, _unary("tanh"), outside=np.tanh)
SIGMOID = Case("sigmoid", BUDGET, _unary("sigmoid"), outside=lambda x: 1 / (1 + np.exp(-x)))
SOFTPLUS = Case("softplus", BUDGET, _unary("softplus"), outside=lambda x: np.logaddexp(x, 0.0))
GELU = Case(
    "gelu",
    BUDGET,
    _unary("gelu", ((300,), "huge"), form="erf")
    + _unary("gelu", ((300,), "huge"), form="tanh")
    + (P(In((5, 67)), name="default"),),
    outside=_gelu,
)
CLAMP = Case(
    "clamp",
    EXACT,
    tuple(
        P(
            In(s, d, data),
            low=low,
            high=high,
            name=f"{d}-{'x'.join(map(str, s))}{data}-{low}-{high}",
        )
        for d in ("f32", "f16")
        for s, data, low, high in [
            ((1,), "normal", -1.0, 1.0),
            ((5, 67), "normal", -0.3, 0.7),
            ((1031,), "wide", -65504.0, 88.1),
            ((64,), "specials", -1.5, 1e-3),
            ((64,), "specials", -INF, INF),
            ((64,), "specials", -INF, -0.0),
            ((64,), "specials", 0.0, INF),
            ((64,), "specials", -0.0, 1e30),
            ((129,), "subnormal", -1e-42, 1e-5),
            ((60011,), "normal", -0.1, 0.1),
        ]
    )
    + (
        P(In((64,), data="specials"), low=INF, high=INF, name="inf", trivial=True),
        P(In((64,), data="signed_zeros"), low=0.0, high=-0.0, name="zeros", trivial=True),
        P(In((7, 6), view=rows_from_1), low=-0.5, high=0.5, name="slice"),
        P(In((6,), view=repeated(3)), low=-0.5, high=0.5, name="repeated"),
    ),
    outside=lambda x, low, high: np.clip(x, low, high),
)

# ------------------------------------------------------------------ rows


# Rows of softmax that many groups of a GPU share: shape, data, whether one value is right.
LONG_ROWS = [
    ((1, 8191), "normal", False),  # one group each
    ((2, 8192), "ties", False),
    ((3, 8200), "row_specials", False),
    ((2, 3, 8449), "some_minus_inf", False),
    ((2, 10240), "at_88", False),
    ((1, 8300), "minus_inf", True),
    ((2, 16640), "equal", True),
    ((1, 200003), "negative", False),  # more steps of a lane than a group holds
]


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
            *LONG_ROWS,
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

L2_NORM = Case(
    "l2_norm",
    BUDGET,
    tuple(
        P(In(s, data=data), eps=eps)
        for s, data, eps in [
            ((1, 1), "normal", 1e-6),
            ((3, 15), "normal", 1e-5),
            ((3, 16), "normal", 1e-5),
            ((3, 17), "normal", 1e-5),
            ((2, 5, 64), "normal", 1e-6),
            ((3, 127), "negative", 1e-5),
            ((2, 1031), "wide", 1e-5),
            ((130, 700), "normal", 1e-5),
            ((2, 9001), "normal", 1e-5),
            ((4, 33), "subnormal", 1e-12),
            ((37,), "normal", 1e-6),
            ((19, 511), "wide", 1e-6),
            ((2, 512), "negative", 1e-5),
            ((1, 4096), "normal", 1e-5),
            ((1, 4097), "normal", 1e-5),
        ]
    )
    + (
        P(In((5, 40), data="row_specials"), eps=1e-5),
        P(In((5, 600), data="row_specials"), eps=1e-5),
        P(In((2, 9), data="huge"), eps=1e-5, trivial=True),
        P(In((2, 9), data="zeros"), eps=1e-5, trivial=True),
    ),
    outside=lambda x, eps: x / np.sqrt((x * x).sum(-1, keepdims=True) + float(np.float32(eps))),
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

# ------------------------------------------------------------------ selections


def _top_k(x, k):
    """Values alone; NaN, which comes last, is judged by the oracle."""
    return -np.sort(-x, -1)[..., :k]


# The first entries of such rows are one value.
TIED = ("signed_zeros", "ties", "nan", "minus_inf", "specials", "clustered")
TOP_K_ENTRIES = Case(
    "top_k",
    EXACT,
    tuple(
        P(
            In(s, data=d),
            k=k,
            name=f"{'x'.join(map(str, s))}{d}-k{k}",
            trivial=k == 1 or d in TIED,
        )
        for s, d in [
            ((1,), "normal"),
            ((5,), "ties"),
            ((3, 127), "ties"),
            ((3, 128), "normal"),
            ((2, 2, 129), "ties"),
            ((6, 40), "row_specials"),
            ((2, 33), "signed_zeros"),
            ((3, 20), "nan"),
            ((3, 20), "minus_inf"),
            ((4, 64), "specials"),
            ((2, 4097), "ties"),
            ((1, 49152), "normal"),
            ((300, 8), "normal"),
            ((3, 255), "row_specials"),
            ((2, 256), "ties"),
            ((3, 257), "row_specials"),
            ((2, 40000), "clustered"),
            ((2, 40000), "mostly_equal"),
        ]
        for k in (1, 2, 8, 20, 129, s[-1])
        if k <= s[-1] and (k < s[-1] or k > 20 or k == 1)
    ),
    outside=_top_k,
)


def column(t, T):
    return T.slice(t, -1, 1, 2)


def transposed(t, T):
    return T.transpose(t, 0, 1)


def permuted(t, T):
    return T.permute(t, [1, 2, 0])


_ANY = [
    ("f32", "specials"),
    ("f16", "normal"),
    ("bf16", "normal"),
    ("i32", "codes"),
    ("u32", "codes"),
    ("i8", "codes"),
    ("u8", "codes"),
]
CONCAT = Case(
    "concat",
    EXACT,
    tuple(
        P(
            *(In(s, d, data) for s in shapes),
            axis=axis,
            name=f"{d}-axis{axis}-{i}",
            trivial=shapes[0] == (1,),
        )
        for d, data in _ANY
        for i, (shapes, axis) in enumerate(
            [
                (((1,), (1,)), 0),
                (((5,), (3,), (1,)), -1),
                (((3, 7), (2, 7)), 0),
                (((3, 7), (3, 2), (3, 1)), 1),
                (((2, 3, 5), (2, 1, 5)), -2),
                (((2, 3, 1), (2, 3, 1), (2, 3, 1)), 2),
                (((1, 2, 1, 2, 1, 2, 1, 2), (1, 2, 3, 2, 1, 2, 1, 2)), 2),
            ]
        )
    )
    + tuple(
        P(
            In((5, 7), d, data, view=transposed),
            In((7, 2), d, data),
            In((7, 9), d, data, view=column),
            In((3,), d, data, view=repeated(7)),
            axis=1,
            name=f"{d}-views",
        )
        for d, data in _ANY
    )
    + (
        P(In((4, 2, 3), view=permuted), In((5, 3, 4)), axis=0, name="permuted"),
        P(*(In((2, 3)) for _ in range(40)), axis=0, name="forty"),
        P(*(In((3, 1 + i)) for i in range(40)), axis=-1, name="forty-columns"),
        P(In((300, 401)), In((300, 99)), axis=1, name="many-chunks"),
        P(In((401, 300), view=transposed), In((300, 99)), axis=1, name="many-chunks-view"),
        P(In((70001,), "u8", "codes"), In((70001,), "u8", "codes"), axis=0, name="long"),
    ),
    outside=lambda *xs, axis: np.concatenate(xs, axis),
)

MORE = (
    LOG_SOFTMAX,
    TAKE,
    SUB,
    EXP,
    TANH,
    SIGMOID,
    SOFTPLUS,
    GELU,
    CLAMP,
    L2_NORM,
    TOP_K_ENTRIES,
    CONCAT,
)
