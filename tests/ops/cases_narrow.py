"""Rows of the quantized products with rounded activations (E11, E13) and with weights that can be
packed (E14); cases.py joins them."""

from __future__ import annotations

from case import In, Int4, P, Quantized

_ROUNDED = ("f16", "bf16")


def quant_points():
    for d in ("f32", "f16"):  # whole panels of columns
        yield P(In((3, 40), d), Quantized((40, 64)), w_order="kn", name=f"panels-{d}")
    for m, k, n in [(1, 32, 5), (1, 544, 33), (2, 64, 16), (5, 160, 37), (17, 1088, 18)]:
        for d in ("f32", "f16"):
            for data in ("normal", "int8_blocks"):
                if d == "f16" and data != "normal":
                    continue
                yield P(
                    In((m, k), d, data),
                    Quantized((n, k)),
                    w_order="nk",
                    activations="int8",
                    name=f"int8-{d}-{data}-{m}x{k}x{n}",
                )
    yield P(
        In((9, 96), data="int8_specials"),
        Quantized((20, 96)),
        w_order="nk",
        activations="int8",
        name="int8-specials",
    )
    for to in _ROUNDED:
        for w_order in ("kn", "nk"):
            for m, k, n, d, data in [
                (1, 64, 9, "f32", "normal"),
                (1, 37, 5, "f16", "normal"),
                (3, 160, 33, "f32", "wide"),
                (7, 45, 18, "f32", "subnormal"),
                (14, 96, 6, "f16", "normal"),
                (2, 32, 5, "f32", "halfway"),
            ]:
                yield P(
                    In((m, k), d, data),
                    Quantized((n, k) if w_order == "nk" else (k, n)),
                    w_order=w_order,
                    activations=to,
                    name=f"{to}-{w_order}-{d}-{data}-{m}x{k}x{n}",
                )


def int4_points(matvec: bool):
    for dtype in ("f16", "bf16", "f32"):  # whole panels of columns
        x = In((40,) if matvec else (3, 40))
        yield P(x, Int4(40 * 64, 32, dtype), w_order="kn", name=f"panels-{dtype}")
    for dtype in ("f16", "bf16", "f32"):
        for form in ("zeros", "biases"):
            for m, k, n, group, data in [
                (1, 32, 3, 32, "normal"),
                (1, 640, 17, 128, "int8_blocks"),
                (1, 576, 40, 64, "normal"),
                (4, 96, 16, 32, "int8_blocks"),
                (5, 256, 33, 128, "normal"),
                (18, 1088, 19, 64, "int8_blocks"),
                (9, 96, 20, 32, "int8_specials"),
            ]:
                if matvec and m > 1:
                    continue
                constant = n % 2 == 1 and form == "zeros"
                yield P(
                    In((k,) if matvec else (m, k), data=data),
                    Int4(n * k, group, dtype, form == "biases", constant_groups=constant),
                    w_order="nk",
                    activations="int8",
                    name=f"int8-{form}-{dtype}-{data}-{m}x{k}x{n}g{group}",
                )
    for to in _ROUNDED:
        for w_order in ("kn", "nk"):
            for m, k, n, group, dtype, data in [
                (1, 64, 9, 32, "f16", "normal"),
                (1, 31, 6, 128, "bf16", "wide"),
                (3, 160, 33, 32, "f32", "normal"),
                (13, 128, 5, 128, "f16", "subnormal"),
            ]:
                if matvec and m > 1:
                    continue
                yield P(
                    In((k,) if matvec else (m, k), data=data),
                    Int4(n * k, group, dtype, group == 32),
                    w_order=w_order,
                    activations=to,
                    name=f"{to}-{w_order}-{dtype}-{data}-{m}x{k}x{n}g{group}",
                )


_GROUPED = [  # T, K, N, counts, values of x
    (1, 128, 5, (0, 1, 0), "normal"),
    (5, 128, 33, (2, 0, 1), "int8_blocks"),  # two rows of padding
    (13, 256, 35, (1, 1, 6, 5), "normal"),
    (9, 128, 20, (0, 7, 2**32 - 1), "int8_specials"),  # counts beyond T
    (6, 1152, 9, (4, 2), "int8_blocks"),  # beyond one tile of K
]
_ACROSS = [(7, 45, 18, (4, 0, 2), "subnormal"), (4, 160, 33, (1, 3), "wide")]


def _stacks(n: int, k: int, experts: int, w_order: str):
    """Every kind of quantized weight of [experts, K, N] or [experts, N, K]."""
    yield "int8", Quantized((experts, n, k) if w_order == "nk" else (experts, k, n))
    for group, dtype, affine in [(32, "f16", False), (64, "bf16", True), (128, "f32", False)]:
        w = Int4(n * k * experts, group, dtype, affine, constant_groups=not affine)
        yield f"int4g{group}{dtype}", w


def _grouped(to: str, w_order: str, points):
    for i, (t, k, n, counts, data) in enumerate(points):
        for j, (kind, w) in enumerate(_stacks(n, k, len(counts), w_order)):
            bias = {"bias": In((len(counts), n))} if (i + j) % 2 else {}
            yield P(
                In((t, k), data=data),
                w,
                In((len(counts),), "u32", ("list", counts)),
                w_order=w_order,
                activations=to,
                name=f"{to}-{w_order}-{kind}-{data}-{t}x{k}x{n}-{'bias' if bias else 'plain'}",
                **bias,
            )


def grouped_points():
    yield from _grouped("int8", "nk", _GROUPED)
    for to in _ROUNDED:
        for w_order in ("kn", "nk"):
            yield from _grouped(to, w_order, [*_GROUPED[:3], *_ACROSS])
