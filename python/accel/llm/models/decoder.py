"""The building blocks of a decoder-only transformer, which the families choose from.

A family reads its configuration, names its tensors, and overrides what it does differently.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accel import tensor

from ..errors import format_error, unsupported
from ..weights import Part, plus_one
from .config import MAX_HEAD_DIM, Config
from .graph import Graph, StateSpec, Step
from .rope import Rope


@dataclass(frozen=True)
class Names:
    """How one format names tensors: `layer` holds `{i}`, `of` maps a part to the rest."""

    layer: str
    of: dict[str, str]

    def __call__(self, part: str, layer: int | None = None) -> str:
        name = self.of[part]
        return name if layer is None else self.layer.format(i=layer) + name


HF = Names(
    "model.layers.{i}.",
    {
        "embed": "model.embed_tokens.weight", "norm": "model.norm.weight",
        "head": "lm_head.weight",
        "attn_norm": "input_layernorm.weight", "ffn_norm": "post_attention_layernorm.weight",
        "q": "self_attn.q_proj.weight", "k": "self_attn.k_proj.weight",
        "v": "self_attn.v_proj.weight", "o": "self_attn.o_proj.weight",
        "q.bias": "self_attn.q_proj.bias", "k.bias": "self_attn.k_proj.bias",
        "v.bias": "self_attn.v_proj.bias", "o.bias": "self_attn.o_proj.bias",
        "q_norm": "self_attn.q_norm.weight", "k_norm": "self_attn.k_norm.weight",
        "gate": "mlp.gate_proj.weight", "up": "mlp.up_proj.weight", "down": "mlp.down_proj.weight",
        "gate.bias": "mlp.gate_proj.bias", "up.bias": "mlp.up_proj.bias",
        "down.bias": "mlp.down_proj.bias",
    },
)  # fmt: skip
GGUF = Names(
    "blk.{i}.",
    {
        "embed": "token_embd.weight", "norm": "output_norm.weight", "head": "output.weight",
        "attn_norm": "attn_norm.weight", "ffn_norm": "ffn_norm.weight", "q": "attn_q.weight",
        "k": "attn_k.weight", "v": "attn_v.weight", "o": "attn_output.weight",
        "q.bias": "attn_q.bias", "k.bias": "attn_k.bias", "v.bias": "attn_v.bias",
        "o.bias": "attn_output.bias",
        "q_norm": "attn_q_norm.weight", "k_norm": "attn_k_norm.weight",
        "gate": "ffn_gate.weight", "up": "ffn_up.weight", "down": "ffn_down.weight",
    },
)  # fmt: skip


@dataclass(frozen=True)
class Traits:
    """What families differ in, beside the layers that they override.

    pairing says which elements of a head rotate together. windows has one entry a layer: how many
    positions a row sees, or None for all.
    """

    rope: Rope
    pairing: str = "halves"
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    one_plus_gain: bool = False
    windows: tuple[int | None, ...] = ()
    score_scale: float | None = None
    ignored: tuple[str, ...] = ("rotary_emb.inv_freq",)


def logprob(logits, ids):
    """log_softmax of each row at one id."""
    return tensor.take(tensor.log_softmax(logits), ids)


class Decoder:
    """A model of one checkpoint: its parts, its states and the recording of its steps."""

    family = "decoder"

    def __init__(self, path: str, config: Config, traits: Traits, names: Names):
        self.path, self.config, self.traits, self.names = path, config, traits, names
        self.kv_layers = [i for i in range(config.layers) if self.attends(i)]
        self._check()

    # ------------------------------------------------------------------ what it is made of
    def attends(self, i: int) -> bool:
        """Whether layer i keeps keys and values."""
        return True

    def _check(self) -> None:
        c = self.config
        if c.heads % c.kv_heads:
            message = f"{c.heads} heads do not share {c.kv_heads} key and value heads evenly"
            raise format_error(self.path, message)
        if c.head_dim % 8 or c.head_dim > MAX_HEAD_DIM:
            must = f"must be a multiple of 8 up to {MAX_HEAD_DIM}"
            raise unsupported(f"{self.path}: head dimension is {c.head_dim} and {must}")
        if c.rotary_dim % 2 or not 0 < c.rotary_dim <= c.head_dim:
            message = f"{c.rotary_dim} elements of a head of {c.head_dim} cannot rotate in pairs"
            raise format_error(self.path, message)
        for rope in self.ropes().values():
            if rope.factor != 1 and rope.dim != c.head_dim:
                message = "attention_factor with a partly rotated head is not supported"
                raise unsupported(f"{self.path}: {message}")

    def parts(self) -> Iterator[Part]:
        """Every operand of the graph, in the order of the layers."""
        c = self.config
        yield self.part("embed", (c.vocab, c.hidden), kind="table")
        for i in range(c.layers):
            yield from self.mixer_parts(i)
            yield from self.ffn_parts(i)
        yield self.gain("norm", c.hidden)
        if not c.tied:
            yield self.part("head", (c.vocab, c.hidden))

    def part(self, name: str, shape, layer: int | None = None, **options) -> Part:
        label = name if layer is None else f"{layer}.{name}"
        return Part(label, tuple(shape), (self.names(name, layer),), **options)

    def gain(self, name: str, count: int, layer: int | None = None) -> Part:
        changed = {"change": plus_one, "changed": "plus 1"} if self.traits.one_plus_gain else {}
        return self.part(name, (count,), layer, kind="vector", **changed)

    def mixer_parts(self, i: int) -> Iterator[Part]:
        c, t = self.config, self.traits
        wide, narrow = c.heads * c.head_dim, c.kv_heads * c.head_dim
        yield self.gain("attn_norm", c.hidden, i)
        yield self.part("q", (self.q_rows(), c.hidden), i)
        yield self.part("k", (narrow, c.hidden), i)
        yield self.part("v", (narrow, c.hidden), i)
        yield self.part("o", (c.hidden, wide), i)
        if t.qkv_bias:
            for name, rows in (("q", self.q_rows()), ("k", narrow), ("v", narrow)):
                yield self.part(f"{name}.bias", (rows,), i, kind="vector")
        if t.o_bias:
            yield self.part("o.bias", (c.hidden,), i, kind="vector")
        if t.qk_norm:
            yield self.gain("q_norm", c.head_dim, i)
            yield self.gain("k_norm", c.head_dim, i)

    def q_rows(self) -> int:
        return self.config.heads * self.config.head_dim

    def ffn_parts(self, i: int) -> Iterator[Part]:
        c = self.config
        yield self.gain("ffn_norm", c.hidden, i)
        for name, shape in (("gate", (c.ffn, c.hidden)), ("up", (c.ffn, c.hidden)),
                            ("down", (c.hidden, c.ffn))):  # fmt: skip
            yield self.part(name, shape, i)
            if self.traits.mlp_bias:
                yield self.part(f"{name}.bias", shape[:1], i, kind="vector")

    def states(self, kv) -> dict[str, StateSpec]:
        c = self.config
        if not self.kv_layers:
            return {}
        cache = StateSpec(kv, (len(self.kv_layers), c.context, c.kv_heads, c.head_dim))
        return {"keys": cache, "values": cache}

    def ropes(self) -> dict[str, Rope]:
        """The rotary forms, each under the suffix of its scalar or table."""
        return {"": self.traits.rope}

    def rope_suffix(self, i: int) -> str:
        return ""

    def scalars(self) -> dict[str, float]:
        scale = self.traits.score_scale or 1 / math.sqrt(self.config.head_dim)
        found = {"scale" + s: scale * r.factor * r.factor for s, r in self.ropes().items()}
        return found | {"rope_base" + s: r.base for s, r in self.ropes().items()}

    def constants(self) -> dict[str, np.ndarray]:
        ropes = self.ropes().items()
        return {"frequencies" + s: r.frequencies for s, r in ropes if r.frequencies is not None}

    # ------------------------------------------------------------------ a recording
    def record(self, g: Graph) -> None:
        """Outputs: logits; for head "last" also next u32 [1] and logprob f32 [1] of it."""
        x = self.embed(g)
        end = self.config.layers - 1
        for i in range(end):
            x = self.layer(g, x, i, "all")
        want = "all" if g.step == Step(1, "last") else g.step.head
        x = self.layer(g, x, end, want)
        if x is not None:
            self.finish(g, x)

    def embed(self, g: Graph):
        return g.rows("embed", g.tokens)

    def finish(self, g: Graph, x) -> None:
        logits = self.head(g, self.norm(g, x, "norm"))
        g.b.output("logits", logits)
        if g.step.head == "last":
            chosen = tensor.argmax(logits)
            g.b.output("next", chosen)
            g.b.output("logprob", logprob(logits, chosen))

    def head(self, g: Graph, h):
        return g.product(h, "embed" if self.config.tied else "head")

    def norm(self, g: Graph, x, name: str):
        return tensor.rms_norm(x, g.weight(name), eps=self.config.eps)

    def layer(self, g: Graph, x, i: int, want: str):
        """All rows, the "last" alone, or "none": what a later step needs, which gives None."""
        mixed = self.mix(g, self.norm(g, x, f"{i}.attn_norm"), i, want)
        if want == "none":
            return None
        x = g.last(x) if want == "last" else x
        x = tensor.add(x, mixed)
        return tensor.add(x, self.ffn(g, self.norm(g, x, f"{i}.ffn_norm"), i))

    def mix(self, g: Graph, h, i: int, want: str):
        """What a layer takes from other positions."""
        return self.attention(g, h, i, want)

    # ------------------------------------------------------------------ attention
    def attention(self, g: Graph, h, i: int, want: str):
        # The three products of h stand together, so that a backend can start or do them as one.
        q = None
        if want != "none":
            q = self.queries(g, g.last(h) if want == "last" else h, i)
        k, v = self.write(g, h, i)
        if q is None:
            return None
        return g.product(self.attend(g, q, k, v, i, want), f"{i}.o")

    def write(self, g: Graph, h, i: int):
        """Puts this step's keys and values into the layer's cache."""
        c, at = self.config, self.kv_layers.index(i)
        shape = [g.n, c.kv_heads, c.head_dim]
        k = tensor.reshape(g.product(h, f"{i}.k"), shape)
        v = tensor.reshape(g.product(h, f"{i}.v"), shape)
        k = self.rotate(g, self.normed(g, k, f"{i}.k_norm"), g.positions, i)
        out = []
        for name, rows in (("keys", k), ("values", v)):
            state = tensor.layer_state(g.state(name), at)
            out.append(tensor.scatter_rows(state, tensor.cast(rows, state.dtype), g.positions))
        return out

    def normed(self, g: Graph, x, name: str):
        return self.norm(g, x, name) if self.traits.qk_norm else x

    def rotate(self, g: Graph, x, positions, i: int):
        suffix = self.rope_suffix(i)
        rope = self.ropes()[suffix]
        options = {"rotary_dim": rope.dim, "pairing": self.traits.pairing}
        if rope.frequencies is None:
            options["base_name"] = g.scalar("rope_base" + suffix)
        else:
            options["frequencies"] = g.constant("frequencies" + suffix, rope.dim // 2)
        return tensor.rope(x, positions, **options)

    def queries(self, g: Graph, h, i: int):
        """The product of q: [rows, q_rows]."""
        return g.product(h, f"{i}.q")

    def attend(self, g: Graph, q, k, v, i: int, want: str):
        """Attention of the rows of q, before the output product: [rows, heads * head_dim]."""
        c = self.config
        q = tensor.reshape(q, [q.shape[0], c.heads, c.head_dim])
        return self.scores(g, q, k, v, i, want)

    def scores(self, g: Graph, q, k, v, i: int, want: str):
        c, n = self.config, q.shape[0]
        whole = want == "all" and g.n > 1  # else the row at position length - 1
        positions = g.input("last_position") if want == "last" else g.positions
        q = self.rotate(g, self.normed(g, q, f"{i}.q_norm"), positions, i)
        options = {"lengths": g.input("length"), **self.attention_options(g, i)}
        options["scale_name"] = g.scalar("scale" + self.rope_suffix(i))
        if whole:
            options["base_name"] = g.base()
        else:
            q = tensor.reshape(q, [c.heads, c.head_dim])
        return tensor.reshape(tensor.attention(q, k, v, **options), [n, c.heads * c.head_dim])

    def attention_options(self, g: Graph, i: int) -> dict:
        """Options away from their defaults. A window that holds the whole cache changes nothing."""
        options: dict = {}
        window = self.traits.windows[i] if self.traits.windows else None
        if window is not None and window < self.config.context:
            options["window"] = window
        return options

    # ------------------------------------------------------------------ feed forward
    def ffn(self, g: Graph, h, i: int):
        return self.gated(g, h, f"{i}.gate", f"{i}.up", f"{i}.down")

    def gated(self, g: Graph, h, gate: str, up: str, down: str):
        return g.product(tensor.swiglu(g.product(h, gate), g.product(h, up)), down)
