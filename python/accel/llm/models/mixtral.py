"""Mixtral: Llama whose feed-forward layers are experts."""

from __future__ import annotations

from ..keys import Keys
from .config import Config, Experts
from .decoder import GGUF, HF, Decoder, Names, Traits
from .mistral import read_window
from .moe import check_experts, expert_parts, swiglu_experts, with_names
from .read import MAX_EXPERTS, gguf_config, gguf_rope, gguf_sizes, hf_config, hf_rope, hf_sizes

_HF = with_names(
    HF,
    {
        "router": "block_sparse_moe.gate.weight",
        "gate_exps": "block_sparse_moe.experts.{e}.w1.weight",
        "up_exps": "block_sparse_moe.experts.{e}.w3.weight",
        "down_exps": "block_sparse_moe.experts.{e}.w2.weight",
    },
)
GGUF_EXPERTS = {
    "router": "ffn_gate_inp.weight",
    "gate_exps": "ffn_gate_exps.weight",
    "up_exps": "ffn_up_exps.weight",
    "down_exps": "ffn_down_exps.weight",
}


class Mixtral(Decoder):
    family = "mixtral"

    def __init__(self, path: str, config: Config, traits: Traits, names: Names, experts: Experts):
        self.experts = experts
        super().__init__(path, config, traits, names)

    @classmethod
    def from_hf(cls, keys: Keys) -> Mixtral:
        sizes = hf_sizes(keys, derived=True, eps=1e-5)
        rope = hf_rope(keys, sizes, 1e6)
        keys.only("hidden_act", "silu")
        windows = (read_window(keys, None),) * sizes["layers"]
        config = hf_config(keys, sizes, rope)
        count, chosen = (
            keys.integer("num_local_experts", most=MAX_EXPERTS),
            keys.integer("num_experts_per_tok"),
        )
        experts = Experts(count, chosen, config.ffn)
        return cls(keys.path, config, Traits(rope, windows=windows), _HF, experts)

    @classmethod
    def from_gguf(cls, keys: Keys, vocab: int, tensors) -> Mixtral:
        sizes = gguf_sizes(keys, vocab)
        rope = gguf_rope(keys, sizes["head_dim"])
        tied = GGUF("head") not in tensors
        config = gguf_config(keys, sizes, rope, "llama", tied)
        count, chosen = (
            keys.integer("expert_count", most=MAX_EXPERTS),
            keys.integer("expert_used_count"),
        )
        experts = Experts(count, chosen, config.ffn)
        names = with_names(GGUF, GGUF_EXPERTS)
        return cls(keys.path, config, Traits(rope, pairing="adjacent"), names, experts)

    def _check(self) -> None:
        super()._check()
        check_experts(self.path, self.experts)

    def ffn_parts(self, i: int):
        return expert_parts(self, self.experts, i)

    def ffn(self, g, h, i: int):
        return swiglu_experts(g, h, self.experts, i)
