"""Prepared plans over one model's weights and caches: the steps that generation is made of.

Everything that a step needs is bound once; a step fills a few cells and submits. One step is in
flight at a time, and the caller waits for it before it fills cells again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import accel
from accel import tensor

from .llama import PADDING, Config, Recording, Step
from .weights import Weights

BUCKETS = (16, 32, 64, 128)


class Cell:
    """A small buffer that the host fills before a step and reads after one."""

    def __init__(self, device, name: str, dtype, count: int):
        self.buffer = device.new_buffer(dtype, count, name)
        self.view = self.buffer.numpy()

    def put(self, values: Sequence, at: int = 0) -> None:
        self.view[at : at + len(values)] = values

    def close(self) -> None:
        self.view = None
        self.buffer.close()


@dataclass
class Ready:
    """A plan, its prepared bindings and the cells that a submission fills."""

    plan: object
    ports: dict
    scalars: dict
    cells: dict[str, Cell]
    bound: object = None


class Engine:
    """Plans, caches and token buffers of one model. `plans` grows as steps are first used."""

    def __init__(self, device, config: Config, weights: Weights, kv, progress=None):
        self.device, self.config, self._weights, self._kv = device, config, weights, kv
        self._progress = progress
        self.runtime = tensor.Runtime(device)
        self.plans: dict[str, object] = {}
        self._ready: dict[Step, Ready] = {}
        self._every: Cell | None = None
        c = config
        count = c.layers * c.context * c.kv_heads * c.head_dim
        self.keys = device.new_buffer(kv, count, "keys")
        self.values = device.new_buffer(kv, count, "values")
        self.logits = Cell(device, "logits", accel.F32, c.vocab)
        # Two token buffers in turn: a step reads one and writes the other.
        self.token = [Cell(device, f"token_{i}", accel.U32, 1) for i in (0, 1)]
        self._decode = self._prepare_decode()
        self._positions = self._decode.cells["positions"].view
        self._length = self._decode.cells["length"].view

    @property
    def kv_bytes(self) -> int:
        return self.keys.bytes + self.values.bytes

    # ------------------------------------------------------------------ plans
    def ready(self, step: Step) -> Ready:
        """The prepared plan of a step, compiled at its first use."""
        if step not in self._ready:
            self._ready[step] = self._prepare(step)
        return self._ready[step]

    def _compile(self, step: Step):
        name = _plan_name(step)
        b = self.runtime.new_builder(name)
        Recording(b, self.config, self._weights.held, self._kv, step).record()
        plan = b.compile(progress=self._progress)
        self.plans[name] = plan
        return plan

    def _fill(self, plan, given: dict) -> Ready:
        """Buffers for every port: what is given, weights, caches, and a new cell for the rest."""
        known = {**self._weights.ports, "keys": self.keys, "values": self.values, **given}
        ports, cells = {}, {}
        for port in plan.ports():
            if port.name not in known:
                count = math.prod(port.shape)
                cells[port.name] = Cell(self.device, port.name, port.dtype, count)
                ports[port.name] = cells[port.name].buffer
            else:
                ports[port.name] = known[port.name]
        c = self.config
        values = {"rope_base": c.rope_base, "scale": 1 / math.sqrt(c.head_dim), "base": 0}
        return Ready(plan, ports, {s.name: values[s.name] for s in plan.scalars()}, cells)

    def _prepare(self, step: Step) -> Ready:
        logits = self._all_logits_cell() if step.head == "all" else self.logits
        given = {"next": self.token[0].buffer, "logits": logits.buffer}
        ready = self._fill(self._compile(step), given)
        ready.bound = ready.plan.bind(ready.ports, ready.scalars)
        return ready

    def _all_logits_cell(self) -> Cell:
        """One buffer for every bucket: a plan takes the part of it that it needs."""
        if self._every is None:
            count = BUCKETS[-1] * self.config.vocab
            self._every = Cell(self.device, "all_logits", accel.F32, count)
        return self._every

    def _prepare_decode(self) -> Ready:
        first, second = (t.buffer for t in self.token)
        given = {"tokens": first, "next": second, "logits": self.logits.buffer}
        ready = self._fill(self._compile(Step(1, "last")), given)
        swapped = {**ready.ports, "tokens": second, "next": first}
        ready.bound = [ready.plan.bind(ports, ready.scalars) for ports in (ready.ports, swapped)]
        return ready

    # ------------------------------------------------------------------ steps
    def decode(self, slot: int, position: int):
        """Submits one step over the token in token[slot]; the next one goes to the other buffer."""
        self._positions[0] = position
        self._length[0] = position + 1
        return self._decode.plan.submit(self._decode.bound[slot])

    def prefill(self, ids: Sequence[int], cuts: Sequence[int] | None = None) -> None:
        """Runs ids from position 0: then logits are the last row's and token[0] its argmax."""
        at = 0
        cuts = list(cuts or self._cuts(len(ids)))
        for i, n in enumerate(cuts):
            head = "last" if i + 1 == len(cuts) else "none"
            self._chunk(ids[at : at + n], at, head)
            at += n

    def all_logits(self, ids: Sequence[int]) -> Iterator:
        """The logits of every position by chunks: f32 [rows, vocab], valid until the next."""
        at = 0
        for n in self._cuts(len(ids)):
            self._chunk(ids[at : at + n], at, "all")
            yield self._every.view.reshape(-1, self.config.vocab)[:n]
            at += n

    def _cuts(self, count: int) -> Iterator[int]:
        while count > 0:
            yield min(count, BUCKETS[-1])
            count -= BUCKETS[-1]

    def _chunk(self, ids: Sequence[int], base: int, head: str) -> None:
        n = len(ids)
        tokens = next((b for b in BUCKETS if b >= n), n)
        ready = self.ready(Step(tokens, head))
        cells = ready.cells
        cells["tokens"].put(ids)
        positions = cells["positions"].view
        positions[:n] = range(base, base + n)
        positions[n:] = PADDING
        fill = {"length": base + n, "last": n - 1, "last_position": base + n - 1}
        for name, value in fill.items():
            if name in cells:
                cells[name].put([value])
        if "base" in ready.scalars:
            ready.bound.scalars["base"] = base
        ready.plan.submit(ready.bound).wait()

    def close(self) -> None:
        for plan in self.plans.values():
            plan.close()
        self.runtime.close()
        cells = [self.logits, *self.token, *self._decode.cells.values()]
        for ready in self._ready.values():
            cells += ready.cells.values()
        cells += [self._every] if self._every else []
        self._every = None
        self._ready, self._decode, self._positions, self._length = {}, None, None, None
        for cell in cells:
            cell.close()
        self.keys.close()
        self.values.close()


def _plan_name(step: Step) -> str:
    if step.tokens == 1:
        return "decode"
    return {"last": "prefill", "none": "extend", "all": "logits"}[step.head] + f"_{step.tokens}"
