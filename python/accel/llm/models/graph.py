"""One recording of a model: its weights, inputs, scalars and states, each declared at first use."""

from __future__ import annotations

from dataclasses import dataclass

import accel
from accel import tensor
from accel.tensor import ScalarKind

from ..weights import Held

PADDING = 2**32 - 1  # a position that scatter_rows writes nowhere


@dataclass(frozen=True)
class Step:
    """What one plan does: `tokens` rows, and logits of the "last", of "all" or of "none"."""

    tokens: int
    head: str


@dataclass(frozen=True)
class StateSpec:
    """A state port. With `zero` it starts a sequence as zeros, else with whatever is in it."""

    dtype: object
    shape: tuple[int, ...]
    zero: bool = False


class Graph:
    """What a model's layers record into.

    Inputs: tokens and positions u32 [tokens] (a padding row has position PADDING); by use length
    u32 [1], the positions in use after this step, rows u32 [1], how many rows are no padding, and
    last and last_position u32 [1]. Scalar base is the first position.
    """

    def __init__(
        self,
        builder,
        held: dict[str, Held],
        states: dict[str, StateSpec],
        step: Step,
        activations: str | None = None,
    ):
        self.b, self.step, self._held, self._activations = builder, step, held, activations
        self.n = step.tokens
        self.tokens = builder.input("tokens", accel.U32, [self.n])
        self._specs = states
        self._declared: dict[str, object] = {}

    def _once(self, key: str, declare):
        if key not in self._declared:
            self._declared[key] = declare()
        return self._declared[key]

    # ------------------------------------------------------------------ inputs
    def input(self, name: str, count: int = 1):
        return self._once(name, lambda: self.b.input(name, accel.U32, [count]))

    @property
    def positions(self):
        return self.input("positions", self.n)

    def scalar(self, name: str) -> str:
        return self._once(name, lambda: self.b.scalar(name, ScalarKind.F32))

    def base(self) -> str:
        return self._once("base", lambda: self.b.scalar("base", ScalarKind.U32))

    def constant(self, name: str, count: int):
        return self._once(name, lambda: self.b.weight(name, accel.F32, [count]))

    def state(self, name: str):
        spec = self._specs[name]
        return self._once(name, lambda: self.b.state(name, spec.dtype, spec.shape))

    def last(self, x):
        """The row whose logits are wanted, as the only one."""
        return tensor.gather_rows(x, self.input("last"))

    # ------------------------------------------------------------------ weights
    def has(self, name: str) -> bool:
        return name in self._held

    def weight(self, name: str):
        return self._once("weight " + name, lambda: self._declare(self._held[name]))

    def _declare(self, h: Held):
        if h.form == "int4":
            return self.b.int4(h.port, h.shape, group=h.group, affine=h.affine, dtype=h.dtype)
        if h.form == "int8":
            return self.b.quantized(h.port, h.shape)
        return self.b.weight(h.port, h.dtype, h.shape)

    def rows(self, name: str, ids):
        """The rows of a table that the ids name, in f32."""
        gather = tensor.quant_gather_rows if self._held[name].form == "int8" else tensor.gather_rows
        return gather(self.weight(name), ids)

    def product(self, x, name: str):
        """x [M, K] times the tensor [N, K], in f32, plus the bias of that name if there is one."""
        form, w = self._held[name].form, self.weight(name)
        bias = self.weight(name + ".bias") if self.has(name + ".bias") else None
        if form == "array":
            if bias is None:
                return tensor.matmul(x, w, w_order="nk")
            return tensor.linear(x, w, bias, w_order="nk")
        multiply = tensor.int4_matmul if form == "int4" else tensor.quant_matmul
        y = multiply(x, w, w_order="nk", **self.narrow)
        return y if bias is None else tensor.add(y, bias)

    def grouped(self, x, name: str, counts, w_order: str = "nk"):
        """Rows of x ordered by expert, each times its expert's matrix of the stack, plus bias."""
        multiply = tensor.grouped_matvec if self.n == 1 else tensor.grouped_matmul
        options = {} if self._held[name].form == "array" else self.narrow
        if self.has(name + ".bias"):
            options = {**options, "bias": self.weight(name + ".bias")}
        return multiply(x, self.weight(name), counts, w_order=w_order, **options)

    @property
    def narrow(self) -> dict[str, str]:
        """The option of quantized products that the caller asked for."""
        return {} if self._activations is None else {"activations": self._activations}
