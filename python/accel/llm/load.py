"""Opens a checkpoint of either format: its tensors, its tokenizer and its model."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path

from .checkpoint import Checkpoint
from .errors import format_error, unsupported
from .gguf import GGUF
from .models.decoder import Decoder
from .models.registry import gguf_model, hf_model
from .safetensor import SafeTensors, read_json
from .tokenizer import Tokenizer
from .tokenizer_hf import FolderTokenizer, NoTokenizer


@dataclass(frozen=True)
class Opened:
    """A checkpoint whose every key and tensor has been checked, and nothing converted."""

    file: Checkpoint
    tokenizer: Tokenizer | FolderTokenizer | NoTokenizer
    model: Decoder


def open_checkpoint(path: Path) -> Opened:
    """A GGUF file, or a folder with config.json and safetensors."""
    return _open_folder(path) if path.is_dir() else _open_gguf(path)


def _open_gguf(path: Path) -> Opened:
    file = GGUF(path)
    try:
        tokenizer = Tokenizer(file.path, file.metadata)
        model = gguf_model(file, file.metadata, tokenizer.vocab)
        file.metadata.check_rest()
    except BaseException:
        file.close()
        raise
    return Opened(file, tokenizer, _with_ends(model, tokenizer))


def _open_folder(folder: Path) -> Opened:
    path = folder / "config.json"
    if not path.exists():
        raise unsupported(f"{os.fspath(folder)}: is a folder and must hold config.json")
    config = read_json(path)
    file = SafeTensors(folder)
    try:
        model = hf_model(str(path), config, file)
        bos, ends = _ends(folder, config, model.config.vocab)
        kind = FolderTokenizer if (folder / "tokenizer.json").exists() else NoTokenizer
        tokenizer = kind(folder, bos, ends)
    except BaseException:
        file.close()
        raise
    return Opened(file, tokenizer, _with_ends(model, tokenizer))


def _with_ends(model: Decoder, tokenizer) -> Decoder:
    model.config = dataclasses.replace(model.config, bos=tokenizer.bos, eos=tokenizer.eos)
    return model


def _ends(folder: Path, config: dict, vocab: int) -> tuple[int | None, list[int]]:
    """The first and the ending tokens; generation_config.json goes before config.json."""
    path, source = folder / "generation_config.json", config
    if path.exists():
        found = read_json(path)
        if not isinstance(found, dict):
            raise format_error(path, "the file must hold an object")
        source = {**config, **{k: v for k, v in found.items() if v is not None}}
    ends = source.get("eos_token_id")
    ends = ends if isinstance(ends, list) else [] if ends is None else [ends]
    bos = source.get("bos_token_id")
    for key, ids in (("eos_token_id", ends), ("bos_token_id", [] if bos is None else [bos])):
        for i in ids:
            if type(i) is not int or not 0 <= i < vocab:
                must = f"must be an id below {vocab}"
                raise format_error(folder / "config.json", f"key {key!r} is {i!r} and {must}")
    return bos, ends
