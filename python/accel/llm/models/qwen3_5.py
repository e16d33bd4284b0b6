"""Qwen3.5 (text): the layers of Qwen3-Next with one projection an operand and plain feed-forward
layers."""

from __future__ import annotations

from ..keys import Keys
from .decoder import HF, Decoder, Traits
from .delta import read_delta
from .moe import with_names
from .qwen3_next import DELTA, IGNORED, ROTATED, Hybrid, hybrid_types
from .read import hf_config, hf_rope, hf_sizes

_NAMES = {
    "in_qkv": "linear_attn.in_proj_qkv.weight",
    "in_z": "linear_attn.in_proj_z.weight",
    "in_b": "linear_attn.in_proj_b.weight",
    "in_a": "linear_attn.in_proj_a.weight",
}


class Qwen35(Hybrid):
    family = "qwen3_5"

    @classmethod
    def from_hf(cls, keys: Keys) -> Qwen35:
        sizes = hf_sizes(keys)
        rope = hf_rope(keys, sizes, 10000.0, ROTATED)
        keys.only("hidden_act", "silu")
        bias = keys.flag("attention_bias", False)
        types = hybrid_types(keys, sizes["layers"])
        config = hf_config(keys, sizes, rope)
        traits = Traits(
            rope, qkv_bias=bias, o_bias=bias, qk_norm=True, one_plus_gain=True, ignored=IGNORED
        )
        names = with_names(HF, {**DELTA, **_NAMES})
        return cls(keys.path, config, traits, names, None, types, read_delta(keys))

    def _check(self) -> None:
        Decoder._check(self)

    def projection_parts(self, i: int):
        d, hidden = self.delta, self.config.hidden
        for name, rows in (("in_qkv", d.channels), ("in_z", d.values),
                           ("in_b", d.value_heads), ("in_a", d.value_heads)):  # fmt: skip
            yield self.part(name, (rows, hidden), i)

    def projections(self, g, h, i: int):
        return tuple(g.product(h, f"{i}.{name}") for name in ("in_qkv", "in_z", "in_b", "in_a"))

    def ffn_parts(self, i: int):
        return Decoder.ffn_parts(self, i)

    def ffn(self, g, h, i: int):
        return Decoder.ffn(self, g, h, i)
