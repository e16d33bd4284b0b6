"""What every checkpoint reader gives: tensors by name, and their bytes in a mapped file."""

from __future__ import annotations

import mmap
import os
from dataclasses import dataclass
from typing import Protocol

import numpy as np


@dataclass(frozen=True)
class TensorInfo:
    """Where a tensor lies: in file number `shard`, at `offset` bytes from its start.

    shape is outermost axis first. `type` is GGUF's number, None in other formats.
    """

    name: str
    type: int | None
    type_name: str
    shape: tuple[int, ...]
    offset: int
    bytes: int
    shard: int = 0


class Checkpoint(Protocol):
    """An open checkpoint."""

    path: str
    file_bytes: int
    tensors: dict[str, TensorInfo]

    def blocks(self, name: str) -> np.ndarray: ...
    def release(self) -> None: ...
    def close(self) -> None: ...


class Mapping:
    """One file mapped read-only; its arrays keep the mapping alive."""

    def __init__(self, path: str):
        with open(path, "rb") as file:
            self.size = os.fstat(file.fileno()).st_size
            # An empty file cannot be mapped; it reads as no bytes.
            self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if self.size else None
        self._bytes = np.frombuffer(self.map if self.size else b"", dtype=np.uint8)

    def blocks(self, offset: int, count: int) -> np.ndarray:
        """u8, read-only, in the mapping."""
        return self._bytes[offset : offset + count]

    def release(self) -> None:
        """Lets the system drop all pages read so far; reading them again brings them back."""
        if self.size and hasattr(mmap, "MADV_DONTNEED"):
            self.map.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Ends the mapping, or leaves that to the last array that still looks into it."""
        self._bytes = None
        try:
            if self.map is not None:
                self.map.close()
        except BufferError:
            pass
