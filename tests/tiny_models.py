"""Tiny models of every family as folders: a config.json and random tensors, made from seeds.

Every tensor is random, gains and biases too: at their initial ones and zeros a swapped gate, a
dropped bias or the wrong form of a gain would not show.
"""

import json
import zlib
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data" / "tiny-models.json"

BASE = {
    "vocab_size": 256, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
}  # fmt: skip
EXPERTS = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
DELTA = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16,
    "linear_value_head_dim": 24, "linear_conv_kernel_dim": 4, "num_hidden_layers": 4,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "linear_attention"],
}  # fmt: skip
WINDOW = ["sliding_attention", "full_attention"]
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 64,
}  # fmt: skip
YARN = {
    "rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip

# name: class prefix in transformers, and what its configuration says beside BASE.
MODELS = {
    "llama": ("Llama", {}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1}),
    "llama-scaled": ("Llama", {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    "llama-linear": (
        "Llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 900.0, "factor": 4.0}}
    ),
    "mistral-open": ("Mistral", {"sliding_window": None}),
    "mistral": ("Mistral", {"sliding_window": 5}),
    "qwen2": ("Qwen2", {}),
    "qwen2-window": (
        "Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}
    ),
    "qwen3": ("Qwen3", {"rope_parameters": YARN}),
    "mixtral": ("Mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "qwen3_moe": ("Qwen3Moe", {**EXPERTS, "norm_topk_prob": True}),
    "qwen3_moe-plain": ("Qwen3Moe", {**EXPERTS, "norm_topk_prob": False}),
    "gemma3": (
        "Gemma3",
        {"sliding_window": 5, "layer_types": WINDOW, "query_pre_attn_scalar": 20,
         "final_logit_softcapping": 12.0},
    ),
    "gpt_oss": (
        "GptOss",
        {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5,
         "layer_types": WINDOW, "rope_parameters": YARN, "swiglu_limit": 1.5},
    ),
    "qwen3_next": (
        "Qwen3Next", {**EXPERTS, **DELTA, "shared_expert_intermediate_size": 48}
    ),
    "qwen3_5": ("Qwen3_5", DELTA),
}  # fmt: skip


def ids_of(seed: int, count: int = 21) -> list[int]:
    return np.random.default_rng(seed).integers(0, 256, size=count).tolist()


def values(name: str, shape: tuple[int, ...], seed: int, tied: bool) -> np.ndarray:
    """The values of one tensor: of unit scale after a product, gains about 1."""
    rng = np.random.default_rng([zlib.crc32(name.encode()), seed])
    r = rng.standard_normal(shape)
    if name.endswith("A_log"):
        r = 0.5 * r
    elif "embed_tokens" in name:
        r = r if tied else 2 * r
    elif len(shape) >= 2:
        # Products sum over the last axis, but for stacks that are stored the other way round.
        turned = name.endswith(("gate_up_proj", "down_proj"))
        r = r / np.sqrt(shape[-2 if turned else -1])
    else:
        gain = name.endswith("norm.weight")
        r = 0.3 * r + (1 if gain else 0)
    return r.astype(np.float32)


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], metadata=None) -> None:
    """f32, f16 and u16 arrays; the last are bf16 bits."""
    kinds = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64"}
    header: dict = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, a in tensors.items():
        end = at + a.nbytes
        entry = {"dtype": kinds[a.dtype.name], "shape": list(a.shape), "data_offsets": [at, end]}
        header[name], at = entry, end
    raw = json.dumps(header).encode()
    raw += b" " * (-len(raw) % 8)
    with open(path, "wb") as file:
        file.write(len(raw).to_bytes(8, "little") + raw)
        for a in tensors.values():
            file.write(a.tobytes())


def write(folder: Path, config: dict, shapes: dict[str, list[int]], seed: int) -> None:
    """A folder as a checkpoint of these tensors would be."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    tied = bool(config.get("tie_word_embeddings"))
    tensors = {name: values(name, tuple(s), seed, tied) for name, s in shapes.items()}
    write_safetensors(folder / "model.safetensors", tensors, {"format": "pt"})
