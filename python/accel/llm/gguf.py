"""Reads GGUF checkpoints (version 2 and 3, little-endian) in place from a memory-mapped file.

No length, count or offset of the file is used before it is checked against the bytes that are
there. What is wrong with the file raises FormatError with file and offset or tensor; what is right
but not read here (other versions, other tensor types) raises UnsupportedError by name.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections.abc import Iterator
from collections.abc import Mapping as Mapped
from dataclasses import dataclass
from typing import Any

import numpy as np

from .checkpoint import Mapping, TensorInfo
from .errors import format_error, unsupported

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMS = 4
MAX_DEPTH = 4  # of arrays in arrays
MAX_ENTRIES = 2**23  # of all arrays together: a corrupt length must not fill the memory with lists
MAX_ELEMENTS = 2**63 - 1
LONG_LIST = 1024  # strings; a longer list is decoded when it is asked for
MAX_TEXTS = 2**32 - 1  # bytes of such a list


@dataclass(frozen=True)
class BlockType:
    """How a tensor type is stored: weights and bytes a block."""

    name: str
    weights: int
    bytes: int


TYPES = {
    0: BlockType("F32", 1, 4),
    1: BlockType("F16", 1, 2),
    2: BlockType("Q4_0", 32, 18),
    3: BlockType("Q4_1", 32, 20),
    6: BlockType("Q5_0", 32, 22),
    7: BlockType("Q5_1", 32, 24),
    8: BlockType("Q8_0", 32, 34),
    10: BlockType("Q2_K", 256, 84),
    11: BlockType("Q3_K", 256, 110),
    12: BlockType("Q4_K", 256, 144),
    13: BlockType("Q5_K", 256, 176),
    14: BlockType("Q6_K", 256, 210),
    30: BlockType("BF16", 1, 2),
}
# Types that a file may name and that have no planes here, for the refusal's text.
OTHER_TYPES = {
    9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL",
    21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip

_BOOL, _STRING, _ARRAY = 7, 8, 9
_SCALARS = {
    0: struct.Struct("<B"), 1: struct.Struct("<b"), 2: struct.Struct("<H"), 3: struct.Struct("<h"),
    4: struct.Struct("<I"), 5: struct.Struct("<i"), 6: struct.Struct("<f"), 7: struct.Struct("<B"),
    10: struct.Struct("<Q"), 11: struct.Struct("<q"), 12: struct.Struct("<d"),
}  # fmt: skip
_U32, _U64 = _SCALARS[4], _SCALARS[10]
# The fewest bytes that an entry of a list can take: what a count is checked against.
_LEAST_BYTES = {**{t: s.size for t, s in _SCALARS.items()}, _STRING: 8, _ARRAY: 12}
_LEAST_KEY = 8 + 4 + 1  # name length, type, one byte of value
_LEAST_TENSOR = 8 + 4 + 8 + 4 + 8  # name length, dims, one extent, type, offset


class Texts:
    """A long list of strings as the file holds it: a vocabulary has tens of thousands, which take
    ten times the room as objects, and most programs need few of them.

    raw has the length of the next string, eight bytes, behind each; starts says where each begins.
    """

    def __init__(self, raw: bytes, starts: np.ndarray, fail):
        self._raw, self._starts, self._fail = raw, starts, fail

    def __len__(self) -> int:
        return len(self._starts)

    def __getitem__(self, i: int) -> str:
        """Of a list that decode() has found right."""
        last = i + 1 == len(self._starts)
        end = len(self._raw) if last else int(self._starts[i + 1]) - _U64.size
        return self._raw[self._starts[i] : end].decode("utf-8")

    def decode(self) -> list[str]:
        ends = [*self._starts[1:].tolist(), len(self._raw) + _U64.size]
        raw, out = self._raw, []
        try:
            for start, end in zip(self._starts.tolist(), ends, strict=True):
                out.append(raw[start : end - _U64.size].decode("utf-8"))
        except UnicodeDecodeError as e:
            raise self._fail(len(out), start, e.reason) from None
        return out


class Metadata(Mapped):
    """The keys of a header and their values; a long list of strings is made anew whenever it is
    asked for."""

    def __init__(self):
        self._values: dict[str, Any] = {}
        self._read: set[str] = set()

    def add(self, key: str, value: Any) -> None:
        self._values[key] = value

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        if not isinstance(value, Texts):
            return value
        self._read.add(key)
        return value.decode()

    def packed(self, key: str) -> Any:
        """The value; of a long list of strings what decodes single ones."""
        return self._values[key]

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def check_rest(self) -> None:
        """Decodes what nobody has asked for yet: a wrong string is refused, used or not."""
        for key, value in self._values.items():
            if isinstance(value, Texts) and key not in self._read:
                value.decode()


class Cursor:
    """A place in the header, which every read moves and none moves past the end."""

    def __init__(self, path: str, data: mmap.mmap, size: int):
        self.path, self.data, self.size, self.at = path, data, size, 0
        self.entries = 0  # of arrays, so far

    def fail(self, message: str, at: int | None = None):
        return format_error(self.path, f"{message} at offset {self.at if at is None else at}")

    def need(self, count: int, what: str) -> None:
        if count > self.size - self.at:
            left = self.size - self.at
            raise self.fail(f"{what} takes {count} bytes and the file has {left} more")

    def number(self, kind: struct.Struct, what: str):
        self.need(kind.size, what)
        (value,) = kind.unpack_from(self.data, self.at)
        self.at += kind.size
        return value

    def u32(self, what: str) -> int:
        return self.number(_U32, what)

    def u64(self, what: str) -> int:
        return self.number(_U64, what)

    def count(self, least: int, what: str) -> int:
        """A number of entries that each take at least `least` bytes of what is left."""
        at, count = self.at, self.u64(what)
        if count > (self.size - self.at) // least:
            left = self.size - self.at
            raise self.fail(f"{what} is {count} and the file has only {left} bytes more", at)
        return count

    def string(self, what: str) -> str:
        at, length = self.at, self.u64(what)
        self.need(length, what)
        raw = self.data[self.at : self.at + length]
        self.at += length
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as e:
            raise self.fail(f"{what} is not UTF-8 ({e.reason})", at) from None

    def value(self, kind: int, key: str, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.string(f"value of {key!r}")
        if kind == _ARRAY:
            return self.array(key, depth)
        if kind not in _SCALARS:
            raise self.fail(f"type of {key!r} is {kind} and must be 0 to 12", self.at - 4)
        value = self.number(_SCALARS[kind], f"value of {key!r}")
        return self.boolean(value, key) if kind == _BOOL else value

    def boolean(self, value: int, key: str) -> bool:
        if value > 1:
            raise self.fail(f"bool {key!r} is {value} and must be 0 or 1", self.at - 1)
        return bool(value)

    def array(self, key: str, depth: int) -> list | Texts:
        if depth >= MAX_DEPTH:
            raise self.fail(f"arrays of {key!r} are nested more than {MAX_DEPTH} deep")
        at, kind = self.at, self.u32(f"array type of {key!r}")
        if kind not in _LEAST_BYTES:
            raise self.fail(f"array type of {key!r} is {kind} and must be 0 to 12", at)
        count = self.count(_LEAST_BYTES[kind], f"array length of {key!r}")
        self.entries += count
        if self.entries > MAX_ENTRIES:
            raise self.fail(f"arrays up to {key!r} hold more than {MAX_ENTRIES} entries", at)
        if kind == _STRING:
            long = self.texts(count, key) if count > LONG_LIST and depth == 0 else None
            return self.strings(count, key) if long is None else long
        if kind == _ARRAY:
            return [self.array(key, depth + 1) for _ in range(count)]
        code = _SCALARS[kind].format[1:]
        values = list(struct.unpack_from(f"<{count}{code}", self.data, self.at))
        self.at += count * _SCALARS[kind].size
        if kind == _BOOL:
            if any(v > 1 for v in values):
                raise self.fail(f"a bool of {key!r} is neither 0 nor 1", at)
            return [bool(v) for v in values]
        return values

    def texts(self, count: int, key: str) -> Texts | None:
        """Finds where each string lies and decodes none. None if one is longer than 255 bytes or
        the file ends: strings() then looks closer."""
        data, at, starts = self.data, self.at, []
        try:
            for _ in range(count):
                starts.append(at)
                at += 8 + data[at]  # the low byte of the length
        except IndexError:
            return None
        if at > self.size or at - self.at > MAX_TEXTS:
            return None
        begin, found = self.at, np.array(starts)
        every = np.ndarray(self.size - 7, "<u8", data, strides=(1,))  # a word at each byte
        if (every[found] != np.diff(found, append=at) - 8).any():
            return None
        self.at, path = at, self.path

        def fail(i: int, start: int, reason: str):  # without the cursor, which holds the mapping
            message = f"string {i} of {key!r} is not UTF-8 ({reason}) at offset {begin + start}"
            return format_error(path, message)

        return Texts(data[begin:at], (found - begin + 8).astype(np.uint32), fail)

    def strings(self, count: int, key: str) -> list[str]:
        """The loop of string() spelled out: a vocabulary has tens of thousands of them."""
        data, size, at, length_of = self.data, self.size, self.at, _U64.unpack_from
        out: list[str] = []
        try:
            for _ in range(count):
                end = at + 8
                if end > size:
                    break
                (length,) = length_of(data, at)
                if length > size - end:
                    break
                at = end + length
                out.append(data[end:at].decode("utf-8"))
        except UnicodeDecodeError as e:
            message = f"string {len(out)} of {key!r} is not UTF-8 ({e.reason})"
            raise self.fail(message, end) from None
        self.at = at
        if len(out) != count:
            raise self.fail(f"string {len(out)} of {key!r} runs past the end of the file")
        return out


class GGUF:
    """An open checkpoint: `metadata` by key, `tensors` by name, and their bytes in the mapping."""

    def __init__(self, path: str | os.PathLike):
        self.path = os.fspath(path)
        if os.path.isdir(self.path):
            raise unsupported(f"{self.path}: is a folder and must be a GGUF file")
        self._file = Mapping(self.path)
        self.file_bytes = self._file.size
        try:
            if self.file_bytes == 0:
                raise format_error(self.path, "the file is empty at offset 0")
            self._parse(Cursor(self.path, self._file.map, self.file_bytes))
        except BaseException:
            self.close()
            raise

    def _parse(self, cursor: Cursor) -> None:
        cursor.need(4, "the magic")
        magic = self._file.map[:4]
        if magic != MAGIC:
            raise cursor.fail(f"the magic is {magic!r} and must be {MAGIC!r}")
        cursor.at = 4
        self.version = self._check_version(cursor.u32("the version"))
        n_tensors = cursor.count(_LEAST_TENSOR, "the number of tensors")
        n_keys = cursor.count(_LEAST_KEY, "the number of keys")
        self.metadata = self._read_metadata(cursor, n_keys)
        self.alignment = self._check_alignment()
        infos = [self._read_info(cursor) for _ in range(n_tensors)]
        base = -(-cursor.at // self.alignment) * self.alignment
        self.tensors = self._place(infos, base)

    def _check_version(self, version: int) -> int:
        if version in VERSIONS:
            return version
        if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
            raise unsupported(f"{self.path}: the file is big-endian and must be little-endian")
        raise unsupported(f"{self.path}: GGUF version is {version} and must be 2 or 3")

    def _read_metadata(self, cursor: Cursor, count: int) -> Metadata:
        out = Metadata()
        for i in range(count):
            at, key = cursor.at, cursor.string(f"key {i}")
            if key in out:
                raise cursor.fail(f"key {key!r} stands twice, again", at)
            out.add(key, cursor.value(cursor.u32(f"type of {key!r}"), key))
        return out

    def _check_alignment(self) -> int:
        value = self.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if type(value) is not int or value <= 0 or value & (value - 1):
            raise self._bad(f"key 'general.alignment' is {value!r} and must be a power of two")
        return value

    def _bad(self, message: str):
        return format_error(self.path, message)

    def _read_info(self, cursor: Cursor) -> tuple[str, tuple[int, ...], int, int, int]:
        at, name = cursor.at, cursor.string("a tensor's name")
        n_dims = cursor.u32(f"the number of axes of {name!r}")
        if not 1 <= n_dims <= MAX_DIMS:
            message = f"tensor {name!r} has {n_dims} axes and must have 1 to {MAX_DIMS}"
            raise cursor.fail(message, at)
        dims = tuple(cursor.u64(f"an extent of {name!r}") for _ in range(n_dims))
        kind = cursor.u32(f"the type of {name!r}")
        offset = cursor.u64(f"the offset of {name!r}")
        return name, dims[::-1], kind, offset, at

    def _place(self, infos: list, base: int) -> dict[str, TensorInfo]:
        out: dict[str, TensorInfo] = {}
        for name, shape, kind, offset, at in infos:
            if name in out:
                raise self._bad(f"tensor {name!r} stands twice, again at offset {at}")
            out[name] = self._place_one(name, shape, kind, base, offset)
        end, owner = base, "the header"
        for t in sorted(out.values(), key=lambda t: t.offset):
            if t.offset < end:
                raise self._bad(f"tensor {t.name!r} overlaps {owner} at offset {t.offset}")
            end, owner = t.offset + t.bytes, f"tensor {t.name!r}"
        return out

    def _place_one(self, name: str, shape: tuple, kind: int, base: int, offset: int) -> TensorInfo:
        what = f"tensor {name!r}"
        if kind not in TYPES:
            stored = OTHER_TYPES.get(kind, f"number {kind}")
            names = ", ".join(t.name for t in TYPES.values())
            stored = f"{what} is stored as {stored}"
            raise unsupported(f"{self.path}: {stored} and must be one of {names}")
        form = TYPES[kind]
        elements = math.prod(shape)
        if elements == 0 or elements > MAX_ELEMENTS:
            raise self._bad(f"{what} has shape {list(shape)}, which no tensor can have")
        if shape[-1] % form.weights:
            multiple = f"{form.name} needs a multiple of {form.weights}"
            raise self._bad(f"{what} has rows of {shape[-1]} and {multiple}")
        if offset % self.alignment:
            multiple = f"must be a multiple of the alignment {self.alignment}"
            raise self._bad(f"{what} has offset {offset} and {multiple}")
        size = elements // form.weights * form.bytes
        end = base + offset + size
        if end > self.file_bytes:
            raise self._bad(f"{what} ends at byte {end} and the file has {self.file_bytes}")
        return TensorInfo(name, kind, form.name, shape, base + offset, size)

    def blocks(self, name: str) -> np.ndarray:
        """The tensor's bytes as stored: u8, read-only, in the mapping."""
        t = self.tensors[name]
        return self._file.blocks(t.offset, t.bytes)

    def release(self) -> None:
        """Lets the system drop all pages read so far; reading them again brings them back."""
        self._file.release()

    def close(self) -> None:
        """Ends the mapping, or leaves that to the last array that still looks into it."""
        self._file.close()
