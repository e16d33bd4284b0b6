"""Small values that the core hands out: shapes and the rows of reports."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from accel._core import DType, PortKind, ScalarKind


class Shape(tuple[int, ...]):
    """Extents, outermost axis first."""

    __slots__ = ()

    def __new__(cls, extents: Iterable[int] = ()) -> Shape:
        return super().__new__(cls, (operator.index(n) for n in extents))

    def elements(self) -> int:
        """The product of the extents, 1 for rank 0."""
        return math.prod(self)

    def __str__(self) -> str:
        return "[" + " ".join(map(str, self)) + "]"

    def __repr__(self) -> str:
        return f"Shape({tuple(self)})"


class Diagnostic(NamedTuple):
    """One mistake of a recorded graph."""

    op: str
    operand: str
    message: str
    file: str
    line: int

    def __str__(self) -> str:
        if not self.file:
            return self.message
        name = self.file.replace("\\", "/").rpartition("/")[2]
        return f"{self.message}, recorded at {name}:{self.line}"


class Problem(NamedTuple):
    """One problem of a set of bindings; ``name`` is the port or scalar."""

    code: str
    name: str
    message: str

    def __str__(self) -> str:
        return self.message


class PortDesc(NamedTuple):
    """A named buffer that the caller supplies."""

    name: str
    kind: PortKind
    dtype: DType
    shape: Shape
    layout: str


class ScalarDesc(NamedTuple):
    """A named number that the caller supplies."""

    name: str
    kind: ScalarKind


class KernelSelection(NamedTuple):
    """What runs for one recorded node, why, and what was rejected and why."""

    op: str
    kernel: str
    reason: str
    rejected: tuple[str, ...]


class Rejection(NamedTuple):
    """A kernel that could not take an operation, and why."""

    kernel: str
    why: str

    def __str__(self) -> str:
        return f"{self.kernel} {self.why}"


class GraphMemory(NamedTuple):
    """Bytes of a plan's transients: without sharing, at the peak, and as allocated."""

    unaliased_bytes: int
    peak_bytes: int
    transient_bytes: int


class Packed(dict[str, Any]):
    """Bindings by port name with weights in the layouts of a plan; the bytes that were made, and
    the seconds that it took."""

    def __init__(self, buffers: dict[str, Any], nbytes: int, seconds: float) -> None:
        super().__init__(buffers)
        self.bytes = nbytes
        self.seconds = seconds


class DeviceInfo(NamedTuple):
    """What a device is; ``id`` is an opaque token that stays the same across processes."""

    id: bytes
    backend: str
    name: str
    vendor: str
    software: bool
    level: str
    isa: str
    threads: int
    capabilities: tuple[str, ...]
    limits: dict[str, int]


class ProbeNote(NamedTuple):
    """Why a backend gave no device, and at which stage."""

    backend: str
    stage: str
    error: str


class Enumeration(NamedTuple):
    """The devices of this machine, and notes about backends without one."""

    devices: tuple[DeviceInfo, ...]
    notes: tuple[ProbeNote, ...]


class FenceStats(NamedTuple):
    """Times of one submission on a monotonic clock, in nanoseconds; 0 before they are known."""

    queued_ns: int
    started_ns: int
    finished_ns: int
