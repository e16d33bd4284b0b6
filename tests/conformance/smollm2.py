"""SmolLM2 as the server of serving.py sees it: planes of its file, public operators alone."""

from __future__ import annotations

import numpy as np
from accel import F16, quant
from accel import tensor as T
from accel.llm.gguf import GGUF
from runner import Graph


class SmolLM2:
    """The Llama graph of the GGUF file: adjacent rope pairs, tied int8 table, f16 caches."""

    def __init__(self, path: str):
        self.file = GGUF(path)
        meta = {k.removeprefix("llama."): v for k, v in self.file.metadata.items()}
        self.count = int(meta["block_count"])
        self.heads = int(meta["attention.head_count"])
        self.kv_heads = int(meta["attention.head_count_kv"])
        self.hidden = int(meta["embedding_length"])
        self.ffn = int(meta["feed_forward_length"])
        self.eps = float(meta["attention.layer_norm_rms_epsilon"])
        self.base = float(meta["rope.freq_base"])
        self.dim = self.hidden // self.heads
        self.arrays: dict[str, dict[str, np.ndarray]] = {}
        for name, t in self.file.tensors.items():
            planes, error = quant.gguf_planes(t.type, self.file.blocks(name), t.shape)
            assert error == 0
            self.arrays[name] = (
                {"": planes}
                if isinstance(planes, np.ndarray)
                else {f: getattr(planes, f) for f in planes._fields}
            )
        self.vocab = self.arrays["token_embd.weight"]["quants"].shape[0]

    def caches(self, capacity: int) -> dict[str, np.ndarray]:
        shape = (self.count, capacity, self.kv_heads, self.dim)
        return {n: np.full(shape, np.nan, np.float16) for n in "kv"}

    def scalars(self, g: Graph) -> None:
        g.scalar("rope_base", self.base)
        g.scalar("scale", 1 / self.dim**0.5)

    def dense(self, g: Graph, name: str):
        return g.port(name, self.arrays[name][""], "weight")

    def product(self, g: Graph, x, name: str):
        planes = self.arrays[name]
        ports = {
            f: g.port(f"{name}.{f}", planes[f], "weight") for f in ("codes", "scales", "biases")
        }
        weight = T.Int4(**ports, weights=planes["weights"], group=planes["group"])
        return T.int4_matmul(x, weight, w_order="nk")

    def embed(self, g: Graph, ids):
        planes = self.arrays["token_embd.weight"]
        self.table = T.Quantized(
            g.port("table.quants", planes["quants"], "weight"),
            g.port("table.scales", planes["scales"], "weight"),
        )
        return T.quant_gather_rows(self.table, ids)

    def layers(self, g: Graph, x, k, v, shared, options):
        slots, positions, lengths = shared
        tokens = x.shape[0]
        for i in range(self.count):
            at = f"blk.{i}."
            h = T.rms_norm(x, self.dense(g, f"{at}attn_norm.weight"), eps=self.eps)

            def heads(name, n, h=h, at=at):
                return T.reshape(self.product(g, h, f"{at}{name}.weight"), [tokens, n, self.dim])

            def turn(t):
                return T.rope(t, positions, rotary_dim=self.dim, base_name="rope_base")

            key = T.cast(turn(heads("attn_k", self.kv_heads)), F16)
            value = T.cast(heads("attn_v", self.kv_heads), F16)
            k_next = T.scatter_rows(T.layer_state(k, i), key, slots)
            v_next = T.scatter_rows(T.layer_state(v, i), value, slots)
            seen = T.attention(
                turn(heads("attn_q", self.heads)),
                k_next,
                v_next,
                lengths=lengths,
                scale_name="scale",
                **options,
            )
            seen = T.reshape(seen, [tokens, self.hidden])
            x = x + self.product(g, seen, f"{at}attn_output.weight")
            h = T.rms_norm(x, self.dense(g, f"{at}ffn_norm.weight"), eps=self.eps)
            middle = T.swiglu(
                self.product(g, h, f"{at}ffn_gate.weight"),
                self.product(g, h, f"{at}ffn_up.weight"),
            )
            x = x + self.product(g, middle, f"{at}ffn_down.weight")
        return x

    def head(self, g: Graph, x):
        x = T.rms_norm(x, self.dense(g, "output_norm.weight"), eps=self.eps)
        return T.quant_matmul(x, self.table, w_order="nk")
