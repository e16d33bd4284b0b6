"""Qwen3: queries and keys are normed, head by head, before they rotate."""

from __future__ import annotations

from ..keys import Keys
from .decoder import GGUF, HF, Decoder, Traits
from .qwen2 import qwen_windows
from .read import gguf_config, gguf_rope, gguf_sizes, hf_config, hf_rope, hf_sizes


class Qwen3(Decoder):
    family = "qwen3"

    @classmethod
    def from_hf(cls, keys: Keys) -> Qwen3:
        sizes = hf_sizes(keys)
        rope = hf_rope(keys, sizes, 10000.0)
        keys.only("hidden_act", "silu")
        bias = keys.flag("attention_bias", False)
        windows = qwen_windows(keys, sizes["layers"])
        traits = Traits(rope, qkv_bias=bias, o_bias=bias, qk_norm=True, windows=windows)
        return cls(keys.path, hf_config(keys, sizes, rope), traits, HF)

    @classmethod
    def from_gguf(cls, keys: Keys, vocab: int, tensors) -> Qwen3:
        sizes = gguf_sizes(keys, vocab)
        rope = gguf_rope(keys, sizes["head_dim"])
        tied = GGUF("head") not in tensors
        config = gguf_config(keys, sizes, rope, "qwen3", tied)
        return cls(keys.path, config, Traits(rope, qk_norm=True), GGUF)
