"""Programs of builder calls in any order: a list of small integers is read as calls of the whole
operator table, views and states included, with operands that fit, do not fit, are missing, strided,
poisoned, stale or of another builder."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import accel
import case
import numpy as np
from accel import _core
from accel import tensor as T
from cases import CASES
from runner import dtype_of

DTYPES = [accel.F32] * 6 + [accel.F16] * 3 + [accel.U32] * 4 + [accel.BF16, accel.I8, accel.I32]
DTYPES += [accel.U8]
SHAPES = [
    (1,), (2,), (4,), (8,), (32,), (1, 8), (4, 1), (4, 8), (8, 4), (8, 8), (2, 32), (8, 32),
    (2, 4, 8), (4, 1, 8), (4, 2, 8), (16, 2, 8), (2, 1, 4, 8), (2, 4, 8, 8), (2, 8, 4), (2, 3, 8),
]  # fmt: skip
INTEGERS = [0, 1, 2, 3, 4, 8, 16, -1, -2, 128, 129, 2**31, 2**63 - 1, -(2**63)]
REALS = [1e-5, 1.0, 0.5, 2.0, 0.0, -1.0, float("nan"), float("inf"), 1e-46]
TEXTS = ["kn", "nk", "adjacent", "halves", "erf", "tanh", "delta", "add", "int8", "f16", "bf16", ""]
GROUPS = [32, 64, 128, 0, 33]
# What no caller may be told is a defect of his.
ALLOWED = (accel.Error, TypeError)


@dataclass
class Program:
    """The values that a run of calls has made so far."""

    runtime: accel.Runtime
    numbers: list[int]
    builder: object = None
    other: object = None
    tensors: list = field(default_factory=list)
    states: list = field(default_factory=list)
    computed: list = field(default_factory=list)
    ports: int = 0
    at: int = 0

    def __post_init__(self):
        self.builder = self.runtime.new_builder("program")
        self.other = self.runtime.new_builder("other")

    def draw(self, n: int) -> int:
        """The next number, below n; zeros when the list is used up."""
        value = self.numbers[self.at] if self.at < len(self.numbers) else 0
        self.at += 1
        return value % n

    def pick(self, choices):
        return choices[self.draw(len(choices))]

    # ------------------------------------------------------------ operands

    def name(self) -> str:
        self.ports += 1
        return f"p{self.ports}"

    def tensor(self):
        kind = self.draw(16)
        if kind == 0:
            return None
        if kind == 1:
            return self.other.input(self.name(), accel.F32, [4, 8])
        if kind < 8 and self.tensors:
            return self.pick(self.tensors)
        made = self.builder.input(self.name(), self.pick(DTYPES), self.pick(SHAPES))
        if kind == 8:
            made = T.transpose(made, 0, -1)
        return made

    def state(self):
        kind = self.draw(10)
        if kind == 0:
            return None
        if kind < 6 and self.states:
            return self.pick(self.states)
        made = self.builder.state(self.name(), self.pick(DTYPES), self.pick(SHAPES))
        self.states.append(made)
        return made

    def int4(self):
        if self.draw(3):
            shape, group = self.pick(SHAPES), self.pick(GROUPS)
            return self.builder.int4(self.name(), shape, group=group, affine=bool(self.draw(2)))
        planes = [self.tensor() for _ in range(4)]
        return T.Int4(
            planes[0], planes[1], zeros=planes[2], biases=planes[3],
            weights=self.pick(INTEGERS), group=self.pick(GROUPS),
        )  # fmt: skip

    def quantized(self):
        if self.draw(3):
            return self.builder.quantized(self.name(), self.pick(SHAPES))
        return T.Quantized(self.tensor(), self.tensor())

    def scalar(self, kind) -> str | None:
        choice = self.draw(8)
        if choice < 2:
            return [None, "undeclared"][choice]
        if choice == 2:
            kind = T.ScalarKind.U32 if kind is T.ScalarKind.F32 else T.ScalarKind.F32
        return self.builder.scalar(self.name(), kind)

    def operand(self, spec: dict):
        if spec["optional"] and self.draw(2):
            return None
        kind = spec["kind"]
        if kind == "weight":
            kind = self.pick(["tensor", "int4", "quantized"])
        if kind == "tensors":
            return tuple(self.tensor() for _ in range(self.draw(4)))
        return {
            "tensor": self.tensor,
            "state": self.state,
            "int4": self.int4,
            "quantized": self.quantized,
        }[kind]()

    def attribute(self, spec: dict):
        if self.draw(3 if spec["required"] else 2) == 0 and spec["fallback"] is None:
            return None
        if spec["fallback"] is not None and self.draw(2):
            text = spec["fallback"]
            if text == "None":
                return None
            return {"True": True, "False": False}.get(text) if text[0] in "TF" else eval(text)
        return {
            "integer": lambda: self.pick(INTEGERS),
            "real": lambda: self.pick(REALS),
            "text": lambda: self.pick(TEXTS),
            "flag": lambda: bool(self.draw(2)),
            "dtype": lambda: self.pick(DTYPES),
            "ints": lambda: list(self.pick(SHAPES)),
            "scalar_f32": lambda: self.scalar(T.ScalarKind.F32),
            "scalar_u32": lambda: self.scalar(T.ScalarKind.U32),
        }[spec["type"]]()

    # ------------------------------------------------------------ calls

    def operator(self, op: dict):
        arguments = [self.operand(o) for o in op["operands"]]
        arguments += [self.attribute(a) for a in op["attrs"]]
        return getattr(_core, op["name"])(*arguments)

    # A call of the test rows, which all are right, with at most one operand changed.

    def fitting(self, o: case.In):
        """A value that an earlier call made, where one of this type exists."""
        fit = [t for t in self.tensors if t is not None and t.valid]
        fit = [t for t in fit if str(t.dtype) == o.dtype and tuple(t.shape) == o.shape]
        return self.pick(fit) if fit and o.kind != "state" and self.draw(4) else None

    def declared(self, o):
        if isinstance(o, case.In):
            made = self.fitting(o)
            if made is None:
                made = getattr(self.builder, o.kind)(self.name(), dtype_of(o.dtype), o.shape)
            return o.view(made, T) if o.view else made
        if isinstance(o, case.Scalar):
            kind = T.ScalarKind.F32 if o.kind == "f32" else T.ScalarKind.U32
            return self.builder.scalar(self.name(), kind)
        if isinstance(o, case.Int4):
            return self.builder.int4(
                self.name(), [o.weights], group=o.group, affine=o.affine, dtype=dtype_of(o.dtype)
            )
        if isinstance(o, case.Quantized):
            return self.builder.quantized(self.name(), o.shape)
        return dtype_of(o) if isinstance(o, str) and o in DTYPE_NAMES else o

    def row(self):
        op, point = self.pick(ROWS)
        values = [self.declared(o) for o in point.operands]
        keywords = {k: self.declared(o) for k, o in point.keywords.items()}
        if values and self.draw(4) == 0:
            values[self.draw(len(values))] = self.tensor()
        return getattr(T, op)(*values, **keywords)

    def view(self):
        x, kind = self.tensor(), self.draw(6)
        if kind == 0:
            return T.reshape(x, self.pick(SHAPES))
        if kind == 1:
            order = self.pick(list(itertools.permutations(range(3))))
            return T.permute(x, order[: len(x.shape)] if x is not None and x.valid else order)
        if kind == 2:
            return T.transpose(x, self.pick(INTEGERS), self.pick(INTEGERS))
        if kind == 3:
            return T.slice(x, *(self.pick(INTEGERS) for _ in range(3)))
        if kind == 4:
            return T.broadcast(x, self.pick(SHAPES))
        return T.read_state(self.state())

    def sample(self):
        options = T.SamplingOptions(
            temperature=self.pick([0, 0.7, 1]),
            top_k=self.pick([0, 2, 8, 200]),
            top_p=self.pick([0, 0.5, 2]),
            repetition=self.pick([0, 1.5]),
            exact=bool(self.draw(2)),
        )
        prefix = self.name()
        if self.draw(4):
            T.declare_sampling_scalars(self.builder, options, prefix)
        penalised = options.penalised() if self.draw(4) else False
        return T.sample(
            self.tensor(),
            self.tensor() if self.draw(2) else None,
            self.state() if penalised else None,
            self.state() if penalised else None,
            options=options,
            prefix=prefix,
        )

    def call(self) -> None:
        kind = self.draw(22)
        try:
            if kind < 3:
                result = self.view()
            elif kind == 3:
                result = T.layer_state(self.state(), self.pick(INTEGERS))
            elif kind == 4:
                result = self.sample()
            elif kind < 16:
                result = self.row()
            else:
                result = self.operator(self.pick(OPERATORS))
        except ALLOWED as e:
            assert not isinstance(e, accel.InternalError), e
            return
        for value in result if isinstance(result, tuple) else (result,):
            if isinstance(value, T.State):
                self.states.append(value)
            else:
                self.tensors.append(value)
                if kind > 3:
                    self.computed.append(value)

    def finish(self):
        """The plan, or None where the program is refused, as it must be said."""
        for i, value in enumerate(self.computed[-3:]):
            self.builder.output(f"out{i}", value)
        error = self.builder.err()
        if error is not None:
            assert isinstance(error, accel.GraphError)
            for d in error.diagnostics:
                assert d.message and d.op and d.file == __file__ and d.line > 0, d.message
        try:
            plan = self.builder.compile()
        except (accel.GraphError, accel.UnsupportedError, accel.CapacityError):
            return None
        assert error is None, "a graph with diagnostics was compiled"
        return plan


DTYPE_NAMES = {"f32", "f16", "bf16", "i32", "u32", "i8", "u8"}


def _small(point: case.Point) -> bool:
    sizes = [np.prod(o.shape) for o in point.operands if hasattr(o, "shape")]
    return max(sizes, default=1) <= 4096


ROWS = [(c.op, p) for c in CASES for p in c.points if _small(p)]
OPERATORS = [op for op in _core._ops() if not op["internal"]]


def contents(plan, rng) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Bytes for every port and bits for every scalar: small numbers, or anything at all."""
    wild = bool(rng.integers(0, 2))
    arrays, scalars = {}, {}
    for port in plan.ports():
        n = int(np.prod(port.shape)) * port.dtype.size
        raw = rng.integers(0, 256, n, dtype=np.uint8)
        if not wild:
            if port.dtype == accel.F32:
                raw = rng.standard_normal(n // 4).astype(np.float32).view(np.uint8)
            elif port.dtype == accel.F16:
                raw = rng.standard_normal(n // 2).astype(np.float16).view(np.uint8)
            elif port.dtype == accel.U32:
                raw = rng.integers(0, 12, n // 4).astype(np.uint32).view(np.uint8)
        arrays[port.name] = raw.copy()
    for s in plan.scalars():
        if s.kind == T.ScalarKind.F32:
            scalars[s.name] = np.float32(rng.standard_normal())
        else:
            scalars[s.name] = int(rng.integers(0, 12))
    return arrays, scalars
