"""Designed values: what breaks operators is rarely in normal random numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np

NUMPY = {
    "f32": np.dtype(np.float32),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "i32": np.dtype(np.int32),
    "u32": np.dtype(np.uint32),
    "i8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
}
NAMES = {dtype: name for name, dtype in NUMPY.items()}
_SPECIALS = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1.1754942e-38,
    3.4028235e38,
    -3.4028235e38,
    65504.0,
    65520.0,
    2.0**-24,
    2.0**-25,
]


def make(data, rng: np.random.Generator, shape, dtype: str) -> np.ndarray:
    """An array of a storage type; `data` is a generator's name or (name, argument)."""
    name, *arguments = (data,) if isinstance(data, str) else data
    values = GENERATORS[name](rng, tuple(shape), *arguments)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.ascontiguousarray(values.astype(NUMPY[dtype]).reshape(shape))


def normal(rng, shape):
    return rng.standard_normal(shape)


def scaled(rng, shape, factor):
    return rng.standard_normal(shape) * factor


def uniform(rng, shape):
    return rng.random(shape)


def codes(rng, shape):
    """Integers that every integer type holds after wrapping."""
    return rng.integers(-128, 256, shape)


def below(rng, shape, n):
    return rng.integers(0, n, shape, dtype=np.uint64)


def given(rng, shape, values):
    return np.array(values)


def zeros(rng, shape):
    return np.zeros(shape)


def equal(rng, shape):
    return np.full(shape, 0.3)


def negative(rng, shape):
    return -1 - rng.random(shape) * 5


def ties(rng, shape):
    """Few distinct values, the largest several times a row."""
    return rng.integers(-3, 3, shape) * 0.5


def signed_zeros(rng, shape):
    return np.where(rng.random(shape) < 0.5, -0.0, 0.0) - (rng.random(shape) < 0.3) * 1.0


def wide(rng, shape):
    """From -120 to 120: past both ends of exp."""
    return rng.uniform(-120, 120, shape)


def at_88(rng, shape):
    return rng.choice([-104.0, -103.3, -88.8, -88.0, 0.0, 88.0, 88.8, 100.0], shape)


def huge(rng, shape):
    return rng.standard_normal(shape) * 1e25


def large_scores(rng, shape):
    return rng.standard_normal(shape) * 20


def subnormal(rng, shape):
    """Around the least normal numbers of f32 and of f16."""
    return rng.standard_normal(shape) * rng.choice([1e-42, 2e-38, 1e-7, 6e-5], shape)


def specials(rng, shape):
    return np.resize(np.array(_SPECIALS), shape)


def reversed_specials(rng, shape):
    return np.resize(np.array(_SPECIALS[::-1] + [2.0]), shape)


def halfway(rng, shape):
    """Exactly between two f16 values, and one f32 step to either side."""
    base = rng.integers(0, 0x7BFF, shape).astype(np.uint16)
    low, high = base.view(np.float16), (base + np.uint16(1)).view(np.float16)
    middle = ((low.astype(np.float64) + high.astype(np.float64)) / 2).astype(np.float32)
    step = rng.integers(-1, 2, shape).astype(np.int32)
    return (middle.view(np.int32) + step).view(np.float32) * rng.choice(
        np.array([-1, 1], np.float32), shape
    )


def row_specials(rng, shape):
    """Rows that hold +inf, NaN, -inf, and one ordinary row after them."""
    values = rng.standard_normal(shape)
    for row, special in zip(values.reshape(-1, shape[-1]), [np.inf, np.nan, -np.inf], strict=False):
        row[shape[-1] // 3] = special
    return values


def some_minus_inf(rng, shape):
    return np.where(rng.random(shape) < 0.4, -np.inf, rng.standard_normal(shape))


def minus_inf(rng, shape):
    return np.full(shape, -np.inf)


def nan(rng, shape):
    return np.full(shape, np.nan)


def lowest(rng, shape):
    """Values that never win a maximum scan that starts at -3.4e38."""
    return np.full(shape, -3.4028235e38)


def cache(rng, shape, written):
    """Cache rows; those beyond `written` are NaN, which no result may see."""
    values = rng.standard_normal(shape)
    values[written:] = np.nan
    return values


def cache_at(rng, shape, written):
    """Cache rows; all but the `written` ones are NaN."""
    values = np.full(shape, np.nan)
    values[list(written)] = rng.standard_normal((len(written), *shape[1:]))
    return values


def weights(rng, shape):
    return rng.random(shape)


def tied_weights(rng, shape):
    return rng.integers(0, 4, shape) / 16


def clustered(rng, shape):
    """Values a few last bits apart: every digit of a radix walk decides."""
    return 1 + rng.integers(0, 3000, shape) * 2.0**-23


def mostly_equal(rng, shape):
    return np.where(rng.random(shape) < 0.9, 0.25, rng.random(shape))


def sparse_weights(rng, shape):
    return np.where(rng.random(shape) < 0.9, 0.0, rng.random(shape)) + 1e-9 * (
        np.arange(shape[-1]) == 0
    )


def peaked_weights(rng, shape):
    return np.exp(rng.standard_normal(shape) * 6)


def weight_specials(rng, shape):
    values = rng.random(shape)
    for row, special in zip(
        values.reshape(-1, shape[-1]), [np.nan, np.inf, -0.0, -1.0], strict=False
    ):
        row[shape[-1] // 3] = special
    return values


def int8_blocks(rng, shape):
    """Blocks of 32 in turn ordinary, zero, around the least normal number, whole steps up to 127,
    halves of a step, and large."""
    flat = rng.standard_normal(int(np.prod(shape)))
    for i in range(0, flat.size, 32):
        block = flat[i : i + 32]
        kind = i // 32 % 6
        if kind == 1:
            block[:] = 0
        elif kind == 2:
            block *= 1e-43
        elif kind in (3, 4):
            block[:] = rng.integers(-127, 128, block.size) + (0.5 if kind == 4 else 0)
            block[0] = -127
        elif kind == 5:
            block *= 1e30
    return flat.reshape(shape)


def int8_specials(rng, shape):
    """Every third row holds a NaN or an infinity."""
    values = rng.standard_normal(shape)
    for i, row in enumerate(values.reshape(-1, shape[-1])):
        if i % 3 == 1:
            row[shape[-1] // 2] = [np.nan, np.inf, -np.inf][i // 3 % 3]
    return values


GENERATORS = {
    f.__name__: f
    for f in (
        normal,
        scaled,
        uniform,
        codes,
        below,
        zeros,
        equal,
        negative,
        ties,
        signed_zeros,
        wide,
        at_88,
        huge,
        large_scores,
        subnormal,
        specials,
        reversed_specials,
        halfway,
        row_specials,
        some_minus_inf,
        minus_inf,
        nan,
        lowest,
        cache,
        cache_at,
        weights,
        tied_weights,
        clustered,
        mostly_equal,
        sparse_weights,
        peaked_weights,
        weight_specials,
        int8_blocks,
        int8_specials,
    )
} | {"list": given}
