"""Few rows by weights [N, K], in shapes that between them choose each of CUDA's rings
(cpp/ops/product_rings.cc), with tails of columns and of K, and rows that a ring has not; cases.py
joins them."""

from __future__ import annotations

from case import In, Int4, P, Quantized

# M, K, N. Of one row: short, small, deep, large and wide; then 2, 3 and 4, 5 to 8 and more rows.
_FEW = [(2, 136, 37), (3, 264, 33), (4, 1096, 70), (5, 72, 40), (8, 520, 35), (9, 64, 33)]
_NARROW = [
    (1, 64, 1),
    (1, 576, 70),
    (1, 1544, 21),
    (1, 2056, 19),
    (1, 2048, 2051),
    (1, 72, 8200),
    (3, 6152, 34),  # x in two segments
    *_FEW,
    # Those and matrix units: sixteen rows, 32 and more.
    (12, 72, 33),
    (20, 136, 37),
    (70, 88, 67),
]
_WIDE = [(1, 68, 5), (1, 1300, 37), (1, 2052, 40), *_FEW]
_GROUPED = [(2, 128, 37), (3, 320, 33), (4, 1088, 70), (5, 64, 40), (8, 576, 35), (9, 64, 33)]
_INT8 = [(1, 64, 3), (1, 704, 70), (1, 2048, 2050), (1, 8192, 2048), (1, 128, 8200), *_GROUPED]
_INT4 = [(1, 64, 3), (1, 704, 70), (1, 2112, 2050), (1, 64, 16390), *_GROUPED]


# Many rows by groups that straddle rows of the weight, beyond K = 256 and sixteen columns: pieces
# that a kernel widens end anywhere.
_MANY = [(260, 1023, 33), (257, 777, 33), (256, 520, 40)]


def float_points(op: str):
    for dx, dw, sizes in [
        ("f32", "f32", _WIDE),
        ("f32", "f16", _NARROW),
        ("f32", "bf16", _NARROW),
        ("f16", "f16", _NARROW),
        ("f16", "bf16", _NARROW),
    ]:
        for m, k, n in sizes:
            head = (In((m, k), dx), In((n, k), dw, kind="weight"))
            name = f"few-{dx}x{dw}-{m}x{k}x{n}"
            if op == "matmul":
                yield P(*head, w_order="nk", name=name)
            elif k * n < 2**18:
                yield P(*head, In((n,)), w_order="nk", name=name)
        if dw == "f32" or op != "matmul":
            continue
        for x, w in (("row_specials", "normal"), ("subnormal", "normal"), ("normal", "subnormal")):
            head = (In((9, 72), dx, x), In((5, 72), dw, w, kind="weight"))
            yield P(*head, w_order="nk", name=f"few-{dx}x{dw}-{x}-{w}")


def few_quant_points():
    for d in ("f32", "f16"):
        for m, k, n in _INT8:
            yield P(In((m, k), d), Quantized((n, k)), w_order="nk", name=f"few-{d}-{m}x{k}x{n}")
    for m, k, n in _MANY:
        yield P(In((m, k)), Quantized((n, k)), w_order="nk", name=f"many-{m}x{k}x{n}")
    for to in ("f16", "bf16"):
        for m, k, n in [(1, 192, 9), (3, 128, 33)]:
            yield P(
                In((m, k), data="wide"),
                Quantized((n, k)),
                w_order="nk",
                activations=to,
                name=f"few-{to}-{m}x{k}x{n}",
            )


def few_int4_points(matvec: bool):
    for dtype in ("f16", "bf16", "f32"):
        for form in ("zeros", "biases"):
            for m, k, n in _INT4:
                if matvec and (m > 1 or k * n > 2**18):
                    continue
                constant = n % 2 == 1 and form == "zeros"
                w = Int4(n * k, 32, dtype, form == "biases", constant_groups=constant)
                name = f"few-{form}-{dtype}-{m}x{k}x{n}"
                yield P(In((k,) if matvec else (m, k)), w, w_order="nk", name=name)
        for m, k, n in () if matvec else _MANY:
            w = Int4(n * k, 32, dtype, True)
            yield P(In((m, k)), w, w_order="nk", name=f"many-{dtype}-{m}x{k}x{n}")
        for to in ("f16", "bf16"):
            x = In((192,) if matvec else (3, 192), data="wide")
            yield P(
                x,
                Int4(192 * 33, 32, dtype),
                w_order="nk",
                activations=to,
                name=f"few-{to}-{dtype}-192x33",
            )
