"""Mistral: Llama with a window of positions. Its GGUF files are of the llama architecture."""

from __future__ import annotations

from ..keys import Keys
from .decoder import HF, Decoder, Traits
from .read import hf_config, hf_rope, hf_sizes

_WINDOW = 4096  # where a config.json does not name one; null is none


def read_window(keys: Keys, default: int | None) -> int | None:
    return keys.integer("sliding_window", None if keys.given("sliding_window") else default)


class Mistral(Decoder):
    family = "mistral"

    @classmethod
    def from_hf(cls, keys: Keys) -> Mistral:
        sizes = hf_sizes(keys, derived=True)
        rope = hf_rope(keys, sizes, 10000.0)
        keys.only("hidden_act", "silu")
        windows = (read_window(keys, _WINDOW),) * sizes["layers"]
        return cls(keys.path, hf_config(keys, sizes, rope), Traits(rope, windows=windows), HF)
