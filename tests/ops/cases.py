"""One row of data per operator: operands, attributes, designed values, how results are judged.

The runner (runner.py) turns a point into a graph; tests, parity between instruction sets and
benchmarks read these rows.
"""

from __future__ import annotations

import numpy as np
from case import BUDGET, EXACT, Case, In, Int4, P, Quantized, Scalar, binary_points, repeated
from cases_attention import ATTENTION
from cases_few import few_int4_points, few_quant_points, float_points
from cases_linear import LINEAR as LINEAR_ROWS
from cases_moe import MOE as MOE_ROWS
from cases_more import LONG_ROWS, MORE
from cases_narrow import int4_points, quant_points


def _f(x):
    return np.asarray(x, np.float64)


# ------------------------------------------------------------------ views and elementwise


def transposed(t, T):
    return T.transpose(t, -1, -2)


def every_column_but_first(t, T):
    return T.slice(t, -1, 1, t.shape[-1])


CONTIGUOUS = Case(
    "contiguous",
    EXACT,
    tuple(
        P(In((5, 7), dtype, data, view=view), name=f"{dtype}-{view.__name__}")
        for dtype, data in [
            ("f32", "specials"),
            ("f16", "normal"),
            ("bf16", "normal"),
            ("i32", "codes"),
            ("u32", "codes"),
            ("i8", "codes"),
            ("u8", "codes"),
        ]
        for view in (transposed, every_column_but_first, repeated(3))
    )
    + (
        P(In((513, 300), view=transposed), name="large"),
        P(In((2, 3, 4, 5), view=transposed), name="rank4"),
    ),
    outside=None,
)

ADD = Case("add", EXACT, binary_points(), outside=lambda x, y: x + y)
MUL = Case("mul", EXACT, binary_points(), outside=lambda x, y: x * y)
SCALE = Case(
    "scale",
    EXACT,
    tuple(
        P(In(s, d, data), Scalar("f32", f))
        for d in ("f32", "f16")
        for s, data, f in [
            ((1,), "normal", 3.0),
            ((5, 67), "normal", -0.3),
            ((64,), "specials", 0.5),
            ((64,), "specials", float("inf")),
            ((129,), "subnormal", 0.25),
        ]
    ),
)


def _silu(x):
    with np.errstate(over="ignore", invalid="ignore"):
        return x / (1 + np.exp(-x))


SILU = Case(
    "silu",
    BUDGET,
    tuple(
        P(In(s, d, data))
        for d in ("f32", "f16")
        for s, data in [
            ((1,), "normal"),
            ((5, 67), "normal"),
            ((4099,), "wide"),
            ((100003,), "normal"),
            ((64,), "specials"),
            ((1031,), "subnormal"),
        ]
    ),
    outside=_silu,
)
SWIGLU = Case(
    "swiglu",
    BUDGET,
    tuple(
        P(In(s, d, data), In(s, d, "normal"))
        for d in ("f32", "f16")
        for s, data in [
            ((1,), "normal"),
            ((5, 67), "normal"),
            ((4099,), "wide"),
            ((64,), "specials"),
        ]
    ),
    outside=lambda g, v: _silu(g) * v,
)
CAST = Case(
    "cast",
    EXACT,
    tuple(
        P(In(s, a, data), b)
        for a, b in [("f32", "f16"), ("f16", "f32"), ("bf16", "f32")]
        for s, data in [
            ((1,), "normal"),
            ((5, 67), "normal"),
            ((1031,), "wide"),
            ((64,), "specials"),
            ((1031,), "subnormal"),
            ((1031,), "halfway"),
        ]
    ),
)

# ------------------------------------------------------------------ gathers and states

_ids = lambda *v: ("list", v)  # noqa: E731

GATHER = Case(
    "gather_rows",
    EXACT,
    tuple(
        P(In((v, w), d), In(shape, "u32", ids), name=f"{v}x{w}{d}-{i}")
        for d in ("f32", "f16", "bf16")
        for i, (v, w, shape, ids) in enumerate(
            [
                (1, 1, (1,), _ids(0)),
                (7, 13, (5,), _ids(6, 0, 7, 2**32 - 1, 3)),
                (31, 64, (2, 3), _ids(30, 30, 1, 31, 2**31, 5)),
                (257, 67, (129,), ("below", 260)),
                (40, 1030, (300,), ("below", 41)),
            ]
        )
    ),
    outside=lambda table, ids: np.where(
        (ids < len(table))[..., None], table[np.minimum(ids, len(table) - 1).astype(np.int64)], 0.0
    ),
)
QUANT_GATHER = Case(
    "quant_gather_rows",
    EXACT,
    tuple(
        P(Quantized((v, w)), In(shape, "u32", ids), name=f"{v}x{w}")
        for v, w, shape, ids in [
            (1, 32, (1,), _ids(0)),
            (7, 13, (5,), _ids(6, 0, 7, 2**32 - 1, 3)),
            (31, 64, (2, 3), _ids(30, 30, 1, 31, 2**31, 5)),
            (65, 576, (17,), ("below", 70)),
            (40, 13, (90,), ("below", 41)),  # rows straddle the blocks of 32 in every way
            (40, 67, (90,), ("below", 41)),
        ]
    ),
)
SCATTER = Case(
    "scatter_rows",
    EXACT,
    tuple(
        P(
            In(s, d, "codes" if d == "u32" else "normal", "state"),
            In(r, d, "codes" if d == "u32" else "normal"),
            In((n,), "u32", ids),
            name=f"{d}-{'x'.join(map(str, s))}-{i}",
        )
        for d in ("f32", "f16", "bf16", "u32")
        for i, (s, r, n, ids) in enumerate(
            [
                ((4, 3), (2, 3), 2, _ids(3, 0)),
                ((7, 2, 5), (5, 2, 5), 5, _ids(1, 6, 1, 7, 2**32 - 1)),
                ((7, 10), (5, 2, 5), 5, _ids(2, 2, 2, 0, 2)),
                ((9,), (4,), 4, _ids(8, 9, 0, 8)),
                ((9,), (4, 1), 4, _ids(8, 9, 0, 8)),
                ((300, 64), (129, 64), 129, ("below", 310)),
            ]
        )
    ),
)

# ------------------------------------------------------------------ rows


def _rms_norm(x, gain, eps):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + float(np.float32(eps))) * gain


RMS_NORM = Case(
    "rms_norm",
    BUDGET,
    tuple(
        P(In(s, d, data), In(s[-1:]), eps=eps)
        for d in ("f32", "f16")
        for s, data, eps in [
            ((1, 1), "normal", 1e-6),
            ((3, 15), "normal", 1e-5),
            ((3, 16), "normal", 1e-5),
            ((3, 17), "normal", 1e-5),
            ((2, 5, 64), "normal", 1e-6),
            ((3, 127), "negative", 1e-5),
            ((2, 576), "normal", 1e-5),
            ((2, 1031), "wide", 1e-5),
            ((130, 700), "normal", 1e-5),
            ((2, 9001), "normal", 1e-5),
            ((4, 33), "subnormal", 1e-12),
            ((19, 128), "wide", 1e-6),
            ((17, 511), "normal", 1e-5),
            ((2, 512), "negative", 1e-5),
            ((1, 4096), "normal", 1e-5),
            ((1, 4097), "normal", 1e-5),
        ]
    )
    + (
        P(In((5, 40), data="row_specials"), In((40,)), eps=1e-5),
        P(In((5, 600), data="row_specials"), In((600,)), eps=1e-5),
        P(In((2, 9), data="zeros"), In((9,)), eps=1e-5, trivial=True),
    ),
    outside=_rms_norm,
)


def _softmax(x, axis=-1):
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(axis, keepdims=True))
        return e / e.sum(axis, keepdims=True)


SOFTMAX = Case(
    "softmax",
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
            *LONG_ROWS,
        ]
    )
    + (
        P(In((5, 40), data="row_specials")),
        P(In((2, 40), data="minus_inf"), trivial=True),
        P(In((49,)), axis=0),
    ),
    outside=_softmax,
)
ROPE = Case(
    "rope",
    BUDGET,
    tuple(
        P(
            In(x),
            In(p, "u32", data),
            rotary_dim=r,
            pairing=pairing,
            base_name=Scalar("f32", base),
            name=f"{pairing}-{'x'.join(map(str, x))}-{r}-{data[0]}",
        )
        for pairing in ("adjacent", "halves")
        for x, p, r, base, data in [
            ((1, 2), (1,), 2, 10000.0, _ids(1)),
            ((3, 8), (3,), 8, 10000.0, _ids(0, 1, 7)),
            ((5, 3, 64), (5,), 64, 100000.0, ("below", 4096)),
            ((300, 4, 64), (300,), 64, 100000.0, ("below", 5000)),
            ((5, 3, 64), (15,), 48, 1e6, ("below", 2**20)),
            ((4, 2, 34), (2,), 34, 500.0, ("below", 8192)),
            ((4, 16), (4,), 8, 10000.0, _ids(2**20, 2**24 + 1, 2**31, 2**32 - 1)),
        ]
    )
    + tuple(
        P(
            In((6, 32)),
            In((3,), "u32", ("below", 3000)),
            frequencies=In((8,), data="uniform"),
            rotary_dim=16,
            pairing=pairing,
            name=f"table-{pairing}",
        )
        for pairing in ("adjacent", "halves")
    ),
)

# ------------------------------------------------------------------ products

_SIZES = [  # M, K, N: below, at and above vectors and tiles; primes; 1
    (1, 1, 1),
    (1, 17, 5),
    (2, 64, 33),
    (3, 31, 16),
    (5, 129, 7),
    (17, 128, 65),
    (4, 576, 19),
    (33, 257, 70),
    (3, 300, 1500),
    (2, 1300, 9),  # beyond one slice of K
    (100, 700, 40),  # beyond one block of rows
    (3, 4500, 6),
    # Whole 8x8 matrices: one row, few and many.
    (1, 64, 72),
    (3, 72, 64),
    (40, 64, 72),
]


def _product_points(op):
    for w_order in ("kn", "nk"):
        for dx, dw in [
            ("f32", "f32"),
            ("f32", "f16"),
            ("f32", "bf16"),
            ("f16", "f16"),
            ("f16", "bf16"),
        ]:
            for m, k, n in _SIZES:
                w = (n, k) if w_order == "nk" else (k, n)
                head = (In((m, k), dx), In(w, dw, kind="weight"))
                name = f"{w_order}-{dx}x{dw}-{m}x{k}x{n}"
                if op == "matmul":
                    yield P(*head, w_order=w_order, name=name)
                else:
                    yield P(*head, In((n,)), w_order=w_order, name=name)
        w = (5, 40) if w_order == "nk" else (40, 5)
        special = (In((9, 40), data="row_specials"), In(w, kind="weight"))
        tail = () if op == "matmul" else (None,)
        yield P(*special, *tail, w_order=w_order, name=f"{w_order}-specials")
        yield P(
            In((2, 40), data="subnormal"),
            In(w, kind="weight"),
            *tail,
            w_order=w_order,
            name=f"{w_order}-subnormal",
        )
        yield P(
            In((2, 40), data="huge"),
            In(w, data="huge", kind="weight"),
            *tail,
            w_order=w_order,
            name=f"{w_order}-overflow",
            trivial=True,
        )


def _matmul(x, w, w_order="kn"):
    return _f(x) @ (_f(w).T if w_order == "nk" else _f(w))


MATMUL = Case(
    "matmul",
    BUDGET,
    (*_product_points("matmul"), *float_points("matmul")),
    outside=_matmul,
)
LINEAR = Case("linear", BUDGET, (*_product_points("linear"), *float_points("linear")))
QUANT_MATMUL = Case(
    "quant_matmul",
    BUDGET,
    tuple(
        P(
            In((m, k), d),
            Quantized((n, k) if w_order == "nk" else (k, n)),
            w_order=w_order,
            name=f"{w_order}-{d}-{m}x{k}x{n}",
        )
        for w_order in ("kn", "nk")
        for d in ("f32", "f16")
        for m, k, n in [
            (1, 1, 1),
            (1, 32, 5),
            (2, 64, 33),
            (3, 31, 16),
            (5, 160, 7),
            (17, 128, 65),
            (2, 576, 19),
            (3, 320, 1500),
            (100, 704, 40),
            (3, 4500, 6),
        ]
    )
    + (*quant_points(), *few_quant_points()),
)
_INT4 = [  # M, K, N, group
    (1, 32, 3, 32),
    (1, 128, 17, 128),
    (2, 64, 33, 64),
    (3, 96, 16, 32),
    (5, 40, 7, 32),
    (17, 128, 65, 64),
    (2, 576, 19, 32),
    (3, 31, 5, 128),
    (7, 256, 9, 128),
    (3, 256, 1500, 32),
    (2, 1344, 40, 32),
    (100, 640, 36, 64),
    (3, 4608, 6, 128),
    (2, 650, 9, 32),
]


def _int4_points(matvec):
    for w_order in ("kn", "nk"):
        for form in ("zeros", "biases"):
            for dtype in ("f16", "bf16", "f32"):
                for m, k, n, group in _INT4:
                    if matvec and m > 3:
                        continue
                    constant = n % 2 == 1 and form == "zeros"
                    w = Int4(n * k, group, dtype, form == "biases", constant_groups=constant)
                    name = f"{w_order}-{form}-{dtype}-{m}x{k}x{n}g{group}"
                    yield P(In((k,) if matvec else (m, k)), w, w_order=w_order, name=name)


INT4_MATVEC = Case(
    "int4_matvec",
    BUDGET,
    (*_int4_points(True), *int4_points(True), *few_int4_points(True)),
)
INT4_MATMUL = Case(
    "int4_matmul",
    BUDGET,
    (*_int4_points(False), *int4_points(False), *few_int4_points(False)),
)

# ------------------------------------------------------------------ samplers

_ROWS = [
    ((1,), "normal"),
    ((5,), "ties"),
    ((3, 127), "ties"),
    ((3, 128), "normal"),
    ((2, 2, 129), "ties"),
    ((4, 300), "normal"),
    ((6, 40), "row_specials"),
    ((2, 33), "signed_zeros"),
    ((3, 50), "negative"),
    ((2, 4097), "ties"),
    ((1, 49152), "normal"),
]
# Where many groups of a GPU share a row: from its first part to its last, whole and cut.
_LONG_ROWS = [
    ((2, 8192), "ties"),
    ((3, 9001), "row_specials"),
    ((2, 8191), "signed_zeros"),
    ((2, 10240), "negative"),
    ((2, 3, 8193), "some_minus_inf"),
    ((1, 16500), "subnormal"),
]
ARGMAX = Case(
    "argmax",
    EXACT,
    tuple(P(In(s, data=d), trivial=s == (1,) or d == "signed_zeros") for s, d in _ROWS + _LONG_ROWS)
    + (
        P(In((3, 20), data="nan"), trivial=True),
        P(In((3, 20), data="lowest"), trivial=True),
        P(In((3, 20), data="minus_inf"), trivial=True),
        *(P(In((2, 8200), data=d), trivial=True) for d in ("nan", "lowest", "minus_inf", "equal")),
        P(In((1, 300007), data="ties")),  # more parts than a group has threads
    ),
)
TOP_K = Case(
    "top_k_mask",
    EXACT,
    tuple(
        P(
            In(s, data=d),
            k,
            name=f"{'x'.join(map(str, s))}{d}-k{k}",
            trivial=s[-1] == 1 or d == "signed_zeros",
        )
        for s, d in _ROWS
        for k in (1, 2, 40, 128)
        if k <= s[-1]
    )
    + tuple(
        P(
            In(s, data=d),
            k,
            exact=True,
            name=f"exact-{'x'.join(map(str, s))}{d}-k{k}",
            trivial=d == "signed_zeros",
        )
        for s, d in _ROWS
        for k in (1, 129, 200)
        if s[-1] > 1 and k <= s[-1]
    )
    + tuple(
        P(In((2, 40000), data=d), k, exact=True, name=f"exact-40000{d}-k{k}")
        for d in ("clustered", "mostly_equal", "normal", "ties")
        for k in (1000, 5000, 39999)
    )
    + (P(In((3, 20), data="nan"), 5, trivial=True),),
)
TOP_P = Case(
    "top_p_mask",
    EXACT,
    tuple(
        P(
            In(s, data=d),
            p,
            exact=exact,
            name=f"{'x'.join(map(str, s))}{d}-p{p}{'-exact' if exact else ''}",
            trivial=s[-1] == 1,
        )
        for s, d in [
            ((1,), "weights"),
            ((5,), "weights"),
            ((3, 127), "weights"),
            ((3, 300), "weights"),
            ((4, 1000), "weights"),
            ((3, 64), "tied_weights"),
            ((2, 4097), "weights"),
            ((1, 49152), "peaked_weights"),
            ((2, 40000), "clustered"),
            ((2, 40000), "mostly_equal"),
            ((3, 129), "peaked_weights"),
            ((6, 40), "weight_specials"),
        ]
        for p in (1e-6, 0.1, 0.5, 0.9, 1.0)
        for exact in (False, True)
    )
    + (
        P(In((2, 64), data="zeros"), 0.5, trivial=True),
        P(In((2, 64), data="nan"), 0.5, trivial=True),
    ),
)
_DRAWS = ("list", (0.0, 0.99999994, 1.0, -1.0, float("nan"), 0.5, 0.25))
SAMPLE_CATEGORICAL = Case(
    "sample_categorical",
    EXACT,
    tuple(
        P(In((7, n), data=d), In((7,), data=_DRAWS), name=f"{n}{d}", trivial=n == 1)
        for n in (1, 255, 256, 257, 1000, 4097)
        for d in ("weights", "sparse_weights")
    )
    + (
        P(In((2, 3, 50), data="weights"), In((2, 3), data="uniform"), name="rank3"),
        P(In((50,), data="weights"), In((1,), data="uniform"), name="rank1", trivial=True),
        P(In((7, 151936), data="weights"), In((7,), data=_DRAWS), name="151936"),
        P(In((7, 300), data="zeros"), In((7,), data=_DRAWS), name="all-zero", trivial=True),
        P(In((7, 300), data="nan"), In((7,), data=_DRAWS), name="nan", trivial=True),
        P(
            In((7, 300), data="weight_specials"),
            In((7,), data=_DRAWS),
            name="specials",
            trivial=True,
        ),
    ),
)

CASES = (
    CONTIGUOUS,
    ADD,
    MUL,
    SCALE,
    SILU,
    SWIGLU,
    CAST,
    GATHER,
    QUANT_GATHER,
    SCATTER,
    RMS_NORM,
    SOFTMAX,
    ROPE,
    MATMUL,
    LINEAR,
    QUANT_MATMUL,
    INT4_MATVEC,
    INT4_MATMUL,
    ATTENTION,
    ARGMAX,
    TOP_K,
    TOP_P,
    SAMPLE_CATEGORICAL,
    *MORE,
    *MOE_ROWS,
    *LINEAR_ROWS,
)
