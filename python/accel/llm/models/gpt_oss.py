"""gpt-oss: attention with a learned sink a head, and experts with biases and a clamped gate."""

from __future__ import annotations

from accel import tensor

from ..keys import Keys
from .config import Config, Experts
from .decoder import HF, Names, Traits
from .mixtral import Mixtral
from .moe import mixture, with_names
from .read import FULL, MAX_EXPERTS, SLIDING, hf_config, hf_rope, hf_sizes, layer_types

_NAMES = with_names(
    HF,
    {
        "sinks": "self_attn.sinks",
        "router": "mlp.router.weight",
        "router.bias": "mlp.router.bias",
        "experts_in": "mlp.experts.gate_up_proj",
        "experts_in.bias": "mlp.experts.gate_up_proj_bias",
        "experts_out": "mlp.experts.down_proj",
        "experts_out.bias": "mlp.experts.down_proj_bias",
    },
)


class GptOss(Mixtral):
    family = "gpt_oss"

    def __init__(
        self,
        path: str,
        config: Config,
        traits: Traits,
        names: Names,
        experts: Experts,
        alpha: float,
        limit: float,
    ):
        self.alpha, self.limit = alpha, limit
        super().__init__(path, config, traits, names, experts)

    @classmethod
    def from_hf(cls, keys: Keys) -> GptOss:
        sizes = hf_sizes(keys, eps=1e-5)
        rope = hf_rope(keys, sizes, 150000.0)
        keys.only("hidden_act", "silu")
        bias = keys.flag("attention_bias", True)
        default = [SLIDING if i % 2 == 0 else FULL for i in range(sizes["layers"])]
        types = layer_types(keys, sizes["layers"], default, (FULL, SLIDING))
        window = keys.integer("sliding_window", 128)
        windows = tuple(window if t == SLIDING else None for t in types)
        config = hf_config(keys, sizes, rope)
        count, chosen = (
            keys.integer("num_local_experts", most=MAX_EXPERTS),
            keys.integer("num_experts_per_tok"),
        )
        keys.only("experts_per_token", chosen)
        traits = Traits(rope, qkv_bias=bias, o_bias=bias, windows=windows)
        alpha, limit = keys.real("swiglu_alpha", 1.702), keys.real("swiglu_limit", 7.0)
        experts = Experts(count, chosen, config.ffn)
        return cls(keys.path, config, traits, _NAMES, experts, float(alpha), float(limit))

    def mixer_parts(self, i: int):
        yield from super().mixer_parts(i)
        yield self.part("sinks", (self.config.heads,), i, kind="vector")

    def ffn_parts(self, i: int):
        hidden, x = self.config.hidden, self.experts
        yield self.gain("ffn_norm", hidden, i)
        yield self.part("router", (x.count, hidden), i)
        yield self.part("router.bias", (x.count,), i, kind="vector")
        yield self.part("experts_in", (x.count, hidden, 2 * x.ffn), i)
        yield self.part("experts_in.bias", (x.count, 2 * x.ffn), i, kind="vector")
        yield self.part("experts_out", (x.count, x.ffn, hidden), i)
        yield self.part("experts_out.bias", (x.count, hidden), i, kind="vector")

    def scalars(self) -> dict[str, float]:
        return {**super().scalars(), "alpha": self.alpha}

    def attention_options(self, g, i: int) -> dict:
        return {**super().attention_options(g, i), "sinks": g.weight(f"{i}.sinks")}

    def ffn(self, g, h, i: int):
        def expert(rows, counts):
            both = g.grouped(rows, f"{i}.experts_in", counts, w_order="kn")
            opened = self.opened(g, both)
            return g.grouped(opened, f"{i}.experts_out", counts, w_order="kn")

        return mixture(g, h, f"{i}.router", self.experts, expert)

    def opened(self, g, both: tensor.Tensor):
        """(up + 1) * gate * sigmoid(alpha * gate); gate and up stand in turn and are clamped."""
        rows, width = both.shape
        pairs = tensor.reshape(both, [rows, width // 2, 2])

        def one(at: int):
            half = tensor.contiguous(tensor.slice(pairs, 2, at, at + 1))
            return tensor.reshape(half, [rows, width // 2])

        gate = tensor.clamp(one(0), low=float("-inf"), high=self.limit)
        up = tensor.clamp(one(1), low=-self.limit, high=self.limit)
        glu = tensor.mul(gate, tensor.sigmoid(tensor.scale(gate, g.scalar("alpha"))))
        return tensor.add(tensor.mul(up, glu), glu)
