"""The GGUF reader: against the gguf package, and one clear refusal for each kind of damage."""

import weakref

import accel
import gguf
import numpy as np
import pytest
from accel.llm.gguf import GGUF
from checkpoint import checkpoint_path, gguf_file


def test_real_file_equals_the_gguf_package():
    ours, theirs = GGUF(checkpoint_path()), gguf.GGUFReader(checkpoint_path())
    keys = [k for k in theirs.fields if not k.startswith("GGUF.")]
    assert list(ours.metadata) == keys and len(ours.tensors) == len(theirs.tensors) == 272
    for key in keys:
        want = theirs.fields[key].contents()
        assert ours.metadata[key] == want and type(ours.metadata[key]) is type(want), key
    for t in theirs.tensors:
        mine = ours.tensors[t.name]
        assert mine.shape == tuple(int(n) for n in reversed(t.shape))
        assert (mine.type, mine.type_name) == (int(t.tensor_type), t.tensor_type.name)
        assert (mine.offset, mine.bytes) == (t.data_offset, t.n_bytes)
    name = "blk.29.ffn_down.weight"
    want = next(t for t in theirs.tensors if t.name == name).data
    assert np.array_equal(ours.blocks(name), want.reshape(-1))
    ours.release()  # the pages come back from the file
    assert np.array_equal(ours.blocks(name), want.reshape(-1))


@pytest.mark.parametrize("version", [2, 3])
def test_every_kind_of_value(tmp_path, version):
    nested = [("i16", [1, -2]), ("str", ["ä", ""])]
    keys = [
        ("u8", "u8", 255), ("i8", "i8", -128), ("u16", "u16", 65535), ("i16", "i16", -32768),
        ("u32", "u32", 2**32 - 1), ("i32", "i32", -(2**31)), ("f32", "f32", 0.5),
        ("no", "bool", 0), ("yes", "bool", 1), ("str", "str", "grüße"), ("u64", "u64", 2**64 - 1),
        ("i64", "i64", -(2**63)), ("f64", "f64", 1e300),
        ("bools", "array", ("bool", [1, 0])), ("deep", "array", ("array", nested)),
        ("none", "array", ("u32", [])),
    ]  # fmt: skip
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf_file(keys, [("t", (2, 3), 0, bytes(range(24)))], version=version))
    file = GGUF(path)
    got = file.metadata
    assert got["bools"] == [True, False] and got["deep"] == [[1, -2], ["ä", ""]]
    assert got["none"] == [] and got["no"] is False and got["yes"] is True
    for name, kind, value in keys[:13]:
        assert got[name] == value or kind == "bool", name
    assert file.version == version and file.tensors["t"].shape == (2, 3)
    assert file.blocks("t").tobytes() == bytes(range(24)) and not file.blocks("t").flags.writeable


def test_written_by_the_gguf_package(tmp_path):
    path = tmp_path / "w.gguf"
    w = gguf.GGUFWriter(path, "llama")
    w.add_custom_alignment(64)
    w.add_array("names", ["a", "bc"])
    w.add_tensor("x", np.arange(6, dtype=np.float32).reshape(2, 3))
    w.add_tensor("y", np.arange(4, dtype=np.float16))
    w.write_header_to_file(), w.write_kv_data_to_file(), w.write_tensors_to_file(), w.close()
    file = GGUF(path)
    assert file.alignment == 64 and file.metadata["names"] == ["a", "bc"]
    assert file.blocks("x").view(np.float32).tolist() == [0, 1, 2, 3, 4, 5]
    assert file.blocks("y").view(np.float16).tolist() == [0, 1, 2, 3]


def refusal(tmp_path, data, error=accel.FormatError):
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    with pytest.raises(error) as e:
        GGUF(path)
    assert str(path) in str(e.value)
    if error is accel.FormatError:
        assert e.value.path == str(path) and e.value.code == "format"
    return str(e.value)


ONE = [("t", (2, 32), 8, bytes(68))]


def test_damage_is_named_with_its_place(tmp_path):
    good = gguf_file([("k", "u32", 1)], ONE)
    assert "empty" in refusal(tmp_path, b"")
    assert "magic takes 4 bytes" in refusal(tmp_path, b"GG")
    assert "b'GGML'" in refusal(tmp_path, b"GGML" + good[4:])
    assert "number of tensors is 2305843009213693952" in refusal(
        tmp_path, good[:8] + (2**61).to_bytes(8, "little") + good[16:]
    )
    assert "number of keys" in refusal(tmp_path, good[:16] + b"\xff" * 8 + good[24:])
    assert "at offset 32" in refusal(tmp_path, good[:24] + b"\xff" * 8 + good[32:])
    assert "tensor 't' ends at byte" in refusal(tmp_path, good[: -68 - 28 + 67])


@pytest.mark.parametrize(
    ("keys", "tensors", "words"),
    [
        ([("k", "u32", 1), ("k", "u32", 2)], [], "'k' stands twice"),
        ([("k", "str", b"\xff\xfe")], [], "not UTF-8"),
        ([("k", "array", ("str", ["a", b"\xff"]))], [], "string 1 of 'k' is not UTF-8"),
        ([("k", "bool", 2)], [], "must be 0 or 1"),
        ([("k", "array", ("bool", [1, 7]))], [], "neither 0 nor 1"),
        ([("general.alignment", "u32", 24)], [], "power of two"),
        ([("general.alignment", "u32", 0)], [], "power of two"),
        ([("general.alignment", "str", "32")], [], "power of two"),
        ([], ONE + ONE, "'t' stands twice"),
        ([], [("t", (), 0, bytes(4))], "0 axes"),
        ([], [("t", (1, 1, 1, 1, 1), 0, bytes(4))], "5 axes"),
        ([], [("t", (0, 4), 0, b"")], "shape [0, 4]"),
        ([], [("t", (2**40, 2**40), 0, b"")], "which no tensor can have"),
        ([], [("t", (2, 31), 8, bytes(68))], "rows of 31"),
    ],
)
def test_what_cannot_be_right_is_refused(tmp_path, keys, tensors, words):
    assert words in refusal(tmp_path, gguf_file(keys, tensors))


LONG = ["a", "ä" * 40, ""] * 1000


@pytest.mark.parametrize("longest", [80, 300])  # bytes: found by the low byte of a length, or not
def test_a_long_list_is_decoded_when_it_is_asked_for(tmp_path, longest):
    words = [*LONG, "b" * longest]
    path = tmp_path / "long.gguf"
    keys = [("k", "array", ("str", words)), ("n", "u32", 7)]
    path.write_bytes(gguf_file(keys, ONE))
    file = GGUF(path)
    packed = file.metadata.packed("k")
    assert file.metadata["k"] == words and len(packed) == len(words) and file.metadata["n"] == 7
    file.close()
    assert [packed[i] for i in (0, 1, 2, 2999, 3000)] == [*LONG[:3], "", words[-1]]
    assert file.metadata["k"] == words and dict(file.metadata) == {"k": words, "n": 7}


def test_a_long_list_does_not_keep_the_file_mapped(tmp_path):
    path = tmp_path / "long.gguf"
    path.write_bytes(gguf_file([("k", "array", ("str", LONG))], ONE))
    file = GGUF(path)
    metadata, values, mapped = file.metadata, file.blocks("t"), weakref.ref(file._file.map)
    file.close()
    assert mapped() is not None and len(values) == 68  # the array still looks into it
    del file, values
    assert mapped() is None and metadata["k"] == LONG


def test_damage_of_a_long_list_is_named(tmp_path):
    data = gguf_file([("k", "array", ("str", [*LONG, b"x\xff"]))], ONE)
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    for wrong in (lambda m: m["k"], lambda m: m.check_rest()):
        with pytest.raises(accel.FormatError, match="string 3000 of 'k' is not UTF-8") as e:
            wrong(GGUF(path).metadata)
        assert f"at offset {data.index(bytes([255]), 24) - 1}" in str(e.value)
    # Of a length that says more than the low byte does, of one beyond the file, and of the end.
    at = data.index(b"x\xff") - 8
    for length in (2**40, 2**20):
        damaged = data[:at] + length.to_bytes(8, "little") + data[at + 8 :]
        assert "string 3000 of 'k' runs past the end" in refusal(tmp_path, damaged)
    assert "of 'k' runs past the end" in refusal(tmp_path, data[: at - 100])


def test_deep_nesting_ends(tmp_path):
    value = ("u8", [1])
    for _ in range(6):
        value = ("array", [value])
    assert "nested" in refusal(tmp_path, gguf_file([("k", "array", value)], []))


def test_offsets_are_aligned_and_apart(tmp_path):
    data = bytearray(gguf_file([], [("a", (8,), 0, bytes(32)), ("b", (8,), 0, bytes(32))]))
    at = data.index(b"b", data.index(b"a")) + 1 + 4 + 8 + 4
    assert data[at : at + 8] == (32).to_bytes(8, "little")
    data[at : at + 8] = (16).to_bytes(8, "little")
    assert "offset 16" in refusal(tmp_path, bytes(data))
    data[at : at + 8] = (0).to_bytes(8, "little")
    assert "overlaps tensor 'a'" in refusal(tmp_path, bytes(data))


def test_what_is_not_read_here_is_named(tmp_path):
    def words(data):
        return refusal(tmp_path, data, accel.UnsupportedError)

    assert "'t' is stored as Q8_K" in words(gguf_file([], [("t", (256,), 15, bytes(292))]))
    assert "number 77" in words(gguf_file([], [("t", (256,), 77, bytes(210))]))
    assert "version is 1" in words(gguf_file([], ONE, version=1))
    assert "version is 4" in words(gguf_file([], ONE, version=4))
    big = bytearray(gguf_file([], ONE))
    big[4:8] = (3).to_bytes(4, "big")
    assert "big-endian" in words(bytes(big))
    with pytest.raises(accel.UnsupportedError, match="folder"):
        GGUF(tmp_path)
    with pytest.raises(FileNotFoundError):
        GGUF(tmp_path / "none.gguf")


def test_closing_leaves_arrays_alive(tmp_path):
    path = tmp_path / "a.gguf"
    path.write_bytes(gguf_file([], [("t", (4,), 0, b"\x01" * 16)]))
    file = GGUF(path)
    blocks = file.blocks("t")
    file.close()
    file.close()
    assert blocks.tolist() == [1] * 16
