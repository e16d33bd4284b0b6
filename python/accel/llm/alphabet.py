"""The alphabet in which byte-level vocabularies spell bytes."""

from __future__ import annotations


def byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary, to the byte.

    Printable Latin-1 bytes stand for themselves; the others, in order, are characters from 256 on.
    """
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [b for b in range(256) if b not in set(kept)]
    return {chr(b): b for b in kept} | {chr(256 + i): b for i, b in enumerate(moved)}
