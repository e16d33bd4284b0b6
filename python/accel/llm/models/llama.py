"""Llama. A GGUF file stores the rows of q and k so that adjacent elements rotate together."""

from __future__ import annotations

from ..keys import Keys
from .decoder import GGUF, HF, Decoder, Traits
from .read import gguf_config, gguf_rope, gguf_sizes, hf_config, hf_rope, hf_sizes


class Llama(Decoder):
    family = "llama"

    @classmethod
    def from_hf(cls, keys: Keys) -> Llama:
        sizes = hf_sizes(keys, derived=True)
        rope = hf_rope(keys, sizes, 10000.0)
        keys.only("hidden_act", "silu")
        bias = keys.flag("attention_bias", False)
        traits = Traits(rope, qkv_bias=bias, o_bias=bias, mlp_bias=keys.flag("mlp_bias", False))
        return cls(keys.path, hf_config(keys, sizes, rope), traits, HF)

    @classmethod
    def from_gguf(cls, keys: Keys, vocab: int, tensors) -> Decoder:
        if "expert_count" in keys:
            from .mixtral import Mixtral

            return Mixtral.from_gguf(keys, vocab, tensors)
        sizes = gguf_sizes(keys, vocab)
        rope = gguf_rope(keys, sizes["head_dim"])
        tied = GGUF("head") not in tensors
        config = gguf_config(keys, sizes, rope, "llama", tied)
        return cls(keys.path, config, Traits(rope, pairing="adjacent"), GGUF)
