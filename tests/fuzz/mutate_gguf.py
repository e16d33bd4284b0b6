"""Mutations of a GGUF file: bits, bytes, lengths, truncations, splices. Same seed, same mutants."""

import struct

import numpy as np
from checkpoint import gguf_file

EDGES = (0, 1, 2, 7, 8, 31, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1)


def seed_file() -> bytes:
    """A small file with every kind of value, nested arrays and every tensor type."""
    keys = [
        ("general.architecture", "str", "llama"),
        ("general.alignment", "u32", 32),
        ("a.u8", "u8", 200), ("a.i8", "i8", -5), ("a.u16", "u16", 60000), ("a.i16", "i16", -3),
        ("a.u32", "u32", 2**32 - 1), ("a.i32", "i32", -7), ("a.f32", "f32", 1.5),
        ("a.bool", "bool", 1), ("a.u64", "u64", 2**63), ("a.i64", "i64", -9), ("a.f64", "f64", 0.1),
        ("b.strings", "array", ("str", ["one", "zwei", "três", ""])),
        ("b.numbers", "array", ("i32", [1, -2, 3])),
        ("b.flags", "array", ("bool", [0, 1, 1])),
        ("b.nested", "array", ("array", [("u8", [1, 2]), ("str", ["x"])])),
        ("b.empty", "array", ("f32", [])),
    ]  # fmt: skip
    raw = np.random.default_rng(7).integers(0, 256, size=4096, dtype=np.uint8).tobytes()
    tensors = [
        ("t.f32", (3, 5), 0, raw[:60]), ("t.f16", (8,), 1, raw[:16]),
        ("t.q4_0", (2, 64), 2, raw[:72]), ("t.q4_1", (64,), 3, raw[:40]),
        ("t.q8_0", (1, 2, 32), 8, raw[:68]), ("t.bf16", (7,), 30, raw[:14]),
    ]  # fmt: skip
    return gguf_file(keys, tensors)


def mutant(data: bytes, rng: np.random.Generator) -> bytes:
    """One to four edits, mostly in the header."""
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 5))):
        if not out:
            break
        edit = int(rng.integers(0, 7))
        at = int(rng.integers(0, len(out)))
        if edit == 0:
            out[at] ^= 1 << int(rng.integers(0, 8))
        elif edit == 1:
            out[at] = int(rng.integers(0, 256))
        elif edit == 2:  # a length, a count or an offset
            out[at : at + 8] = struct.pack("<Q", EDGES[int(rng.integers(0, len(EDGES)))])
        elif edit == 3:  # a type or a number of axes
            out[at : at + 4] = struct.pack("<I", int(rng.integers(0, 48)))
        elif edit == 4:
            del out[at:]
        elif edit == 5:
            del out[at : at + int(rng.integers(1, 16))]
        else:
            out[at:at] = bytes(rng.integers(0, 256, size=int(rng.integers(1, 16)), dtype=np.uint8))
    return bytes(out)
