"""The real checkpoint's feed-forward layers copied into experts: a mixture with a known answer.

Equal experts whose weights sum to 1 give the dense model whatever the routers say; scaled apart,
they show every mistake in routing, and transformers is the reference.
"""

import json

import gguf
import numpy as np
import peer_models
import pytest
import tiny_models
import torch
from checkpoint import checkpoint_path, reference
from gguf import quants as ggml
from test_models import open_model

pytestmark = [pytest.mark.peers, pytest.mark.slow]

EXPERTS = 4
CONFIG = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 576,
    "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
    "num_key_value_heads": 3, "head_dim": 64, "vocab_size": 49152, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 8192, "num_local_experts": EXPERTS, "num_experts_per_tok": 2,
    "rope_theta": 100000.0, "tie_word_embeddings": True, "hidden_act": "silu",
    "sliding_window": None, "eos_token_id": 2, "bos_token_id": 1,
}  # fmt: skip
NAMES = {
    "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
}  # fmt: skip
FFN = {"ffn_gate": "w1", "ffn_up": "w3", "ffn_down": "w2"}


def paired_by_halves(a: np.ndarray) -> np.ndarray:
    """Rows of q or k from the order of a llama GGUF file to that of a folder."""
    pairs = a.reshape(a.shape[0] // 64, 32, 2, -1)
    return pairs.swapaxes(1, 2).reshape(a.shape)


def upcycle(spread: float) -> dict[str, np.ndarray]:
    """The tensors of a Mixtral; expert e of a layer is the dense layer times 1 + spread * randn."""
    rng, out = np.random.default_rng(0), {}
    for t in gguf.GGUFReader(checkpoint_path()).tensors:
        w = ggml.dequantize(t.data, t.tensor_type).astype(np.float32)
        if t.name == "token_embd.weight":
            out["model.embed_tokens.weight"] = w
        elif t.name == "output_norm.weight":
            out["model.norm.weight"] = w
        else:
            _, layer, kind, _ = t.name.split(".")
            prefix = f"model.layers.{layer}."
            if kind in NAMES:
                w = paired_by_halves(w) if kind in ("attn_q", "attn_k") else w
                out[f"{prefix}{NAMES[kind]}.weight"] = w
            else:
                for e in range(EXPERTS):
                    factor = np.float32(1 + spread * rng.standard_normal())
                    name = f"{prefix}block_sparse_moe.experts.{e}.{FFN[kind]}.weight"
                    out[name] = w * factor
    for i in range(CONFIG["num_hidden_layers"]):
        router = 0.5 * rng.standard_normal((EXPERTS, CONFIG["hidden_size"]))
        name = f"model.layers.{i}.block_sparse_moe.gate.weight"
        out[name] = router.astype(np.float32)
    return out


def write(folder, spread: float):

    (folder / "config.json").write_text(json.dumps(CONFIG))
    tiny_models.write_safetensors(folder / "model.safetensors", upcycle(spread), {"format": "pt"})


def test_equal_experts_are_the_dense_model(tmp_path, isa):
    write(tmp_path, 0.0)
    want = reference()["prompts"]["plain"]
    with open_model(tmp_path, isa, context=64) as model:
        tokens = [t.id for t in model.generate(want["prompt_ids"], 32, ignore_eos=True)]
        assert tokens == want["greedy_ids"]
        top = want["first_position_top5_f64"]
        logits = model.logits(want["prompt_ids"])
        assert max(abs(logits[t["id"]] - t["logit"]) for t in top) <= 1e-3


def test_experts_apart_are_those_of_transformers(tmp_path, isa):
    write(tmp_path, 0.05)
    ids = reference()["prompts"]["plain"]["prompt_ids"]
    model = peer_models.transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    )
    want = peer_models.logits(model.eval(), ids)
    with open_model(tmp_path, isa, context=64) as mine:
        assert np.abs(mine.logits(ids, all=True) - want).max() <= 1e-3
    dense = reference()["prompts"]["plain"]["first_position_top5_f64"]
    assert max(abs(want[-1][t["id"]] - t["logit"]) for t in dense) > 0.1  # and not the dense one
