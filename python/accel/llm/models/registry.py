"""The families by the names that checkpoints give them."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np

from ..checkpoint import Checkpoint
from ..errors import format_error, unsupported
from ..keys import HARMLESS, Keys
from ..weights import check_parts
from .decoder import Decoder
from .gemma3 import Gemma3
from .gpt_oss import GptOss
from .llama import Llama
from .mistral import Mistral
from .mixtral import Mixtral
from .qwen2 import Qwen2
from .qwen3 import Qwen3
from .qwen3_5 import Qwen35
from .qwen3_moe import Qwen3Moe
from .qwen3_next import Qwen3Next

_F32_MAX = float(np.finfo(np.float32).max)
# The first of `architectures` in a config.json.
HF_FAMILIES = {
    "LlamaForCausalLM": Llama,
    "MistralForCausalLM": Mistral,
    "Qwen2ForCausalLM": Qwen2,
    "Qwen3ForCausalLM": Qwen3,
    "MixtralForCausalLM": Mixtral,
    "Qwen3MoeForCausalLM": Qwen3Moe,
    "Gemma3ForCausalLM": Gemma3,
    "GptOssForCausalLM": GptOss,
    "Qwen3NextForCausalLM": Qwen3Next,
    "Qwen3_5ForCausalLM": Qwen35,
}
# `general.architecture` of a GGUF file.
GGUF_FAMILIES = {"llama": Llama, "qwen2": Qwen2, "qwen3": Qwen3, "qwen3moe": Qwen3Moe}


def _family(table: dict, path: str, name: object):
    if not isinstance(name, str) or name not in table:
        names = " or ".join(repr(n) for n in table)
        raise unsupported(f"{path}: architecture is {name!r} and must be {names}")
    return table[name]


def hf_model(path: str, config: object, file: Checkpoint) -> Decoder:
    """The model of a folder, from the values of its config.json at path."""
    if not isinstance(config, dict):
        raise format_error(path, "the file must hold an object")
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names else names
    family = _family(HF_FAMILIES, path, name)
    keys = Keys(path, config, harmless=HARMLESS)
    return _finished(family.from_hf(keys), keys, file)


def gguf_model(file: Checkpoint, metadata: dict, vocab: int) -> Decoder:
    """The model of a GGUF file; `vocab` is the number of its tokens."""
    name = metadata.get("general.architecture")
    family = _family(GGUF_FAMILIES, file.path, name)
    keys = Keys(file.path, metadata, prefix=f"{name}.")
    return _finished(family.from_gguf(keys, vocab, file.tensors), keys, file)


def _finished(model: Decoder, keys: Keys, file: Checkpoint) -> Decoder:
    """Every key must have been read, every tensor must have its place."""
    keys.finish()
    for name, value in model.scalars().items():
        if abs(value) > _F32_MAX:
            must = "what f32 holds; the keys that give it are too far apart"
            raise format_error(model.path, f"{name} is {value:g} and must be {must}")
    c = model.config
    if c.layers > len(file.tensors):
        message = f"{c.layers} layers cannot be in {len(file.tensors)} tensors"
        raise format_error(model.path, message)
    check_parts(file, list(model.parts()), model.family, model.traits.ignored)
    model.config = dataclasses.replace(c, quantization=_common_type(file))
    return model


def _common_type(file: Checkpoint) -> str:
    types = Counter(t.type_name for t in file.tensors.values() if len(t.shape) >= 2)
    return types.most_common(1)[0][0] if types else "none"
