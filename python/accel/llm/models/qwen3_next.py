"""Qwen3-Next: most layers follow the gated delta rule, the others attend with a gate on what they
give; every feed-forward layer has experts and a shared one."""

from __future__ import annotations

from accel import tensor

from ..keys import Keys
from .config import Config, Experts
from .decoder import HF, Names, Traits
from .delta import DeltaSizes, delta_parts, delta_rule, delta_states, read_delta
from .mixtral import Mixtral
from .moe import shared_expert, swiglu_experts, with_names
from .qwen3_moe import HF_EXPERTS, read_experts
from .read import FULL, LINEAR, hf_config, hf_rope, hf_sizes, layer_types

DELTA = {
    "conv": "linear_attn.conv1d.weight",
    "decay": "linear_attn.A_log",
    "dt_bias": "linear_attn.dt_bias",
    "delta_norm": "linear_attn.norm.weight",
    "delta_out": "linear_attn.out_proj.weight",
}
_NAMES = {
    "qkvz": "linear_attn.in_proj_qkvz.weight",
    "ba": "linear_attn.in_proj_ba.weight",
    "shared_gate": "mlp.shared_expert.gate_proj.weight",
    "shared_up": "mlp.shared_expert.up_proj.weight",
    "shared_down": "mlp.shared_expert.down_proj.weight",
    "shared_router": "mlp.shared_expert_gate.weight",
}
_EVERY = 4  # which layer attends, where a file does not say
ROTATED = 0.25  # of a head
IGNORED = ("rotary_emb.inv_freq", "mtp.")  # the second: weights that only drafting uses


def hybrid_types(keys: Keys, layers: int) -> list[str]:
    every = keys.integer("full_attention_interval", _EVERY)
    default = [FULL if (i + 1) % every == 0 else LINEAR for i in range(layers)]
    return layer_types(keys, layers, default, (FULL, LINEAR))


class Hybrid(Mixtral):
    """Gated attention and delta layers; the families differ in projections and feed-forward."""

    def __init__(
        self,
        path: str,
        config: Config,
        traits: Traits,
        names: Names,
        experts: Experts | None,
        types: list[str],
        delta: DeltaSizes,
    ):
        self.types, self.delta = types, delta
        self.delta_layers = [i for i, kind in enumerate(types) if kind == LINEAR]
        super().__init__(path, config, traits, names, experts)

    def attends(self, i: int) -> bool:
        return self.types[i] == FULL

    def q_rows(self) -> int:
        return 2 * super().q_rows()

    def mixer_parts(self, i: int):
        if self.attends(i):
            yield from super().mixer_parts(i)
            return
        yield self.gain("attn_norm", self.config.hidden, i)
        yield from self.projection_parts(i)
        yield from delta_parts(self, self.delta, i)

    def states(self, kv):
        return {**super().states(kv), **delta_states(self.delta, len(self.delta_layers))}

    def scalars(self) -> dict[str, float]:
        return {**super().scalars(), "delta_scale": self.delta.key_dim**-0.5}

    def mix(self, g, h, i: int, want: str):
        if self.attends(i):
            return self.attention(g, h, i, want)
        at = self.delta_layers.index(i)
        y = delta_rule(self, g, i, at, self.delta, *self.projections(g, h, i))
        if want == "none":
            return None
        return g.product(g.last(y) if want == "last" else y, f"{i}.delta_out")

    def attend(self, g, q, k, v, i: int, want: str):
        """The product of q holds, for each head, the query and then the gate."""
        c, n = self.config, q.shape[0]
        both = tensor.reshape(q, [n, c.heads, 2 * c.head_dim])
        q, gate = (
            tensor.contiguous(tensor.slice(both, 2, at, at + c.head_dim)) for at in (0, c.head_dim)
        )
        gate = tensor.reshape(gate, [n, c.heads * c.head_dim])
        return tensor.mul(self.scores(g, q, k, v, i, want), tensor.sigmoid(gate))


class Qwen3Next(Hybrid):
    family = "qwen3_next"

    @classmethod
    def from_hf(cls, keys: Keys) -> Qwen3Next:
        sizes = hf_sizes(keys)
        rope = hf_rope(keys, sizes, 10000.0, ROTATED)
        keys.only("hidden_act", "silu")
        bias = keys.flag("attention_bias", False)
        types = hybrid_types(keys, sizes["layers"])
        shared = keys.integer("shared_expert_intermediate_size")
        experts = read_experts(keys, renormalize=True, shared_ffn=shared)
        keys.value("intermediate_size", None)
        config = hf_config(keys, sizes, rope, ffn=experts.ffn)
        traits = Traits(
            rope, qkv_bias=bias, o_bias=bias, qk_norm=True, one_plus_gain=True, ignored=IGNORED
        )
        names = with_names(HF, {**HF_EXPERTS, **DELTA, **_NAMES})
        return cls(keys.path, config, traits, names, experts, types, read_delta(keys))

    def projection_parts(self, i: int):
        d, hidden = self.delta, self.config.hidden
        yield self.part("qkvz", (2 * d.keys + 2 * d.values, hidden), i)
        yield self.part("ba", (2 * d.value_heads, hidden), i)

    def projections(self, g, h, i: int):
        """Rows of both products stand by key head: its q, k, and the v and z of its value heads."""
        d, n = self.delta, g.n
        times = d.value_heads // d.key_heads
        wide = 2 * d.key_dim + 2 * times * d.value_dim
        qkvz = tensor.reshape(g.product(h, f"{i}.qkvz"), [n, d.key_heads, wide])
        ba = tensor.reshape(g.product(h, f"{i}.ba"), [n, d.key_heads, 2 * times])

        def cut(x, begin: int, count: int):
            part = tensor.contiguous(tensor.slice(x, 2, begin, begin + count))
            return tensor.reshape(part, [n, d.key_heads * count])

        v_at, v_size = 2 * d.key_dim, times * d.value_dim
        q, k = cut(qkvz, 0, d.key_dim), cut(qkvz, d.key_dim, d.key_dim)
        v, z = cut(qkvz, v_at, v_size), cut(qkvz, v_at + v_size, v_size)
        return tensor.concat(q, k, v, axis=1), z, cut(ba, 0, times), cut(ba, times, times)

    def ffn(self, g, h, i: int):
        routed = swiglu_experts(g, h, self.experts, i)
        return tensor.add(routed, shared_expert(self, g, h, i))
