"""Host quantizers: f32 arrays to planes and back, and GGUF blocks to planes.

Arithmetic is in float64; each stored number is rounded once, to nearest even.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from accel import _core
from accel._core import INT4_GROUP, INT8_BLOCK

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "INT4_GROUP",
    "INT8_BLOCK",
    "Int4Planes",
    "Int8Planes",
    "gguf_planes",
    "int4_bound",
    "int4_dequantize",
    "int4_quantize",
    "int8_bound",
    "int8_dequantize",
    "int8_quantize",
]


class Int8Planes(NamedTuple):
    """Symmetric int8 in blocks of 32: a weight is quant * scale."""

    quants: np.ndarray
    scales: np.ndarray


class Int4Planes(NamedTuple):
    """Int4 in groups, eight codes a u32 word, low nibble first.

    With zeros a weight is (code - zero) * scale, or zero where the scale is 0; with biases it is
    scale * code + bias.
    """

    codes: np.ndarray
    scales: np.ndarray
    zeros: np.ndarray | None
    biases: np.ndarray | None
    weights: int
    group: int


def int8_quantize(w: np.ndarray) -> Int8Planes:
    """Quantize f32 weights in blocks of 32 of the flattened array.

    Args:
        w: f32, any shape; finite
    """
    return _core.int8_quantize(w)


def int8_dequantize(quants: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """The f32 weights of int8 planes, quant * scale.

    Args:
        quants: i8, any shape
        scales: f16, one a block of 32
    """
    return _core.int8_dequantize(quants, scales)


def int8_bound(x: np.ndarray, scales: np.ndarray) -> float:
    """What quantizing can move a dot product with x: the sum of abs(x) * scale / 2.

    Args:
        x: f32, the other side of the product
        scales: f32, one a term
    """
    return _core.int8_bound(x, scales)


def int4_quantize(w: np.ndarray, group: int = INT4_GROUP) -> Int4Planes:
    """Quantize f32 weights in groups of the flattened array, with zero points.

    Args:
        w: f32, any shape; finite
        group: 32, 64 or 128
    """
    return _core.int4_quantize(w, group)


def int4_dequantize(
    codes: np.ndarray,
    scales: np.ndarray,
    zeros: np.ndarray,
    weights: int,
    group: int = INT4_GROUP,
) -> np.ndarray:
    """The f32 weights of int4 planes with zero points.

    Args:
        codes: u32, eight a word
        scales: f16, one a group
        zeros: f16, one a group
        weights: how many weights the codes hold
        group: 32, 64 or 128
    """
    return _core.int4_dequantize(codes, scales, zeros, weights, group)


def int4_bound(x: np.ndarray, scales: np.ndarray, zeros: np.ndarray) -> float:
    """What quantizing can move a dot product with x, from the stored scales and zeros.

    Args:
        x: f32, the other side of the product
        scales: f32, one a term
        zeros: f32, one a term
    """
    return _core.int4_bound(x, scales, zeros)


def gguf_planes(
    type: int | str, blocks: np.ndarray, shape: Sequence[int], threads: int = 0
) -> tuple[Int4Planes | Int8Planes | np.ndarray, float]:
    """The planes of one GGUF tensor, and the largest error that holding it so makes.

    F32, F16 and BF16 give an array, Q8_0 Int8Planes, Q4_0, Q4_1 and Q4_K Int4Planes of group 32;
    these are exact, in flat order n * K + k, as w_order="nk" reads them. Q5_0, Q5_1, Q2_K, Q3_K,
    Q5_K and Q6_K give an f16 array; a weight that f16 cannot hold is refused.

    Args:
        type: the format's number or name of the type
        blocks: u8, the tensor's bytes as stored
        shape: outermost axis first
        threads: 0 is all cores; the result is the same for any number
    """
    return _core.gguf_planes(type, blocks, shape, threads)
