"""Qwen3 with experts in its feed-forward layers."""

from __future__ import annotations

from ..keys import Keys
from .config import Experts
from .decoder import GGUF, HF, Traits
from .mixtral import GGUF_EXPERTS, Mixtral
from .moe import with_names
from .qwen2 import qwen_windows
from .read import MAX_EXPERTS, gguf_config, gguf_rope, gguf_sizes, hf_config, hf_rope, hf_sizes

HF_EXPERTS = {
    "router": "mlp.gate.weight",
    "gate_exps": "mlp.experts.{e}.gate_proj.weight",
    "up_exps": "mlp.experts.{e}.up_proj.weight",
    "down_exps": "mlp.experts.{e}.down_proj.weight",
}


def read_experts(keys: Keys, renormalize: bool, shared_ffn: int = 0) -> Experts:
    """Every layer must be one of experts: a mixture of both kinds is refused."""
    keys.only("decoder_sparse_step", 1)
    keys.only("mlp_only_layers", [])
    name = "num_experts" if "num_experts" in keys else "num_local_experts"
    return Experts(
        keys.integer(name, most=MAX_EXPERTS),
        keys.integer("num_experts_per_tok"),
        keys.integer("moe_intermediate_size"),
        keys.flag("norm_topk_prob", renormalize),
        shared_ffn,
    )


class Qwen3Moe(Mixtral):
    family = "qwen3_moe"

    @classmethod
    def from_hf(cls, keys: Keys) -> Qwen3Moe:
        sizes = hf_sizes(keys)
        rope = hf_rope(keys, sizes, 10000.0)
        keys.only("hidden_act", "silu")
        bias = keys.flag("attention_bias", False)
        windows = qwen_windows(keys, sizes["layers"])
        experts = read_experts(keys, renormalize=False)
        keys.value("intermediate_size", None)  # of layers without experts, which there are none of
        config = hf_config(keys, sizes, rope, ffn=experts.ffn)
        traits = Traits(rope, qkv_bias=bias, o_bias=bias, qk_norm=True, windows=windows)
        return cls(keys.path, config, traits, with_names(HF, HF_EXPERTS), experts)

    @classmethod
    def from_gguf(cls, keys: Keys, vocab: int, tensors) -> Qwen3Moe:
        sizes = gguf_sizes(keys, vocab)
        rope = gguf_rope(keys, sizes["head_dim"])
        tied = GGUF("head") not in tensors
        ffn = keys.integer("expert_feed_forward_length")
        keys.value("feed_forward_length", None)
        config = gguf_config(keys, sizes, rope, "qwen3moe", tied, ffn=ffn)
        count, chosen = (
            keys.integer("expert_count", most=MAX_EXPERTS),
            keys.integer("expert_used_count"),
        )
        experts = Experts(count, chosen, ffn)
        names = with_names(GGUF, GGUF_EXPERTS)
        return cls(keys.path, config, Traits(rope, qk_norm=True), names, experts)
