"""Rotary positions: the plain base, and tables of frequencies for the scaled forms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..errors import format_error, unsupported
from ..keys import Keys


@dataclass(frozen=True)
class Rope:
    """frequencies None is base ** (-2k / dim). `factor` multiplies what is rotated."""

    base: float
    dim: int
    frequencies: np.ndarray | None = None
    factor: float = 1.0


def plain_frequencies(base: float, dim: int) -> np.ndarray:
    return base ** (-np.arange(0, dim, 2, dtype=np.float64) / dim)


def read_rope(keys: Keys | None, base: float, head_dim: int, context: int, share=1.0) -> Rope:
    """The form that the keys of a rope_parameters or rope_scaling object name.

    base and share (of the head that rotates) are what holds where the object does not say.
    """
    if keys is None:
        return Rope(base, int(head_dim * share))
    base = float(keys.real("rope_theta", base))
    dim = int(head_dim * keys.real("partial_rotary_factor", share))
    kind = keys.text("rope_type", keys.text("type", "default"))
    if kind not in _FORMS:
        names = ", ".join(_FORMS)
        raise unsupported(f"{keys.path}: rope_type is {kind!r} and must be one of {names}")
    rope = _FORMS[kind](keys, base, dim, context)
    keys.finish()
    return rope


def _default(keys: Keys, base: float, dim: int, context: int) -> Rope:
    # The three axes of an image's positions are equal in text: any split of them is the plain form.
    keys.value("mrope_section", None)
    keys.value("mrope_interleaved", None)
    return Rope(base, dim)


def _linear(keys: Keys, base: float, dim: int, context: int) -> Rope:
    factor = keys.real("factor")
    return Rope(base, dim, _table(keys, plain_frequencies(base, dim) / factor, factor))


def _llama3(keys: Keys, base: float, dim: int, context: int) -> Rope:
    """Long waves are slowed by factor, short ones kept, those between blended."""
    factor, low, high = (keys.real(k) for k in ("factor", "low_freq_factor", "high_freq_factor"))
    if low >= high:
        raise format_error(keys.path, f"low_freq_factor {low} must be below {high}")
    original = keys.integer("original_max_position_embeddings", context)
    f = plain_frequencies(base, dim)
    turns = original * f / (2 * math.pi)
    kept = np.clip((turns - low) / (high - low), 0, 1)
    return Rope(base, dim, _table(keys, kept * f + (1 - kept) * f / factor, factor))


def _yarn(keys: Keys, base: float, dim: int, context: int) -> Rope:
    """A ramp over the frequencies between those kept and those slowed by factor."""
    if base <= 1:
        raise keys.bad("rope_theta", base, "above 1 where rope_type is 'yarn'")
    original = keys.integer("original_max_position_embeddings")
    factor = float(keys.real("factor", context / original))
    fast, slow = keys.real("beta_fast", 32), keys.real("beta_slow", 1)

    def place(turns: float) -> float:
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = place(fast), place(slow)
    if keys.flag("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    high = high + 0.001 if low == high else high
    slowed = np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    f = plain_frequencies(base, dim)
    table = _table(keys, slowed * f / factor + (1 - slowed) * f, factor)
    return Rope(base, dim, table, _strength(keys, factor))


def _strength(keys: Keys, factor: float) -> float:
    """What YaRN multiplies queries and keys with."""

    def grown(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1 if factor > 1 else 1.0

    given = keys.real("attention_factor", None)
    one, all_dim = keys.real("mscale", None), keys.real("mscale_all_dim", None)
    if given is not None:
        return float(given)
    return grown(one) / grown(all_dim) if one and all_dim else grown(1)


def _table(keys: Keys, f: np.ndarray, factor: float) -> np.ndarray:
    with np.errstate(over="ignore"):
        table = f.astype(np.float32)
    if not np.isfinite(table).all():
        raise keys.bad("factor", factor, "one that keeps the frequencies inside f32")
    return table


_FORMS = {"default": _default, "linear": _linear, "llama3": _llama3, "yarn": _yarn}
