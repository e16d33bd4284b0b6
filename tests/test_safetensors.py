"""The reader of safetensors folders: in place, in shards, and one clear refusal for each damage."""

import json

import accel
import numpy as np
import pytest
import tiny_models
from accel.llm.safetensor import SafeTensors


def file_of(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + data


def entry(shape, begin, end, dtype="F32"):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


GOOD = {"a": entry([2], 0, 8), "b": entry([1, 2], 8, 16)}


def refusal(tmp_path, data: bytes, error=accel.FormatError) -> str:
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(error) as e:
        SafeTensors(tmp_path)
    assert str(tmp_path / "model.safetensors") in str(e.value) and e.value.code == "format"
    return str(e.value)


def test_tensors_lie_in_the_mapping(tmp_path):
    a, b = np.float32([1, 2]), np.float16([[3, 4, 5]])
    tiny_models.write_safetensors(tmp_path / "model.safetensors", {"a": a, "b": b}, {"x": "y"})
    file = SafeTensors(tmp_path)
    assert list(file.tensors) == ["a", "b"] and file.tensors["b"].shape == (1, 3)
    assert file.tensors["b"].type_name == "F16" and file.tensors["a"].type is None
    blocks = file.blocks("a")
    assert np.array_equal(blocks.view(np.float32), a) and not blocks.flags.writeable
    assert file.file_bytes == (tmp_path / "model.safetensors").stat().st_size
    file.release()
    file.close()
    file.close()
    assert np.array_equal(blocks.view(np.float32), a)


def test_as_the_safetensors_package_writes(tmp_path):
    import safetensors.numpy as package

    rng = np.random.default_rng(0)
    tensors = {"x": rng.normal(size=(3, 4)).astype(np.float32), "y": np.arange(5), "z": np.ones(1)}
    package.save_file(tensors, tmp_path / "model.safetensors", {"k": "v"})
    file = SafeTensors(tmp_path)
    assert {n: t.shape for n, t in file.tensors.items()} == {n: a.shape for n, a in tensors.items()}
    for name, a in tensors.items():
        assert file.blocks(name).tobytes() == a.tobytes()
    file.close()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "takes 8 bytes and there are 0"),
        (b"1234567", "takes 8 bytes and there are 7"),
        (file_of({}, length=3), "header takes 3 bytes at offset 8"),
        (file_of({}, length=2**63), f"header takes {2**63} bytes"),
        (file_of(b"{]"), "header at offset 8 is no JSON"),
        (file_of(b"\xff{}"), "is no JSON"),
        (file_of(b"[1]"), "must be an object of tensors"),
        (file_of(b"[" * 100000), "is no JSON"),
        (file_of(b'{"a": 1, "a": 2}'), "'a' stands twice"),
        (file_of({"a": 3}), "tensor 'a' is 3"),
        (file_of({"a": entry([2], 0, 8, "F5")}, bytes(8)), "has dtype 'F5'"),
        (file_of({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)), "has offsets None"),
        (file_of({"a": entry([2], 8, 0)}, bytes(8)), "must have a begin and an end"),
        (file_of({"a": entry([2], -8, 0)}, bytes(8)), "must have a begin and an end"),
        (file_of({"a": entry([2], 0, 8.0)}, bytes(8)), "must have a begin and an end"),
        (file_of({"a": entry([0], 0, 0)}), "shape [0]"),
        (file_of({"a": entry([-2], 0, 8)}, bytes(8)), "shape [-2]"),
        (file_of({"a": entry([True], 0, 4)}, bytes(4)), "shape [True]"),
        (file_of({"a": entry([2**40, 2**40], 0, 8)}, bytes(8)), "which no tensor can have"),
        (file_of({"a": entry([3], 0, 8)}, bytes(8)), "needs 12 for F32[3]"),
        (file_of(GOOD, bytes(15)), "'b' ends at byte"),
        (file_of(GOOD, bytes(17)), "the last tensor ends at byte"),
        (file_of({}, bytes(1)), "the last tensor ends at byte 10 of 11"),
        (file_of({"a": entry([2], 0, 8), "b": entry([2], 4, 12)}, bytes(12)), "'b' overlaps"),
    ],
)
def test_damage_is_named_with_its_place(tmp_path, data, words):
    (tmp_path / "model.safetensors").write_bytes(file_of(GOOD, bytes(16)))
    SafeTensors(tmp_path).close()
    assert words in refusal(tmp_path, data)


def write_shards(folder, change=None):
    for i, name in enumerate(("a", "b")):
        path = folder / f"model-{i}.safetensors"
        tiny_models.write_safetensors(path, {name: np.float32([i, 2])})
    index = {"weight_map": {"a": "model-0.safetensors", "b": "model-1.safetensors"}}
    if change:
        change(index["weight_map"])
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def test_shards_are_one_checkpoint(tmp_path):
    write_shards(tmp_path)
    file = SafeTensors(tmp_path)
    assert [file.blocks(n).view(np.float32)[0] for n in ("a", "b")] == [0, 1]
    file.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m: m.update(c="model-1.safetensors"), "'c' is not in model-1.safetensors"),
        (lambda m: m.update(a="model-1.safetensors"), "'a' is not in model-1.safetensors"),
        (lambda m: m.update(a="../model-0.safetensors"), "in this folder"),
        (lambda m: m.update(a="model-0.bin"), "in this folder"),
        (lambda m: m.update(a=3), "in this folder"),
        (lambda m: m.clear(), "must be an object of tensor names"),
    ],
)
def test_an_index_that_is_wrong(tmp_path, change, words):
    write_shards(tmp_path, change)
    with pytest.raises(accel.FormatError) as e:
        SafeTensors(tmp_path)
    assert words in str(e.value) and "index.json" in str(e.value)


def test_what_an_index_lacks(tmp_path):
    write_shards(tmp_path)
    path = tmp_path / "model-1.safetensors"
    tiny_models.write_safetensors(path, {"b": np.float32([1]), "c": np.float32([1])})
    with pytest.raises(accel.FormatError, match="'c' of model-1.safetensors is not in"):
        SafeTensors(tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        SafeTensors(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text("{")
    with pytest.raises(accel.FormatError, match="no JSON"):
        SafeTensors(tmp_path)
    (tmp_path / "model.safetensors.index.json").unlink()
    with pytest.raises(FileNotFoundError, match="has neither"):
        SafeTensors(tmp_path)


def test_mutated_headers_are_read_or_refused(tmp_path, rng):
    """Whatever a header says, no tensor reaches outside its file."""
    good = file_of({"__metadata__": {"f": "pt"}, **GOOD}, bytes(16))
    path, read = tmp_path / "model.safetensors", 0
    for _ in range(300):
        data = bytearray(good)
        for _ in range(rng.integers(1, 3)):
            any_byte = rng.random() < 0.5  # else a digit, which may still be a header
            low, high = (0, 256) if any_byte else (48, 58)
            data[rng.integers(0, len(data))] = rng.integers(low, high)
        path.write_bytes(
            bytes(data[: rng.integers(1, len(data) + 1)]) if rng.random() < 0.3 else data
        )
        try:
            file = SafeTensors(tmp_path)
        except accel.FormatError:
            continue
        for name, t in file.tensors.items():
            assert file.blocks(name).nbytes == t.bytes <= file.file_bytes
        file.close()
        read += 1
    assert 5 < read < 290
