"""Layers that mix positions by the gated delta rule: a short convolution, then a linear attention.

Both keep a state of fixed size in place of keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import accel
from accel import tensor

from ..errors import format_error
from ..keys import Keys
from ..weights import Part
from .graph import Graph, StateSpec

L2_EPS = 1e-6


@dataclass(frozen=True)
class DeltaSizes:
    """Key heads of key_dim, value heads of value_dim, and the width of the convolution."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    width: int

    @property
    def keys(self) -> int:
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        return 2 * self.keys + self.values


def read_delta(keys: Keys) -> DeltaSizes:
    sizes = DeltaSizes(
        keys.integer("linear_num_key_heads"),
        keys.integer("linear_num_value_heads"),
        keys.integer("linear_key_head_dim"),
        keys.integer("linear_value_head_dim"),
        keys.integer("linear_conv_kernel_dim"),
    )
    if sizes.value_heads % sizes.key_heads or sizes.width < 2:
        raise format_error(keys.path, f"linear attention cannot have {sizes}")
    return sizes


def decay_rate(a_log: np.ndarray) -> np.ndarray:
    return -np.exp(a_log.astype(np.float64))


def delta_parts(model, d: DeltaSizes, i: int) -> Iterator[Part]:
    """What every form has beside the projections of its input."""
    yield model.part("conv", (d.channels, d.width), i, kind="vector")
    rate = {"change": decay_rate, "changed": "-exp of it"}
    yield model.part("decay", (d.value_heads,), i, kind="vector", **rate)
    yield model.part("dt_bias", (d.value_heads,), i, kind="vector")
    yield model.part("delta_norm", (d.value_dim,), i, kind="vector")
    yield model.part("delta_out", (model.config.hidden, d.values), i)


def delta_states(d: DeltaSizes, layers: int) -> dict[str, StateSpec]:
    return {
        "conv": StateSpec(accel.F32, (layers, 1, d.width - 1, d.channels), zero=True),
        "memory": StateSpec(
            accel.F32, (layers, 1, d.value_heads, d.value_dim, d.key_dim), zero=True
        ),
    }


def delta_rule(model, g: Graph, i: int, at: int, d: DeltaSizes, qkv, z, b, a):
    """The layer's output before its last product.

    qkv [n, channels], z [n, values], b and a [n, value_heads]; `at` counts the layers of this kind.
    """
    n, rows = g.n, g.input("rows")
    conv = tensor.layer_state(g.state("conv"), at)
    mixed, _ = tensor.causal_conv1d(qkv, g.weight(f"{i}.conv"), conv, query_extents=rows)
    mixed = tensor.silu(mixed)
    q = _heads(mixed, 0, d.keys, [n, d.key_heads, d.key_dim])
    k = _heads(mixed, d.keys, 2 * d.keys, [n, d.key_heads, d.key_dim])
    v = _heads(mixed, 2 * d.keys, d.channels, [n, d.value_heads, d.value_dim])
    q = tensor.scale(tensor.l2_norm(q, eps=L2_EPS), g.scalar("delta_scale"))
    k = tensor.l2_norm(k, eps=L2_EPS)
    steps = tensor.softplus(tensor.add(a, g.weight(f"{i}.dt_bias")))
    alpha = tensor.exp(tensor.mul(steps, g.weight(f"{i}.decay")))
    memory = tensor.layer_state(g.state("memory"), at)
    out, _ = tensor.linear_attention(
        _shared(q, d), _shared(k, d), v, memory,
        alpha=alpha, beta=tensor.sigmoid(b), query_extents=rows, decay_first=True,
    )  # fmt: skip
    out = tensor.rms_norm(out, g.weight(f"{i}.delta_norm"), eps=model.config.eps)
    gate = tensor.reshape(z, [n, d.value_heads, d.value_dim])
    return tensor.reshape(tensor.swiglu(gate, out), [n, d.values])


def _heads(x, begin: int, end: int, shape: list[int]):
    return tensor.reshape(tensor.contiguous(tensor.slice(x, 1, begin, end)), shape)


def _shared(x, d: DeltaSizes):
    """Each key head once for every value head that shares it."""
    n, times = x.shape[0], d.value_heads // d.key_heads
    if times == 1:
        return x
    wide = tensor.reshape(x, [n, d.key_heads, 1, d.key_dim])
    wide = tensor.contiguous(tensor.broadcast(wide, [n, d.key_heads, times, d.key_dim]))
    return tensor.reshape(wide, [n, d.value_heads, d.key_dim])
