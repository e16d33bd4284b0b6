"""Gemma 3 (text): norms on both sides of each block, gains of 1 + w, a scaled embedding, and layers
with a window and positions of their own."""

from __future__ import annotations

import math

from accel import tensor

from ..keys import Keys
from .config import Config
from .decoder import HF, Decoder, Names, Traits
from .moe import with_names
from .read import FULL, SLIDING, hf_config, hf_sizes, layer_types
from .rope import Rope, read_rope

_NAMES = with_names(
    HF,
    {
        "attn_after": "post_attention_layernorm.weight",
        "ffn_norm": "pre_feedforward_layernorm.weight",
        "ffn_after": "post_feedforward_layernorm.weight",
    },
)
_LOCAL = "_local"  # suffix of the positions of layers with a window


class Gemma3(Decoder):
    family = "gemma3"

    def __init__(
        self,
        path: str,
        config: Config,
        traits: Traits,
        names: Names,
        local: Rope,
        cap: float | None,
    ):
        self.local, self.cap = local, cap
        super().__init__(path, config, traits, names)

    @classmethod
    def from_hf(cls, keys: Keys) -> Gemma3:
        sizes = hf_sizes(keys)
        keys.only("hidden_activation", "gelu_pytorch_tanh", "gelu_pytorch_tanh")
        keys.only("use_bidirectional_attention", False)
        keys.only("attention_bias", False)
        keys.only("attn_logit_softcapping", None)  # which files name and nobody applies
        pattern = keys.integer("_sliding_window_pattern", keys.integer("sliding_window_pattern", 6))
        default = [FULL if (i + 1) % pattern == 0 else SLIDING for i in range(sizes["layers"])]
        types = layer_types(keys, sizes["layers"], default, (FULL, SLIDING))
        window = keys.integer("sliding_window", 4096)
        rope, local = _ropes(keys, sizes)
        cap = keys.real("final_logit_softcapping", None)
        traits = Traits(
            rope,
            qk_norm=True,
            one_plus_gain=True,
            windows=tuple(window if t == SLIDING else None for t in types),
            score_scale=keys.real("query_pre_attn_scalar", 256) ** -0.5,
        )
        config = hf_config(keys, sizes, rope, tied=True)
        return cls(keys.path, config, traits, _NAMES, local, cap)

    def mixer_parts(self, i: int):
        yield from super().mixer_parts(i)
        yield self.gain("attn_after", self.config.hidden, i)

    def ffn_parts(self, i: int):
        yield from super().ffn_parts(i)
        yield self.gain("ffn_after", self.config.hidden, i)

    def ropes(self) -> dict[str, Rope]:
        return {"": self.traits.rope, _LOCAL: self.local}

    def rope_suffix(self, i: int) -> str:
        return _LOCAL if self.traits.windows[i] is not None else ""

    def scalars(self) -> dict[str, float]:
        found = {**super().scalars(), "embed_scale": math.sqrt(self.config.hidden)}
        if self.cap is not None:
            found |= {"cap": self.cap, "cap_inverse": 1 / self.cap}
        return found

    def embed(self, g):
        return tensor.scale(super().embed(g), g.scalar("embed_scale"))

    def head(self, g, h):
        logits = super().head(g, h)
        if self.cap is None:
            return logits
        inside = tensor.tanh(tensor.scale(logits, g.scalar("cap_inverse")))
        return tensor.scale(inside, g.scalar("cap"))

    def mix(self, g, h, i: int, want: str):
        mixed = super().mix(g, h, i, want)
        return None if mixed is None else self.norm(g, mixed, f"{i}.attn_after")

    def ffn(self, g, h, i: int):
        return self.norm(g, super().ffn(g, h, i), f"{i}.ffn_after")

    def gated(self, g, h, gate: str, up: str, down: str):
        opened = tensor.gelu(g.product(h, gate), form="tanh")
        return g.product(tensor.mul(opened, g.product(h, up)), down)


def _ropes(keys: Keys, sizes: dict) -> tuple[Rope, Rope]:
    """Positions of the layers that see all, and of those with a window.

    Newer files name a form for each kind of layer; older ones two bases and a scaling of the first.
    """
    base, local = keys.real("rope_theta", 1e6), keys.real("rope_local_base_freq", 10000.0)
    context, dim = sizes["context"], sizes["head_dim"]
    both = keys.part("rope_parameters")
    if both is not None and (FULL in both or SLIDING in both):
        parts = both.part(FULL), both.part(SLIDING)
        both.finish()
    else:
        parts = both or keys.part("rope_scaling"), None
    full = read_rope(parts[0], base, dim, context)
    return full, read_rope(parts[1], local, dim, context)
