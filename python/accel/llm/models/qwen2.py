"""Qwen2: biases on queries, keys and values; some layers may see a window only."""

from __future__ import annotations

from ..keys import Keys
from .decoder import GGUF, HF, Decoder, Traits
from .read import (
    FULL,
    SLIDING,
    gguf_config,
    gguf_rope,
    gguf_sizes,
    hf_config,
    hf_rope,
    hf_sizes,
    layer_types,
)


def qwen_windows(keys: Keys, layers: int) -> tuple[int | None, ...]:
    """use_sliding_window switches on the window of the layers from max_window_layers on."""
    used = keys.flag("use_sliding_window", False)
    window = keys.integer("sliding_window", 4096 if used else None)
    first = keys.count("max_window_layers", 28)
    default = [SLIDING if used and i >= first else FULL for i in range(layers)]
    types = layer_types(keys, layers, default, (FULL, SLIDING))
    if not used and SLIDING in types:
        raise keys.bad("use_sliding_window", False, "true where a layer slides")
    return tuple(window if t == SLIDING else None for t in types)


class Qwen2(Decoder):
    family = "qwen2"

    @classmethod
    def from_hf(cls, keys: Keys) -> Qwen2:
        sizes = hf_sizes(keys, derived=True)
        rope = hf_rope(keys, sizes, 10000.0)
        keys.only("hidden_act", "silu")
        windows = qwen_windows(keys, sizes["layers"])
        traits = Traits(rope, qkv_bias=True, windows=windows)
        return cls(keys.path, hf_config(keys, sizes, rope), traits, HF)

    @classmethod
    def from_gguf(cls, keys: Keys, vocab: int, tensors) -> Qwen2:
        sizes = gguf_sizes(keys, vocab)
        rope = gguf_rope(keys, sizes["head_dim"])
        tied = GGUF("head") not in tensors
        config = gguf_config(keys, sizes, rope, "qwen2", tied)
        return cls(keys.path, config, Traits(rope, qkv_bias=True), GGUF)
