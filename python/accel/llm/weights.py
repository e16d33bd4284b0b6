"""Holds a checkpoint's tensors as a device wants them.

Quantized tensors become the planes of Int4 and Quantized; float matrices stay where they lie in the
mapped file. Each tensor's planes are ports named after it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass

import numpy as np

import accel
from accel import quant

from .checkpoint import Checkpoint, TensorInfo
from .errors import format_error, unsupported

_DTYPES = {"float32": accel.F32, "float16": accel.F16}
_FLOATS = {"F32": (accel.F32, 4), "F16": (accel.F16, 2), "BF16": (accel.BF16, 2)}
_NUMPY = {"F32": np.float32, "F16": np.float16, "BF16": np.uint16}
_HALF_BITS = 16  # of an f32, that bf16 leaves out


@dataclass(frozen=True)
class Part:
    """One operand of the graph: its name there, its shape, and the tensors that hold it.

    kind "matrix" and "table" stay as they are stored ("table": rows must be gatherable); "vector"
    is f32 after `change`. Several stored tensors are stacked along a new first axis.
    """

    name: str
    shape: tuple[int, ...]
    stored: tuple[str, ...]
    kind: str = "matrix"
    change: Callable[[np.ndarray], np.ndarray] | None = None
    changed: str = ""  # what change does, for the report

    @property
    def port(self) -> str:
        """The stored name; of a stack the first one's."""
        return self.stored[0]

    @property
    def stored_shape(self) -> tuple[int, ...]:
        return self.shape if len(self.stored) == 1 else self.shape[1:]


@dataclass(frozen=True)
class Held:
    """How an operand is held: `form` is int4, int8 or array; `text` says it in a report's words."""

    port: str
    names: tuple[str, ...]
    shape: tuple[int, ...]
    form: str
    dtype: object
    affine: bool
    group: int
    stored: str
    text: str
    max_error: float


def plus_one(w: np.ndarray) -> np.ndarray:
    return w + np.float32(1)


def check_parts(file: Checkpoint, parts: Sequence[Part], family: str, ignored=()) -> None:
    """Every part must be there in its shape, and every tensor of the file must be of a part."""
    known = set()
    for part in parts:
        for name in part.stored:
            info = file.tensors.get(name)
            if info is None:
                raise format_error(file.path, f"tensor {name!r} is missing")
            if _squeezed(info.shape) != _squeezed(part.stored_shape):
                must = f"must be {list(part.stored_shape)}"
                raise format_error(file.path, f"tensor {name!r} is {list(info.shape)} and {must}")
            _check_type(file, part, info)
            known.add(name)
    for name in sorted(set(file.tensors) - known):
        if not any(name.startswith(i) or name.endswith(i) for i in ignored):
            raise unsupported(f"{file.path}: tensor {name!r} has no place in a {family} graph")


def _squeezed(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def _check_type(file: Checkpoint, part: Part, info: TensorInfo) -> None:
    stored = f"{file.path}: tensor {info.name!r} is stored as {info.type_name}"
    if info.type is None and info.type_name not in _FLOATS:
        raise unsupported(f"{stored} and must be F32, F16 or BF16")
    if part.kind == "vector" and info.type_name not in _FLOATS:
        raise unsupported(f"{stored} and must be F32, F16 or BF16")
    if part.kind == "table" and info.type_name in ("Q4_0", "Q4_1", "Q4_K"):
        must = "which is held in int4, and must be of a type which rows can be gathered from"
        raise unsupported(f"{stored}, {must}")


class Weights:
    """`ports` maps a port's name to its memory; `held` a part's name to how it is held."""

    def __init__(self, file: Checkpoint, parts: Sequence[Part], device, progress=None):
        self.ports: dict[str, object] = {}
        self.held: dict[str, Held] = {}
        self.bytes = 0
        self._device, self._file = device, file
        self._in_place = device.info.backend == "cpu"  # others hold copies
        self._buffers: list = []
        with closing(self._converted(parts)) as converted:  # which has threads, whatever happens
            for i, (part, planes) in enumerate(zip(parts, converted, strict=True)):
                self._hold(part, planes)
                if progress:
                    progress("convert", i + 1, len(parts))
        file.release()

    def constant(self, name: str, array: np.ndarray) -> None:
        """A port that is not of the file."""
        self._put(name, array, array.nbytes)

    def _converted(self, parts: Sequence[Part]) -> Iterator[tuple | None]:
        """The planes of each quantized part in turn, by as many threads as the device has, or the
        machine beside a GPU."""
        threads = min(self._device.info.threads or os.cpu_count() or 1, len(parts))
        if threads == 1:
            yield from map(self._planes, parts)
            return
        pool = ThreadPoolExecutor(threads)
        try:
            yield from pool.map(self._planes, parts)
        finally:
            pool.shutdown(cancel_futures=True)

    def _planes(self, part: Part) -> tuple | None:
        """A quantized part's planes and their error. The file's pages go when they have been read:
        all of them, since the system maps a file in runs of up to megabytes."""
        infos = [self._file.tensors[name] for name in part.stored]
        types = sorted({i.type_name for i in infos})
        if len(types) > 1:
            names = " and ".join(types)
            raise unsupported(f"{self._file.path}: the stack of {part.port!r} is stored as {names}")
        if part.kind == "vector" or types[0] in _FLOATS:
            return None
        # Blocks lie along rows, so those of a stack follow one another.
        raw = [self._file.blocks(i.name) for i in infos]
        blocks = raw[0] if len(raw) == 1 else np.concatenate(raw)
        found = quant.gguf_planes(types[0], blocks, part.shape, 1)  # parts are what threads share
        self._file.release()
        return found

    def _hold(self, part: Part, planes: tuple | None) -> None:
        infos = [self._file.tensors[name] for name in part.stored]
        if planes is not None:
            self._hold_quantized(part, infos[0].type_name, *planes)
        elif part.kind == "vector":
            self._hold_vector(part, infos)
        else:
            self._hold_float(part, infos)

    def _hold_vector(self, part: Part, infos: list[TensorInfo]) -> None:
        raw = [self._file.blocks(i.name) for i in infos]
        stored, text = infos[0].type_name, "f32"
        rows = [widened(r, stored) for r in raw]
        value = rows[0] if len(rows) == 1 else np.stack(rows)
        if part.change is not None:
            value, text = part.change(value), f"f32, {part.changed}"
        value = np.require(value, np.float32, ["C", "A"]).reshape(part.shape)
        # A few kilobytes, and beside them in the file pages that nobody needs.
        value = value.copy() if np.may_share_memory(value, raw[0]) else value
        self._put(part.port, value, value.nbytes)
        self._note(part, stored, "array", accel.F32, text)

    def _hold_float(self, part: Part, infos: list[TensorInfo]) -> None:
        stored = infos[0].type_name
        dtype, size = _FLOATS[stored]
        if len(infos) == 1 and infos[0].offset % size == 0:
            raw, text = self._file.blocks(infos[0].name), stored.lower()
            text += " in the file" if self._in_place else ""
        else:
            # Stacked, or where no element is aligned: a copy.
            raw = np.concatenate([self._file.blocks(i.name) for i in infos])
            text = stored.lower()
        if dtype == accel.BF16:  # which numpy cannot name without help: the device's view can
            buffer = self._shared(raw)
            value = buffer.view_as(dtype, 0, buffer.count // 2)
            text = stored.lower() if buffer.copied else text
        else:
            value = raw.view(_NUMPY[stored])
        self._put(part.port, value, raw.nbytes)
        self._note(part, stored, "array", dtype, text)

    def _shared(self, raw: np.ndarray):
        try:
            buffer = self._device.from_dlpack(raw)
        except (BufferError, TypeError):  # a numpy that does not export read-only memory
            buffer = self._device.from_dlpack(raw.copy(), copy=True)
        self._buffers.append(buffer)
        return buffer

    def _hold_quantized(self, part: Part, stored: str, planes, error: float) -> None:
        if isinstance(planes, quant.Int4Planes):
            self._hold_int4(part, stored, planes, error)
        elif isinstance(planes, quant.Int8Planes):
            self._put(part.port + ".quants", planes.quants, planes.quants.nbytes)
            self._put(part.port + ".scales", planes.scales, planes.scales.nbytes)
            self._note(part, stored, "int8", accel.F16, "int8 block 32", error)
        else:
            dtype = _DTYPES[planes.dtype.name]
            self._put(part.port, planes, planes.nbytes)
            self._note(part, stored, "array", dtype, str(dtype), error)

    def _hold_int4(self, part: Part, stored: str, planes, error: float) -> None:
        affine = planes.biases is not None
        offsets = ("biases", planes.biases) if affine else ("zeros", planes.zeros)
        for name, plane in (("codes", planes.codes), ("scales", planes.scales), offsets):
            self._put(f"{part.port}.{name}", plane, plane.nbytes)
        dtype = _DTYPES[planes.scales.dtype.name]
        text = f"int4 group {planes.group} {'affine' if affine else 'zeros'}"
        if dtype != accel.F16:
            text += f" {dtype}"
        self._note(part, stored, "int4", dtype, text, error, affine, planes.group)

    def _put(self, name: str, value: object, count: int) -> None:
        if isinstance(value, np.ndarray) and not self._in_place:
            value = self._device.buffer(value, label=name)
            self._buffers.append(value)
        self.ports[name] = value
        self.bytes += count

    def _note(self, part, stored, form, dtype, text, error=0.0, affine=False, group=32) -> None:
        self.held[part.name] = Held(
            part.port, part.stored, part.shape, form, dtype, affine, group, stored, text, error
        )

    def close(self) -> None:
        self.ports.clear()
        for buffer in self._buffers:
            buffer.close()


def widened(raw: np.ndarray, stored: str) -> np.ndarray:
    """A float tensor's values in f32: in place where it is f32 and aligned."""
    if stored == "BF16":
        return (raw.view(np.uint16).astype(np.uint32) << _HALF_BITS).view(np.float32)
    return raw.view(_NUMPY[stored]).astype(np.float32, copy=False)
