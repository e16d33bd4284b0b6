"""Reads the keys of a configuration with their types checked, and finds those that nobody read.

A key that is not read may change what the model computes: it is refused, never ignored.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from typing import Any

from .errors import format_error, unsupported

_REQUIRED: Any = object()
# Keys of a config.json that say nothing about the arithmetic of a forward pass.
HARMLESS = {
    "_attn_implementation_autoset", "_name_or_path", "architectures", "attention_dropout",
    "attn_pdrop", "auto_map", "bos_token_id", "cache_implementation", "dtype", "embd_pdrop",
    "eos_token_id", "id2label", "initial_context_length", "initializer_range", "label2id",
    "model_type", "output_attentions", "output_hidden_states", "output_router_logits",
    "pad_token_id", "pretraining_tp", "problem_type", "resid_pdrop", "return_dict",
    "router_aux_loss_coef", "router_jitter_noise", "torch_dtype", "transformers_version",
    "unsloth_fixed", "unsloth_version", "use_cache",
}  # fmt: skip


def _positive_f32(value: Any) -> bool:
    """Whether what the kernels compute with, the value rounded to f32, is finite and above 0."""
    if type(value) not in (int, float):
        return False
    try:
        (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    except (OverflowError, struct.error):  # the second for an int that f64 does not hold
        return False
    return 0 < rounded < math.inf


class Keys:
    """The keys of one object. A key that holds null reads as if it were absent."""

    def __init__(
        self, path: str, values: Mapping[str, Any], prefix: str = "", harmless=frozenset()
    ):
        self.path, self._prefix, self._harmless = path, prefix, harmless
        self._values = values
        self._names = {k for k in values if k.startswith(prefix)}
        self._read: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return self._values.get(self._prefix + key) is not None

    def given(self, key: str) -> bool:
        """Whether the key is there, even if it holds null."""
        return self._prefix + key in self._values

    def value(self, key: str, default: Any = _REQUIRED) -> Any:
        name = self._prefix + key
        self._read.add(name)
        value = self._values.get(name)
        if value is not None:
            return value
        if default is _REQUIRED:
            raise self.bad(key, None, "there")
        return default

    def integer(self, key: str, default: Any = _REQUIRED, most: int = 2**31) -> int:
        def right(v):
            return type(v) is int and 0 < v <= most

        return self._checked(key, default, right, f"an integer from 1 to {most}")

    def count(self, key: str, default: Any = _REQUIRED) -> int:
        return self._checked(key, default, lambda v: type(v) is int and v >= 0, "an integer from 0")

    def real(self, key: str, default: Any = _REQUIRED) -> float:
        return self._checked(key, default, _positive_f32, "a positive number that f32 holds")

    def flag(self, key: str, default: Any = _REQUIRED) -> bool:
        return self._checked(key, default, lambda v: type(v) is bool, "true or false")

    def text(self, key: str, default: Any = _REQUIRED) -> str:
        return self._checked(key, default, lambda v: isinstance(v, str), "text")

    def words(self, key: str, default: Any = _REQUIRED) -> list[str]:
        def right(v):
            return isinstance(v, list) and all(isinstance(w, str) for w in v)

        return self._checked(key, default, right, "a list of text")

    def _checked(self, key: str, default: Any, right, must: str) -> Any:
        value = self.value(key, default)
        if value is not default and not right(value):
            raise self.bad(key, value, must)
        return value

    def part(self, key: str) -> Keys | None:
        """The object under a key, whose own keys must all be read too."""
        value = self.value(key, None)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.bad(key, value, "an object")
        return Keys(f"{self.path}: {key}", value)

    def only(self, key: str, wanted: Any, default: Any = None) -> None:
        """Refuses any value but one: the graph computes that one."""
        value = self.value(key, default)
        if value is not None and value != wanted:
            name = self._prefix + key
            raise unsupported(f"{self.path}: key {name!r} is {value!r} and must be {wanted!r}")

    def bad(self, key: str, value: object, must: str):
        name = self._prefix + key
        return format_error(self.path, f"key {name!r} is {value!r:.60} and must be {must}")

    def finish(self) -> None:
        """Refuses the first key that was not read, unless it holds null or false."""
        for name in self._values:
            if name not in self._names or name in self._read or name in self._harmless:
                continue
            value = self._values[name]
            if value is None or value is False:
                continue
            raise unsupported(f"{self.path}: key {name!r} is not supported")
