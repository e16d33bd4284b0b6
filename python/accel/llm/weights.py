"""Holds a checkpoint's tensors as a device wants them, and declares them in a graph.

Quantized tensors become the planes of Int4 and Quantized, exactly; float tensors stay where they
lie in the mapped file. Each tensor's planes are ports named after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

import accel
from accel import quant, tensor

from .gguf import GGUF, TensorInfo

_DTYPES = {"float32": accel.F32, "float16": accel.F16, "bfloat16": accel.BF16}
_FLOAT = {"F32": (accel.F32, np.float32), "F16": (accel.F16, np.float16)}


@dataclass(frozen=True)
class Held:
    """How a tensor is held: `form` is int4, int8 or array; `text` says it in the report's words."""

    name: str
    shape: tuple[int, ...]
    form: str
    dtype: object
    affine: bool
    group: int
    stored: str
    text: str
    max_error: float


class Weights:
    """`ports` maps a port's name to its array; `held` a tensor's name to how it is held."""

    def __init__(self, file: GGUF, threads: int = 0, progress: Callable | None = None):
        self.ports: dict[str, object] = {}
        self.held: dict[str, Held] = {}
        for i, info in enumerate(file.tensors.values()):
            self._hold(file, info, threads)
            if progress:
                progress("convert", i + 1, len(file.tensors))
        self.bytes = sum(a.nbytes for a in self.ports.values())

    def _hold(self, file: GGUF, info: TensorInfo, threads: int) -> None:
        blocks = file.blocks(info.name)
        if info.type_name in _FLOAT and info.offset % 4 == 0:
            dtype, numpy_dtype = _FLOAT[info.type_name]
            self.ports[info.name] = blocks.view(numpy_dtype)
            self._note(info, "array", dtype, f"{info.type_name.lower()} in the file")
            return
        planes, max_error = quant.gguf_planes(info.type_name, blocks, info.shape, threads)
        if isinstance(planes, quant.Int4Planes):
            self._hold_int4(info, planes, max_error)
        elif isinstance(planes, quant.Int8Planes):
            self.ports[info.name + ".quants"] = planes.quants
            self.ports[info.name + ".scales"] = planes.scales
            self._note(info, "int8", accel.F16, "int8 block 32", max_error)
        else:
            self.ports[info.name] = planes
            dtype = _DTYPES[planes.dtype.name]
            self._note(info, "array", dtype, str(dtype), max_error)
        file.release(info.name)

    def _hold_int4(self, info: TensorInfo, planes, max_error: float) -> None:
        affine = planes.biases is not None
        self.ports[info.name + ".codes"] = planes.codes
        self.ports[info.name + ".scales"] = planes.scales
        offsets = ("biases", planes.biases) if affine else ("zeros", planes.zeros)
        self.ports[f"{info.name}.{offsets[0]}"] = offsets[1]
        text = f"int4 group {planes.group} {'affine' if affine else 'zeros'}"
        dtype = _DTYPES[planes.scales.dtype.name]
        if dtype != accel.F16:
            text += f" {str(dtype)}"
        self._note(info, "int4", dtype, text, max_error, affine, planes.group)

    def _note(self, info, form, dtype, text, max_error=0.0, affine=False, group=32) -> None:
        self.held[info.name] = Held(
            info.name, info.shape, form, dtype, affine, group, info.type_name, text, max_error
        )


class Declared:
    """The weights of one recording: each declared at its first use, and the operators that fit."""

    def __init__(self, builder, held: dict[str, Held]):
        self._builder, self._held = builder, held
        self._declared: dict[str, object] = {}

    def _get(self, name: str):
        if name not in self._declared:
            h = self._held[name]
            if h.form == "int4":
                value = self._builder.int4(
                    name, h.shape, group=h.group, affine=h.affine, dtype=h.dtype
                )
            elif h.form == "int8":
                value = self._builder.quantized(name, h.shape)
            else:
                value = self._builder.weight(name, h.dtype, h.shape)
            self._declared[name] = value
        return self._declared[name]

    def gain(self, name: str):
        return self._get(name)

    def rows(self, name: str, ids):
        """The rows of a table that the ids name, in f32."""
        gather = tensor.quant_gather_rows if self._held[name].form == "int8" else tensor.gather_rows
        return gather(self._get(name), ids)

    def product(self, x, name: str):
        """x [M, K] times the tensor [N, K], in f32."""
        multiply = {
            "int4": tensor.int4_matmul, "int8": tensor.quant_matmul, "array": tensor.matmul
        }[self._held[name].form]  # fmt: skip
        return multiply(x, self._get(name), w_order="nk")
