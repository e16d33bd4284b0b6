"""The ONNX backend node cases, made in memory by the `onnx` package, and what an adapter needs.

An adapter maps one case on public operators. What the contract cannot express raises `Excluded`,
whose text names the clause.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cache

import ml_dtypes
import numpy as np
import onnx
from conftest import open_runtime
from onnx import numpy_helper
from runner import Graph, run

BF16 = np.dtype(ml_dtypes.bfloat16)
OURS = {np.dtype(t) for t in ("f4", "f2", "i4", "u4", "i1", "u1")} | {BF16}
DTYPES = "dtypes are f32 f16 bf16 i32 u32 i8 u8 (CONTRACT 1)"


class Excluded(Exception):
    """The clause of the contract that a case falls outside of."""


@dataclass
class Case:
    name: str
    op: str
    attrs: dict
    ins: list  # arrays, None where an optional input is omitted
    outs: list
    out_names: list
    rtol: float
    atol: float

    def given(self, i: int) -> bool:
        return len(self.ins) > i and self.ins[i] is not None

    def need(self, condition: bool, clause: str) -> None:
        if not condition:
            raise Excluded(clause)


def _array(value) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


@cache
def all_cases() -> tuple[Case, ...]:
    """Every case of one node. The data is seeded: two runs give the same arrays."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        found = []
        for c in load_model_tests(kind="node"):
            nodes = c.model.graph.node
            if len(nodes) != 1:
                continue
            node = nodes[0]
            attrs = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
            for ins, outs in c.data_sets:
                given = iter(ins)
                arrays = [_array(next(given)) if name else None for name in node.input]
                results = [_array(o) for o in outs]
                names = [name for name in node.output if name]
                found.append(
                    Case(
                        c.name.removeprefix("test_"),
                        node.op_type,
                        attrs,
                        arrays,
                        results,
                        names,
                        c.rtol,
                        c.atol,
                    )
                )
    return tuple(found)


class Net(Graph):
    """One recorded graph on the CPU; ports are named in the order of their declaration."""

    def __init__(self):
        self.runtime = open_runtime(None)
        super().__init__(self.runtime, "onnx")
        self.count = 0

    def _name(self) -> str:
        self.count += 1
        return f"p{self.count}"

    def array(self, a: np.ndarray):
        """An input port; a scalar becomes [1]."""
        a = np.asarray(a)
        if a.dtype not in OURS:
            raise Excluded(f"{a.dtype.name}: {DTYPES}")
        if a.size == 0:
            raise Excluded("a dimension is positive (CONTRACT 1)")
        return self.port(self._name(), a.reshape(a.shape or (1,)))

    def state_of(self, a: np.ndarray):
        return self.port(self._name(), a, kind="state")

    def f32(self, value: float) -> str:
        return self.scalar(self._name(), float(value))

    def u32(self, value: int) -> str:
        return self.scalar(self._name(), int(value), "u32")

    def run(self, *values) -> list[np.ndarray]:
        for i, v in enumerate(values):
            self.output(f"out{i}", v)
        got = run(self.runtime.device, self)
        self.results = got
        return [got[f"out{i}"] for i in range(len(values))]


def agree(case: Case, got: list[np.ndarray]) -> None:
    """At the case's own tolerance; a result of fewer bits is rounded to them by the reader."""
    assert len(got) == len(case.outs), case.name
    for have, want in zip(got, case.outs, strict=True):
        want = np.asarray(want)
        have = np.asarray(have).reshape(want.shape)
        if want.dtype in (np.dtype("f2"), BF16) and have.dtype == np.dtype("f4"):
            have = have.astype(want.dtype)
        wide = np.float64 if want.dtype.kind in "fV" or want.dtype == BF16 else want.dtype
        np.testing.assert_allclose(
            have.astype(wide), want.astype(wide), case.rtol, case.atol, err_msg=case.name
        )
