"""Refusals of the products with rounded activations (E11, E13)."""

from accel import tensor as T

from refusals.common import ATTR, SHAPE, rows


def quant(p, **kw):
    return T.quant_matmul(p.f32(2, 64), p.quantized(5, 64), **{"w_order": "nk", **kw})


def matmul(p, k=64, group=32, **kw):
    return T.int4_matmul(p.f32(2, k), p.int4(5 * k, group), **{"w_order": "nk", **kw})


def matvec(p, k=64, group=32, **kw):
    return T.int4_matvec(p.f32(k), p.int4(5 * k, group), **{"w_order": "nk", **kw})


def grouped_rows(op: str):
    f = getattr(T, op)

    def by_int4(p, k=64, group=32, **kw):
        return f(p.f32(3, k), p.int4(10 * k, group), p.u32(2), **{"w_order": "nk", **kw})

    return rows(
        op,
        (
            "another activations type",
            lambda p: by_int4(p, activations="int4"),
            ATTR,
            "activations",
            "'int4'|None, 'int8', 'f16' or 'bf16'",
        ),
        (
            "another activations type of float weights",
            lambda p: f(p.f32(3, 8), p.f32(2, 8, 4), p.u32(2), activations="half"),
            ATTR,
            "activations",
            "'half'|None, 'int8', 'f16' or 'bf16'",
        ),
        *(
            (
                f"{to} over float weights",
                lambda p, to=to: f(
                    p.f32(3, 32), p.f16(2, 4, 32), p.u32(2), w_order="nk", activations=to
                ),
                ATTR,
                "activations",
                f"'{to}'|None|Int4|Quantized",
            )
            for to in ("int8", "f16", "bf16")
        ),
        (
            "int8 in kn",
            lambda p: by_int4(p, w_order="kn", activations="int8"),
            ATTR,
            "w_order",
            "'kn'|'nk'|int8",
        ),
        (
            "group does not divide K",
            lambda p: by_int4(p, k=96, group=64, activations="int8"),
            SHAPE,
            "x",
            "[3 96]|96|multiple of 64|int8",
        ),
        (
            "block does not divide K",
            lambda p: f(
                p.f32(3, 48), p.quantized(2, 5, 48), p.u32(2), w_order="nk", activations="int8"
            ),
            SHAPE,
            "x",
            "[3 48]|48|multiple of 32|int8",
        ),
        helper=by_int4,
    )


NARROW = [
    *grouped_rows("grouped_matvec"),
    *grouped_rows("grouped_matmul"),
    *rows(
        "quant_matmul",
        (
            "another type",
            lambda p: quant(p, activations="i8"),
            ATTR,
            "activations",
            "'i8'|None, 'int8', 'f16' or 'bf16'",
        ),
        ("empty type", lambda p: quant(p, activations=""), ATTR, "activations", "''|'int8'"),
        (
            "int8 in kn",
            lambda p: T.quant_matmul(p.f32(2, 64), p.quantized(64, 5), activations="int8"),
            ATTR,
            "w_order",
            "'kn'|'nk'|int8",
        ),
        (
            "block does not divide K",
            lambda p: T.quant_matmul(
                p.f16(2, 48), p.quantized(5, 48), w_order="nk", activations="int8"
            ),
            SHAPE,
            "x",
            "[2 48]|48|multiple of 32|int8",
        ),
        helper=quant,
    ),
    *rows(
        "int4_matmul",
        (
            "another activations type",
            lambda p: matmul(p, activations="f32"),
            ATTR,
            "activations",
            "'f32'|None, 'int8', 'f16' or 'bf16'",
        ),
        (
            "int8 in kn",
            lambda p: matmul(p, w_order="kn", activations="int8"),
            ATTR,
            "w_order",
            "'kn'|'nk'",
        ),
        (
            "group does not divide K",
            lambda p: matmul(p, k=96, group=64, activations="int8"),
            SHAPE,
            "a",
            "[2 96]|96|multiple of 64",
        ),
        helper=matmul,
    ),
    *rows(
        "int4_matvec",
        (
            "another activations type",
            lambda p: matvec(p, activations="INT8"),
            ATTR,
            "activations",
            "'INT8'|'int8'",
        ),
        (
            "int8 in kn",
            lambda p: matvec(p, w_order="kn", activations="int8"),
            ATTR,
            "w_order",
            "'kn'|'nk'",
        ),
        (
            "group does not divide K",
            lambda p: matvec(p, k=64, group=128, activations="int8"),
            SHAPE,
            "a",
            "[64]|64|multiple of 128",
        ),
        helper=matvec,
    ),
]
