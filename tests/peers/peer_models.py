"""The tiny models of tiny_models.py in transformers: their shapes, their configurations as saved,
and their logits in float64."""

import json
import os
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
import tiny_models  # noqa: E402
import torch  # noqa: E402
import transformers  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()
warnings.filterwarnings("ignore", module="transformers|torch")


def saved(name: str, folder) -> tuple[dict, dict]:
    """config.json and the shapes of the tensors, as save_pretrained writes them."""
    prefix, more = tiny_models.MODELS[name]
    text = "Text" if prefix in ("Gemma3", "Qwen3_5") else ""
    config = getattr(transformers, f"{prefix}{text}Config")(**{**tiny_models.BASE, **more})
    model = getattr(transformers, f"{prefix}ForCausalLM")(config)
    model.save_pretrained(folder)
    found = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    raw = (folder / "model.safetensors").read_bytes()
    header = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    header.pop("__metadata__", None)
    return found, {n: t["shape"] for n, t in header.items()}


def reference(folder):
    """The model of a folder in float64, its experts one after the other."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
    )
    return model.eval()


def logits(model, ids) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()
