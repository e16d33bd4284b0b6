"""Whatever is done to a GGUF file, it is read right or refused in the library's own words."""

import os
import sys
from pathlib import Path

import accel
import numpy as np
import pytest
from accel.llm.gguf import GGUF
from accel.llm.models.registry import gguf_model
from accel.llm.tokenizer import Tokenizer

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
import tiny_llama  # noqa: E402
from mutate_gguf import mutant, seed_file  # noqa: E402

FAST, ALL = 1500, 15000
PLACES = ("offset", "tensor", "key", "version", "big-endian")


def read_all(path) -> bool:
    """True if the file is read, to the last byte of every tensor; False if it is refused."""
    try:
        file = GGUF(path)
    except (accel.FormatError, accel.UnsupportedError) as e:
        text = str(e)
        assert str(path) in text and any(w in text for w in PLACES), text
        return False
    for name, t in file.tensors.items():
        blocks = file.blocks(name)
        assert len(blocks) == t.bytes and 0 < t.offset <= t.offset + t.bytes <= file.file_bytes
        accel.quant.gguf_planes(t.type, blocks, t.shape)
    file.close()
    return True


def read_model(path) -> bool:
    """The same for all that load() reads before it compiles."""
    try:
        file = GGUF(path)
        vocab = Tokenizer(file.path, file.metadata).vocab
        assert gguf_model(file, file.metadata, vocab).config.context > 0
    except (accel.FormatError, accel.UnsupportedError) as e:
        assert str(path) in str(e)
        return False
    return True


def run(tmp_path, read, seed: bytes, mutants: range) -> None:
    path, outcomes = tmp_path / "mutant.gguf", [0, 0]
    for i in mutants:
        data = mutant(seed, np.random.default_rng(i))
        path.write_bytes(data)
        try:
            outcomes[read(path)] += 1
        except Exception as e:
            keep = os.environ.get("ACCEL_FUZZ_KEEP")
            if keep:
                Path(keep, f"gguf-{i}.bin").write_bytes(data)
            raise AssertionError(f"mutant {i}: {type(e).__name__}: {e}") from e
    assert min(outcomes) > len(mutants) // 50, outcomes  # both outcomes are really met


def tiny_model(tmp_path, rng) -> bytes:
    shape = tiny_llama.Shape(layers=1, hidden=32, ffn=32, heads=2, kv_heads=1)
    weights = tiny_llama.random_weights(shape, {"*": "Q8_0"}, True, rng)
    path = tmp_path / "tiny.gguf"
    tiny_llama.write(path, shape, weights)
    data = path.read_bytes()
    assert read_model(path)
    return data


def test_the_seed_itself_is_read(tmp_path):
    path = tmp_path / "seed.gguf"
    path.write_bytes(seed_file())
    assert read_all(path)


def test_p26_45_mutants_are_read_or_refused(tmp_path):
    run(tmp_path, read_all, seed_file(), range(FAST))


@pytest.mark.slow
def test_many_more_mutants(tmp_path):
    run(tmp_path, read_all, seed_file(), range(FAST, ALL))


def test_models_are_read_or_refused(tmp_path, rng):
    run(tmp_path, read_model, tiny_model(tmp_path, rng), range(FAST // 3))


@pytest.mark.slow
def test_many_more_models(tmp_path, rng):
    run(tmp_path, read_model, tiny_model(tmp_path, rng), range(FAST, ALL // 4))


def test_p26_45_every_truncation_is_refused(tmp_path):
    data, path = seed_file(), tmp_path / "short.gguf"
    last = len(data) - 32 + 14  # the padding behind the last tensor may be missing
    for n in range(last):
        path.write_bytes(data[:n])
        assert not read_all(path), n
    path.write_bytes(data[:last])
    assert read_all(path)
