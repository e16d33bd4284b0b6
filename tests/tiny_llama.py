"""Small random llama checkpoints as GGUF files, and the same model in float64 NumPy."""

from dataclasses import dataclass

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Ggml
from gguf import quants as ggml


@dataclass(frozen=True)
class Shape:
    layers: int = 2
    hidden: int = 64
    ffn: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 16
    rotary: int = 16
    context: int = 64
    base: float = 10000.0
    eps: float = 1e-5


def byte_tokens() -> list[str]:
    """One token a byte in the byte-level alphabet, by the rule of GPT-2's published vocabulary."""
    shown = [b for b in range(256) if chr(b).isprintable() and b not in (32, 160, 173)]
    rest = iter(range(256, 512))
    return [chr(b) if b in shown else chr(next(rest)) for b in range(256)]


TOKENS = [*byte_tokens(), "ab", "abc", "<|end|>", "<|start|>"]
MERGES = ["a b", "ab c"]
END, START = 258, 259
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


# Where the f16 numbers stand in the blocks of types that the gguf package cannot write.
HALVES = {"Q2_K": (80, 82), "Q3_K": (108,), "Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}

NARROWED = ("Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q5_K", "Q6_K")


def random_blocks(kind: Ggml, shape: tuple[int, int], rng) -> np.ndarray:
    """Random codes and scales, whose f16 numbers are set to give weights as others have."""
    weights, size = gguf.GGML_QUANT_SIZES[kind]
    raw = rng.integers(0, 256, size=(shape[0] * shape[1] // weights, size), dtype=np.uint8)

    def put(value: float) -> None:
        for at in HALVES[kind.name]:
            raw[:, at : at + 2] = np.full((len(raw), 1), value, np.float16).view(np.uint8)

    put(1)
    spread = ggml.dequantize(raw.reshape(shape[0], -1), kind).std() * np.sqrt(shape[1])
    put(1 / spread)
    return raw.reshape(shape[0], -1)


def random_weights(s: Shape, types: dict[str, str], tied: bool, rng) -> dict:
    """name: (stored type, stored array, float64 values)."""
    vocab, q, kv = len(TOKENS), s.heads * s.head_dim, s.kv_heads * s.head_dim
    shapes = {"token_embd": (vocab, s.hidden)}
    if not tied:
        shapes["output"] = (vocab, s.hidden)
    for i in range(s.layers):
        layer = {
            "attn_q": (q, s.hidden), "attn_k": (kv, s.hidden), "attn_v": (kv, s.hidden),
            "attn_output": (s.hidden, q), "ffn_gate": (s.ffn, s.hidden),
            "ffn_up": (s.ffn, s.hidden), "ffn_down": (s.hidden, s.ffn),
        }  # fmt: skip
        shapes |= {f"blk.{i}.{n}": shape for n, shape in layer.items()}
        shapes |= {f"blk.{i}.{n}": (s.hidden,) for n in ("attn_norm", "ffn_norm")}
    shapes["output_norm"] = (s.hidden,)
    out = {}
    for name, shape in shapes.items():
        short = name.split(".")[-1]
        if len(shape) == 1:
            stored, w = "F32", rng.uniform(0.5, 1.5, shape)
        else:
            stored, w = types.get(short, types["*"]), rng.normal(size=shape) / np.sqrt(shape[1])
        kind = Ggml[stored]
        raw = random_blocks(kind, shape, rng) if stored in HALVES else None
        if raw is None:
            raw = ggml.quantize(w.astype(np.float32), kind)
        values = ggml.dequantize(raw, kind)
        if stored in NARROWED:
            values = values.astype(np.float16)  # what the weights are held in
        out[name + ".weight"] = (kind, raw, values.astype(np.float64))
    return out


def write(
    path, s: Shape, weights: dict, *, change=None, architecture="llama", template=TEMPLATE
) -> None:
    """change(writer) may add keys or tensors."""
    w = gguf.GGUFWriter(path, architecture)
    w.add_block_count(s.layers)
    w.add_context_length(s.context)
    w.add_embedding_length(s.hidden)
    w.add_feed_forward_length(s.ffn)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.kv_heads)
    w.add_key_length(s.head_dim)
    w.add_value_length(s.head_dim)
    w.add_rope_dimension_count(s.rotary)
    w.add_rope_freq_base(s.base)
    w.add_layer_norm_rms_eps(s.eps)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("smollm")
    w.add_token_list(TOKENS)
    w.add_token_types([3 if i >= END else 1 for i in range(len(TOKENS))])
    w.add_token_merges(MERGES)
    w.add_eos_token_id(END)
    w.add_chat_template(template)
    if change:
        change(w)
    for name, (kind, raw, _) in weights.items():
        w.add_tensor(name, raw, raw_dtype=kind)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def forward(s: Shape, weights: dict, ids) -> np.ndarray:
    """Logits of every position, float64."""
    w = {name.removesuffix(".weight"): values for name, (_, _, values) in weights.items()}
    pos = np.arange(len(ids))

    def norm(x, gain):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + s.eps) * gain

    def rope(x):
        k = np.arange(s.rotary // 2)
        angle = pos[:, None, None] * s.base ** (-2 * k / s.rotary)
        out = x.copy()
        a, b = x[..., 0 : s.rotary : 2], x[..., 1 : s.rotary : 2]
        out[..., 0 : s.rotary : 2] = a * np.cos(angle) - b * np.sin(angle)
        out[..., 1 : s.rotary : 2] = a * np.sin(angle) + b * np.cos(angle)
        return out

    x = w["token_embd"][list(ids)]
    for i in range(s.layers):
        p = f"blk.{i}."
        h = norm(x, w[p + "attn_norm"])
        heads = [(h @ w[p + n].T).reshape(len(ids), -1, s.head_dim) for n in _QKV]
        q, k, v = rope(heads[0]), rope(heads[1]), heads[2]
        k, v = (np.repeat(a, s.heads // s.kv_heads, axis=1) for a in (k, v))
        score = np.einsum("thd,shd->hts", q, k) / np.sqrt(s.head_dim)
        score += np.where(pos[None, :] > pos[:, None], -np.inf, 0)
        p_ = np.exp(score - score.max(-1, keepdims=True))
        o = np.einsum("hts,shd->thd", p_ / p_.sum(-1, keepdims=True), v)
        x = x + o.reshape(len(ids), -1) @ w[p + "attn_output"].T
        h = norm(x, w[p + "ffn_norm"])
        gate = h @ w[p + "ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w[p + "ffn_up"].T)) @ w[p + "ffn_down"].T
    return norm(x, w["output_norm"]) @ w.get("output", w["token_embd"]).T


_QKV = ("attn_q", "attn_k", "attn_v")
