"""Prepared plans over one model's weights and caches: the steps that generation is made of.

Everything that a step needs is bound once; a step fills a few cells and submits. One step is in
flight at a time, and the caller waits for it before it fills cells again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

import accel
from accel import tensor

from .models.decoder import Decoder
from .models.graph import PADDING, Graph, Step
from .weights import Weights

_HOST = 1  # DLPack's number of the host's memory
BUCKETS = (16, 32, 64, 128)
# What load() compiles. The operators of every other step are among theirs: what a device or a
# kernel refuses of the model, it refuses here. What is left to later is memory, of which "all" asks
# for most: a row of logits for each token.
FIRST = (Step(1, "last"), Step(BUCKETS[-1], "last"))
LATER = (
    *(Step(n, "last") for n in BUCKETS[:-1]),
    Step(BUCKETS[-1], "none"),
    *(Step(n, "all") for n in BUCKETS),
)


class Cell:
    """A small buffer that the host fills before a step and reads after one: in place where the
    host sees the device's memory, else by a write on the queue and by a copy."""

    def __init__(self, device, writes: list, name: str, dtype, count: int):
        self.buffer = device.new_buffer(dtype, count, name)
        self._queue, self._writes = device.queue, writes
        self._view = self.buffer.numpy()
        self._type = self._view.dtype
        if self.buffer.__dlpack_device__()[0] != _HOST:
            self._view = None

    def put(self, values: Sequence, at: int = 0) -> None:
        if self._view is not None:
            self._view[at : at + len(values)] = values
        elif len(values):
            values = np.array(values, self._type)
            self._writes.append(self._queue.write_buffer(self.buffer, at, values))

    def get(self) -> np.ndarray:
        """The contents, once the steps that use them are over; valid until the next step."""
        return self.buffer.read() if self._view is None else self._view

    def close(self) -> None:
        self._view = self._queue = None
        self.buffer.close()


class Submitted:
    """A step, and the writes on the queue that it reads: it fails where one of them did."""

    def __init__(self, fence, writes: list):
        self.fence, self.writes = fence, writes

    def wait(self) -> None:
        try:
            self.fence.wait()
        finally:
            for write in self.writes:
                write.wait()


@dataclass
class Ready:
    """A plan, its prepared bindings and the cells that a submission fills."""

    plan: object
    ports: dict
    scalars: dict
    cells: dict[str, Cell]
    bound: object = None

    def close(self) -> None:
        """Lets go of what is bound, whoever else still holds this."""
        self.plan.close()
        self.bound = None
        self.ports.clear()
        for cell in self.cells.values():
            cell.close()


class Engine:
    """Plans, caches and token buffers of one model. `plans` grows as steps are first used."""

    def __init__(
        self,
        device,
        model: Decoder,
        weights: Weights,
        kv,
        activations: str | None = None,
        progress: Callable | None = None,
    ):
        self.device, self.model, self._weights = device, model, weights
        self.config, self.activations, self._progress = model.config, activations, progress
        self.runtime = tensor.Runtime(device)
        self.plans: dict[str, object] = {}
        self._ready: dict[Step, Ready] = {}
        self._every: Cell | None = None
        self._writes: list = []  # of the host, whose errors the next step has
        self._specs = model.states(kv)
        self.states = {
            name: device.new_buffer(spec.dtype, math.prod(spec.shape), name)
            for name, spec in self._specs.items()
        }
        self._scalars = {**model.scalars(), "base": 0}
        self.logits = self.cell("logits", accel.F32, self.config.vocab)
        self.logprob = self.cell("logprob", accel.F32, 1)
        # Two token buffers in turn: a step reads one and writes the other.
        self.token = [self.cell(f"token_{i}", accel.U32, 1) for i in (0, 1)]
        self._decode = self._prepare_decode()
        # A model without attention has no such ports.
        self._positions = self._decode.cells.get("positions")
        self._length = self._decode.cells.get("length")
        if "rows" in self._decode.cells:
            self._decode.cells["rows"].put([1])
        for step in FIRST[1:]:
            self.ready(step)

    @property
    def kv_bytes(self) -> int:
        return sum(buffer.bytes for buffer in self.states.values())

    def cell(self, name: str, dtype, count: int) -> Cell:
        return Cell(self.device, self._writes, name, dtype, count)

    def submit(self, plan, bound, after: Sequence[Submitted] = ()) -> Submitted:
        """The end of what is returned is that of every write since the last one, too."""
        writes = [*self._writes, *(write for step in after for write in step.writes)]
        self._writes.clear()
        return Submitted(plan.submit(bound, after=[step.fence for step in after]), writes)

    def start(self) -> None:
        """Begins a sequence: states that are read before they are written become zero."""
        for name, spec in self._specs.items():
            if spec.zero:
                buffer = self.states[name]
                zeros = np.zeros(buffer.count, np.float32)
                self._writes.append(self.device.queue.write_buffer(buffer, 0, zeros))

    # ------------------------------------------------------------------ plans
    def ready(self, step: Step) -> Ready:
        """The prepared plan of a step, compiled at its first use."""
        if step not in self._ready:
            self._ready[step] = self._prepare_rows(step)
        return self._ready[step]

    @property
    def uncompiled(self) -> dict[str, Step]:
        """The steps whose plans have not been needed yet, by the plan's name."""
        names = {_plan_name(step): step for step in LATER}
        return {name: step for name, step in names.items() if name not in self.plans}

    def _compile(self, step: Step):
        b = self.runtime.new_builder(_plan_name(step))
        self.model.record(Graph(b, self._weights.held, self._specs, step, self.activations))
        return b.compile(progress=self._progress)

    def _fill(self, ready: Ready, given: dict) -> None:
        """Buffers for every port: what is given, weights, caches, and a new cell for the rest."""
        made = {"logprob": self.logprob.buffer, **self.states}
        known = {**self._weights.ports, **made, **given}
        for port in ready.plan.ports():
            if port.name not in known:
                count = math.prod(port.shape)
                cell = self.cell(port.name, port.dtype, count)
                ready.cells[port.name], ready.ports[port.name] = cell, cell.buffer
            else:
                ready.ports[port.name] = known[port.name]
        ready.scalars |= {s.name: self._scalars[s.name] for s in ready.plan.scalars()}

    def _prepare(self, step: Step, given: dict, bind: Callable) -> Ready:
        """A plan with its cells, bound; nothing of it is left when any part cannot be had."""
        ready = Ready(self._compile(step), {}, {}, {})
        try:
            self._fill(ready, given)
            ready.bound = bind(ready)
        except BaseException:
            ready.close()
            raise
        self.plans[_plan_name(step)] = ready.plan
        return ready

    def _prepare_rows(self, step: Step) -> Ready:
        logits = self._all_logits_cell() if step.head == "all" else self.logits
        given = {"next": self.token[0].buffer, "logits": logits.buffer}
        return self._prepare(step, given, lambda r: r.plan.bind(r.ports, r.scalars))

    def _all_logits_cell(self) -> Cell:
        """One buffer for every bucket: a plan takes the part of it that it needs."""
        if self._every is None:
            count = BUCKETS[-1] * self.config.vocab
            self._every = self.cell("all_logits", accel.F32, count)
        return self._every

    def _prepare_decode(self) -> Ready:
        first, second = (t.buffer for t in self.token)
        given = {"tokens": first, "next": second, "logits": self.logits.buffer}
        swapped = {"tokens": second, "next": first}

        def bind(r: Ready) -> list:
            return [r.plan.bind(ports, r.scalars) for ports in (r.ports, {**r.ports, **swapped})]

        return self._prepare(FIRST[0], given, bind)

    # ------------------------------------------------------------------ steps
    def decode(self, slot: int, position: int) -> Submitted:
        """Submits one step over the token in token[slot]; the next one goes to the other buffer."""
        if self._positions is not None:
            self._positions.put((position,))
        if self._length is not None:
            self._length.put((position + 1,))
        return self.submit(self._decode.plan, self._decode.bound[slot])

    def prefill(self, ids: Sequence[int], cuts: Sequence[int] | None = None) -> None:
        """Runs ids from position 0: then logits are the last row's and token[0] its argmax."""
        self.start()
        at = 0
        cuts = list(cuts or self._cuts(len(ids)))
        for i, n in enumerate(cuts):
            head = "last" if i + 1 == len(cuts) else "none"
            self._chunk(ids[at : at + n], at, head)
            at += n

    def all_logits(self, ids: Sequence[int]) -> Iterator:
        """The logits of every position by chunks: f32 [rows, vocab], valid until the next."""
        self.start()
        at = 0
        for n in self._cuts(len(ids)):
            self._chunk(ids[at : at + n], at, "all")
            yield self._every.get().reshape(-1, self.config.vocab)[:n]
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
        if "positions" in cells:
            cells["positions"].put([*range(base, base + n), *[PADDING] * (tokens - n)])
        fill = {"length": base + n, "rows": n, "last": n - 1, "last_position": base + n - 1}
        for name, value in fill.items():
            if name in cells:
                cells[name].put([value])
        if "base" in ready.scalars:
            ready.bound.scalars["base"] = base
        self.submit(ready.plan, ready.bound).wait()

    def close(self) -> None:
        self._positions, self._length = None, None
        for ready in (self._decode, *self._ready.values()):
            ready.close()
        self._ready, self._decode = {}, None
        self.runtime.close()
        for cell in (self.logits, self.logprob, *self.token, self._every):
            if cell is not None:
                cell.close()
        self._every = None
        for buffer in self.states.values():
            buffer.close()


def _plan_name(step: Step) -> str:
    if step.tokens == 1:
        return "decode"
    return {"last": "prefill", "none": "extend", "all": "logits"}[step.head] + f"_{step.tokens}"
