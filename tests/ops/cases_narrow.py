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
