"""Reads a folder of safetensors files in place: one `model.safetensors`, or shards and their index.

A header is checked against the bytes that are there before anything of it is used. What is wrong
with a file raises FormatError with file and tensor or offset.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from .checkpoint import Mapping, TensorInfo
from .errors import format_error

ONE_FILE, INDEX = "model.safetensors", "model.safetensors.index.json"
MAX_HEADER = 100_000_000
MAX_AXES = 8
MAX_ELEMENTS = 2**63 - 1
# Bytes an element. Types that no graph here takes are read too: they may belong to unused tensors.
SIZES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U64": 8,
    "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
}  # fmt: skip


def read_json(path: Path, what: str = "the file") -> Any:
    """The value of a JSON file. Its damage is a FormatError."""
    try:
        return parse_json(path.read_bytes())
    except ValueError as e:
        raise format_error(path, f"{what} is no JSON ({e})") from None


def parse_json(raw: bytes) -> Any:
    """Like json.loads; a name that stands twice in one object is an error, and so is depth."""

    def unique(pairs):
        found: dict = {}
        for key, value in pairs:
            if key in found:
                raise ValueError(f"{key!r} stands twice")
            found[key] = value
        return found

    try:
        return json.loads(raw.decode("utf-8"), object_pairs_hook=unique)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


class SafeTensors:
    """An open folder: `tensors` by name, and their bytes in the mappings."""

    def __init__(self, folder: str | os.PathLike):
        self.path = os.fspath(folder)
        self.tensors: dict[str, TensorInfo] = {}
        self._files: list[Mapping] = []
        try:
            names, index = self._shards(Path(folder))
            for name in names:
                self._read_file(str(Path(folder) / name))
            self._check_index(index, names)
        except BaseException:
            self.close()
            raise
        self.file_bytes = sum(f.size for f in self._files)

    def _shards(self, folder: Path) -> tuple[list[str], dict[str, str]]:
        """The files to read, and for each tensor of the index its file."""
        if (folder / ONE_FILE).exists():
            return [ONE_FILE], {}
        path = folder / INDEX
        if not path.exists():
            raise FileNotFoundError(f"{folder}: has neither {ONE_FILE} nor {INDEX}")
        index = read_json(path)
        found = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(found, dict) or not found:
            raise format_error(path, "'weight_map' must be an object of tensor names")
        for tensor, name in found.items():
            plain = isinstance(name, str) and name.endswith(".safetensors")
            if not plain or os.path.basename(name) != name:
                must = "must be the name of a safetensors file in this folder"
                raise format_error(path, f"file of tensor {tensor!r} is {name!r} and {must}")
        return sorted(set(found.values())), found

    def _check_index(self, index: dict[str, str], names: list[str]) -> None:
        path = Path(self.path) / INDEX
        for tensor, name in index.items():
            info = self.tensors.get(tensor)
            if info is None or names[info.shard] != name:
                raise format_error(path, f"tensor {tensor!r} is not in {name}")
        if index:
            for tensor, info in self.tensors.items():
                if tensor not in index:
                    what = f"tensor {tensor!r} of {names[info.shard]}"
                    raise format_error(path, f"{what} is not in 'weight_map'")

    # ------------------------------------------------------------------ one file
    def _read_file(self, path: str) -> None:
        file = Mapping(path)
        shard = len(self._files)
        self._files.append(file)
        if file.size < 8:
            raise format_error(path, f"the header's length takes 8 bytes and there are {file.size}")
        length = int.from_bytes(file.blocks(0, 8).tobytes(), "little")
        if length > file.size - 8 or length > MAX_HEADER:
            left = f"the file has {file.size - 8} bytes after offset 8"
            raise format_error(path, f"the header takes {length} bytes at offset 8 and {left}")
        try:
            header = parse_json(file.blocks(8, length).tobytes())
        except ValueError as e:
            raise format_error(path, f"the header at offset 8 is no JSON ({e})") from None
        if not isinstance(header, dict):
            raise format_error(path, "the header at offset 8 must be an object of tensors")
        base, found = 8 + length, []
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            if name in self.tensors:
                raise format_error(path, f"tensor {name!r} stands in two files")
            info = self._place(path, name, entry, base, file.size, shard)
            self.tensors[name] = info
            found.append(info)
        end = self._check_apart(path, found, base)
        if end != file.size:
            raise format_error(path, f"the last tensor ends at byte {end} of {file.size}")

    def _place(self, path, name: str, entry, base: int, size: int, shard: int) -> TensorInfo:
        def bad(message: str):
            return format_error(path, f"tensor {name!r} {message}")

        if not isinstance(entry, dict):
            raise bad(f"is {entry!r:.40} and must be an object")
        dtype, shape, offsets = (entry.get(k) for k in ("dtype", "shape", "data_offsets"))
        if not isinstance(dtype, str) or dtype not in SIZES:
            raise bad(f"has dtype {dtype!r:.40} and must have one of {', '.join(SIZES)}")
        if not _integers(shape) or not 0 <= len(shape) <= MAX_AXES:
            raise bad(f"has shape {shape!r:.60}, which no tensor can have")
        elements = math.prod(shape)
        if elements == 0 or elements > MAX_ELEMENTS:
            raise bad(f"has shape {shape}, which no tensor can have")
        if not _integers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
            raise bad(f"has offsets {offsets!r:.60} and must have a begin and an end")
        begin, end = offsets
        if base + end > size:
            raise bad(f"ends at byte {base + end} and the file has {size}")
        if end - begin != elements * SIZES[dtype]:
            need = f"needs {elements * SIZES[dtype]} for {dtype}{shape}"
            raise bad(f"has {end - begin} bytes at offset {base + begin} and {need}")
        return TensorInfo(name, None, dtype, tuple(shape), base + begin, end - begin, shard)

    def _check_apart(self, path, found: list[TensorInfo], base: int) -> int:
        """Where the last tensor ends."""
        end, owner = base, "the header"
        for t in sorted(found, key=lambda t: t.offset):
            if t.offset < end:
                message = f"tensor {t.name!r} overlaps {owner} at offset {t.offset}"
                raise format_error(path, message)
            end, owner = t.offset + t.bytes, f"tensor {t.name!r}"
        return end

    # ------------------------------------------------------------------ members
    def blocks(self, name: str) -> np.ndarray:
        """The tensor's bytes as stored: u8, read-only, in the mapping."""
        t = self.tensors[name]
        return self._files[t.shard].blocks(t.offset, t.bytes)

    def release(self) -> None:
        """Lets the system drop all pages read so far; reading them again brings them back."""
        for file in self._files:
            file.release()

    def close(self) -> None:
        for file in self._files:
            file.close()


def _integers(value) -> bool:
    return isinstance(value, list) and all(type(v) is int and v >= 0 for v in value)
