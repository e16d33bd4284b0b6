"""The sampler as a plan of its own: logits in, one token out.

Structure is compiled, numbers are scalars.
"""

from __future__ import annotations

import accel
from accel import tensor

from .engine import Engine, Submitted
from .models.decoder import logprob

PREFIX = "sampling"


class Sampler:
    """Draws tokens on the device from the logits that a step has left there, into token[0], and
    their log-probabilities.

    Serves one sequence at a time. Penalties count the whole sequence, prompt included.
    """

    def __init__(self, engine: Engine, options):
        self._engine = engine
        self._capacity, vocab = engine.config.context, engine.config.vocab
        b = engine.runtime.new_builder("sample")
        logits = b.input("logits", accel.F32, [vocab])
        ports = {
            "logits": engine.logits.buffer,
            "next": engine.token[0].buffer,
            "logprob": engine.logprob.buffer,
        }
        self._draw = self._history = self._counts = None
        draws = history = counts = None
        if not options.greedy():
            self._draw = engine.cell("draws", accel.F32, 1)
            draws, ports["draws"] = b.input("draws", accel.F32, [1]), self._draw.buffer
        if options.penalised():
            self._history = engine.cell("history", accel.U32, self._capacity)
            self._counts = engine.cell("counts", accel.U32, vocab)
            history = b.state("history", accel.U32, [self._capacity])
            counts = b.state("counts", accel.U32, [vocab])
            ports |= {"history": self._history.buffer, "counts": self._counts.buffer}
        tensor.declare_sampling_scalars(b, options, PREFIX)
        token = tensor.sample(logits, draws, history, counts, options=options, prefix=PREFIX)
        b.output("next", token)
        b.output("logprob", logprob(tensor.reshape(logits, [1, vocab]), token))
        self.plan = b.compile()
        self._bound = self.plan.bind(ports, options.scalars(PREFIX, 0, self._capacity))
        self._stream, self._seen = None, 0

    def start(self, options, stream, ids) -> None:
        """Begins a sequence with the prompt's ids, under options of this sampler's structure."""
        self._stream, self._seen = stream, 0
        self._bound.update(scalars=options.scalars(PREFIX, 0, self._capacity))
        self.saw(ids)

    def saw(self, ids) -> None:
        """Adds tokens to the sequence."""
        if self._history is not None:
            self._history.put(ids, self._seen)
        self._seen += len(ids)
        if self._history is not None:
            self._bound.scalars[f"{PREFIX}.n"] = self._seen

    def submit(self, after=()) -> Submitted:
        """Draws token number `seen` of the sequence."""
        if self._draw is not None:
            self._draw.put((self._stream.draw(self._seen),))
        return self._engine.submit(self.plan, self._bound, after)

    def close(self) -> None:
        self.plan.close()
        self._bound = None
        for cell in (self._draw, self._history, self._counts):
            if cell is not None:
                cell.close()


def structure(options) -> tuple:
    """What of the options is compiled into the plan: equal tuples share a sampler."""
    return (
        options.greedy(), options.penalised(), options.top_k, options.top_p, options.exact
    )  # fmt: skip
