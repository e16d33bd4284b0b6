"""Mutations of checkpoint headers: read right, or refused with file and offset or tensor.

ACCEL_FUZZ_MUTANTS says how many of each format; ACCEL_FUZZ_SEED starts elsewhere."""

import json
import os
import struct
import tempfile
from pathlib import Path

import accel
import numpy as np
import pytest
from accel.llm.gguf import GGUF
from accel.llm.safetensor import SafeTensors
from mutate_gguf import mutant, seed_file

MUTANTS = int(os.environ.get("ACCEL_FUZZ_MUTANTS", 1000))
SEED = int(os.environ.get("ACCEL_FUZZ_SEED", 0))
PLACES = ("offset", "tensor", "key", "version", "big-endian", "header", "no JSON", "bytes")


@pytest.fixture
def folder(tmp_path):
    """In memory where there is such a place: a million files would wear a disk."""
    if not os.access("/dev/shm", os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        yield Path(name)


def refused(path, read) -> bool:
    try:
        file = read(path)
    except (accel.FormatError, accel.UnsupportedError) as e:
        assert any(word in str(e) for word in PLACES), str(e)
        return True
    for name, t in file.tensors.items():
        blocks = file.blocks(name)
        assert blocks.nbytes == t.bytes <= file.file_bytes
        if t.bytes:
            blocks.reshape(-1).view(np.uint8)[[0, -1]].sum()  # its ends are inside the mapping
    file.close()
    return False


def test_p26_45_gguf_headers_under_mutation(folder):
    seed, rng = seed_file(), np.random.default_rng(SEED)
    path, bad = folder / "m.gguf", 0
    for i in range(MUTANTS):
        data = mutant(seed, rng)
        path.write_bytes(data)
        try:
            bad += refused(path, GGUF)
        except Exception as e:
            raise AssertionError(f"GGUF mutant {i} of seed {SEED}: {type(e).__name__}: {e}") from e
    assert MUTANTS // 50 < bad < MUTANTS


def safetensors_file() -> bytes:
    header = {
        "__metadata__": {"format": "pt"},
        "a.weight": {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 60]},
        "b.weight": {"dtype": "BF16", "shape": [4], "data_offsets": [60, 68]},
        "c": {"dtype": "F16", "shape": [2, 2, 2], "data_offsets": [68, 84]},
    }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + bytes(range(84))


def edit(data: bytes, rng: np.random.Generator) -> bytes:
    """One to three edits: any byte, digits and punctuation of JSON, cuts and repetitions."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at, kind = int(rng.integers(0, len(out))), int(rng.integers(0, 6))
        if kind == 0:
            out[at] = int(rng.integers(0, 256))
        elif kind < 3:
            out[at] = b'0123456789[]{}",:-e. '[int(rng.integers(0, 21))]
        elif kind == 3:
            out[0:8] = struct.pack("<Q", int(rng.choice([0, 1, 7, 8, len(out), 2**31, 2**62])))
        elif kind == 4:
            end = at + int(rng.integers(1, 24))
            out[at:at] = out[at:end]
        else:
            del out[at : at + int(rng.integers(1, 24))]
        if not out:
            break
    return bytes(out)


def test_p26_45_safetensors_headers_under_mutation(folder):
    good, rng = safetensors_file(), np.random.default_rng(SEED + 1)
    path, bad = folder / "model.safetensors", 0
    for i in range(MUTANTS):
        path.write_bytes(edit(good, rng))
        try:
            bad += refused(folder, SafeTensors)
        except Exception as e:
            raise AssertionError(f"file {i} of seed {SEED}: {type(e).__name__}: {e}") from e
    assert MUTANTS // 50 < bad < MUTANTS


def test_p26_45_seeds_are_read(tmp_path):
    (tmp_path / "m.gguf").write_bytes(seed_file())
    (tmp_path / "model.safetensors").write_bytes(safetensors_file())
    assert not refused(tmp_path / "m.gguf", GGUF)
    assert not refused(tmp_path, SafeTensors)
