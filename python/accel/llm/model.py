"""A loaded checkpoint: text in, tokens out.

Reads, holds and compiles once; then runs one sequence at a time.
"""

from __future__ import annotations

import dataclasses
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

import accel
from accel.tensor import SamplingOptions, Stream

from .engine import Engine
from .errors import attr_error, bind_error, format_error
from .ids import ids_of
from .load import Opened, open_checkpoint
from .locate import locate
from .sampler import Sampler, structure
from .text import TextStream
from .weights import Weights

DEFAULT_CONTEXT = 8192
_ACTIVATIONS = ("int8", "f16", "bf16")
_KV = {"f16": accel.F16, "f32": accel.F32}
_ROWS_AT_ONCE = 16  # of logits widened to f64 together


@dataclass(frozen=True)
class Token:
    """A generated token; text holds whole characters, logprob is of the unmodified logits.

    stop is None but on the last one, where it is "eos", "stop", "length" or "context". The token
    that ends a text as "eos" adds no text of its own.
    """

    id: int
    text: str
    logprob: float
    stop: str | None


@dataclass(frozen=True)
class Perplexity:
    """Negative log-likelihoods in nats over `tokens` scored positions, and a sum a window."""

    nll_sum: float
    tokens: int
    perplexity: float
    per_window: tuple[float, ...]


@dataclass(frozen=True)
class Report:
    """What is held and where. tensors: (name, stored type, held as, max_error) each.

    activations is what load() was asked to round the rows of the quantized products to. plan_bytes
    are the transients of the plans compiled so far, which plans names with theirs; uncompiled names
    those that a step compiles when it first needs them.
    """

    tensors: tuple[tuple[str, str, str, float], ...]
    file_bytes: int
    weight_bytes: int
    kv_bytes: int
    plan_bytes: int
    load_seconds: float
    device: str
    activations: str | None = None
    plans: tuple[tuple[str, int], ...] = ()
    uncompiled: tuple[str, ...] = ()


def load(
    path_or_name,
    *,
    device=None,
    kv: str = "f16",
    context: int | None = None,
    activations: str | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Model:
    """Reads a checkpoint and compiles its plans for one row and for the most rows at once.

    A checkpoint is a GGUF file, a folder with config.json and safetensors, or the name of an
    installed package that holds one. device None opens the CPU with all cores. kv is the type of
    the cache, context its positions: None is the checkpoint's own, at most 8192. activations is
    what the quantized products round their rows to: None, "int8", "f16" or "bf16".
    progress(stage, done, total) hears of read, convert and compile's stages, those of the other
    plans too, which are compiled when a step first needs them. Plain matrices stay in the mapped
    file: while the model is open, nobody may shorten or overwrite it (replace it by
    renaming a new file into its place).
    """
    if not isinstance(kv, str):
        raise TypeError(f"load: kv is {kv!r:.60} and must be a str, 'f16' or 'f32'")
    if kv not in _KV:
        raise attr_error("load", "kv", repr(kv), "'f16' or 'f32'")
    if context is not None and type(context) is not int:
        raise TypeError(f"load: context is {context!r:.60} and must be an int or None")
    if context is not None and context < 1:
        raise attr_error("load", "context", repr(context), "None or a positive int")
    if progress is not None and not callable(progress):
        raise TypeError(f"load: progress is {progress!r:.60} and must be callable or None")
    if activations is not None and activations not in _ACTIVATIONS:
        names = ", ".join(repr(a) for a in _ACTIVATIONS)
        raise attr_error("load", "activations", repr(activations), f"None or one of {names}")
    if device is not None and not isinstance(device, accel.Device):
        raise TypeError(f"load: device is {device!r:.60} and must be a Device or None")
    started = time.perf_counter()
    found, owned = open_checkpoint(locate(path_or_name)), None
    weights = None
    try:
        if progress:
            progress("read", 1, 1)
        model = found.model
        model.config = _with_context(model.config, context)
        if device is None:
            device = owned = accel.open_cpu()
        weights = Weights(found.file, list(model.parts()), device, progress)
        if activations is not None and all(h.form == "array" for h in weights.held.values()):
            must = "None: the checkpoint holds no quantized weight whose activations it would round"
            raise attr_error("load", "activations", repr(activations), must)
        for name, array in model.constants().items():
            weights.constant(name, array)
        engine = Engine(device, model, weights, _KV[kv], activations, progress)
    except BaseException:
        if weights is not None:
            weights.close()
        found.file.close()
        raise
    return Model(found, weights, engine, owned, time.perf_counter() - started)


def _with_context(config, context: int | None):
    if context is None:
        return dataclasses.replace(config, context=min(config.context, DEFAULT_CONTEXT))
    if context > config.context:
        raise attr_error("load", "context", context, f"at most the checkpoint's {config.context}")
    return dataclasses.replace(config, context=context)


class Model:
    """A checkpoint ready to run. Made by load(); one sequence at a time, from any thread."""

    def __init__(self, found: Opened, weights, engine, owned_device, load_seconds: float):
        self.tokenizer = found.tokenizer
        self.config = engine.config
        self._file, self._weights, self._engine = found.file, weights, engine
        self._owned_device, self._load_seconds = owned_device, load_seconds
        self._samplers: dict[tuple, Sampler] = {}
        self._busy, self._closed = threading.Lock(), False

    @property
    def plans(self) -> dict[str, object]:
        """The plans compiled so far, by name; others follow at their first use."""
        samplers = {f"sample_{i}": s.plan for i, s in enumerate(self._samplers.values())}
        return self._engine.plans | samplers

    def plan(self, name: str):
        """The plan of that name, compiled if no step has needed it yet."""
        self._require_open("plan")
        with self._claim("plan"):
            if name in self._engine.uncompiled:
                self._engine.ready(self._engine.uncompiled[name])
            found = self.plans
            if name not in found:
                names = ", ".join([*found, *self._engine.uncompiled])
                raise attr_error("plan", "name", repr(name), f"one of: {names}")
            return found[name]

    def report(self) -> Report:
        tensors = tuple(
            (name, h.stored, h.text, h.max_error)
            for h in self._weights.held.values()
            for name in h.names
        )
        info = self._engine.device.info
        plans = {name: plan.memory().transient_bytes for name, plan in self.plans.items()}
        return Report(
            tensors=tensors,
            file_bytes=self._file.file_bytes,
            weight_bytes=self._weights.bytes,
            kv_bytes=self._engine.kv_bytes,
            plan_bytes=sum(plans.values()),
            load_seconds=self._load_seconds,
            device=f"{info.backend} {info.name} ({info.isa}"
            + (f", {info.threads} threads)" if info.threads else ")"),
            activations=self._engine.activations,
            plans=tuple(plans.items()),
            uncompiled=tuple(self._engine.uncompiled),
        )

    # ------------------------------------------------------------------ generate
    def generate(
        self,
        prompt,
        max_tokens: int,
        *,
        sampling: SamplingOptions | None = None,
        seed: int = 0,
        stop: Sequence[str] | str = (),
        ignore_eos: bool = False,
    ) -> Iterator[Token]:
        """Tokens that follow the prompt: text, ids, or a list of messages with role and content.

        sampling None is greedy. Token n of the sequence, prompt included, draws
        Stream(seed).draw(n). Ends after max_tokens, at the checkpoint's end of text, at a stop
        string or at the context's end.
        """
        self._require_open("generate")
        ids = self._prompt_ids(prompt)
        self._check_count("generate", "max_tokens", max_tokens, 1)
        options = SamplingOptions(exact=True) if sampling is None else sampling
        if not isinstance(options, SamplingOptions):
            raise TypeError(f"generate: sampling is {sampling!r:.60} and must be SamplingOptions")
        options.validate()
        if type(ignore_eos) is not bool:
            raise TypeError(f"generate: ignore_eos is {ignore_eos!r:.60} and must be a bool")
        if not isinstance(stop, (str, list, tuple)):
            raise TypeError(f"generate: stop is {stop!r:.60} and must be a str or a list of str")
        stop = (stop,) if isinstance(stop, str) else tuple(stop)
        if not all(isinstance(s, str) and s for s in stop):
            raise attr_error("generate", "stop", repr(stop), "strings that are not empty")
        if stop:
            self.tokenizer.decode([])  # which a checkpoint without text refuses
        if options.top_k > self.config.vocab:
            raise attr_error("generate", "top_k", options.top_k, f"at most {self.config.vocab}")
        ends = frozenset() if ignore_eos else self.tokenizer.stops
        run = _Run(ids, max_tokens, options, Stream(seed), stop, ends)
        return self._generate(run)

    def _generate(self, run: _Run) -> Iterator[Token]:
        with self._claim("generate"):
            engine, fence = self._engine, None
            sampler = self._sampler(run.options)
            text, slot, position = TextStream(run.stop), 0, len(run.ids)
            engine.prefill(run.ids)
            self._require_numbers(np.isfinite(engine.logits.get()).any())
            if sampler:
                sampler.start(run.options, run.stream, run.ids)
                sampler.submit().wait()
            try:
                for n in range(1, run.max_tokens + 1):
                    token = int(engine.token[slot].get()[0])
                    logprob = float(engine.logprob.get()[0])
                    end = run.end(token, n, position == self.config.context)
                    if end is None:
                        # The next step runs while this token's text is made and used.
                        fence = self._next(sampler, token, slot, position)
                    data = b"" if end == "eos" else self.tokenizer.token_bytes(token)
                    piece = text.feed(data, end is not None)
                    end = "stop" if text.stopped else end
                    yield Token(token, piece, logprob, end)
                    if end:
                        return
                    fence.wait()
                    slot = slot if sampler else 1 - slot
                    position += 1
            finally:
                if fence is not None:
                    fence.wait()

    def _next(self, sampler: Sampler | None, token: int, slot: int, position: int):
        fence = self._engine.decode(slot, position)
        if sampler is None:
            return fence
        try:
            sampler.saw((token,))
            return sampler.submit(after=(fence,))
        except BaseException:
            fence.wait()  # nobody else would, and the next call writes where it reads
            raise

    def _sampler(self, options: SamplingOptions) -> Sampler | None:
        """None for the plain greedy choice, which every step makes anyway."""
        if options.greedy() and not options.penalised():
            return None
        key = structure(options)
        if key not in self._samplers:
            self._samplers[key] = Sampler(self._engine, options)
        return self._samplers[key]

    # ------------------------------------------------------------------ score
    def logits(self, ids: Sequence[int], all: bool = False) -> np.ndarray:
        """f32 [vocab] after the last id, or [len(ids), vocab] after each."""
        self._require_open("logits")
        if type(all) is not bool:
            raise TypeError(f"logits: all is {all!r:.60} and must be a bool")
        ids = self._check_ids("logits", ids)
        with self._claim("logits"):
            if not all:
                self._engine.prefill(ids)
                return self._engine.logits.get().copy()
            return np.concatenate([rows.copy() for rows in self._engine.all_logits(ids)])

    def perplexity(self, ids: Sequence[int], window: int) -> Perplexity:
        """Windows that do not overlap, each from an empty sequence; the last may be shorter.

        The first id of a window is not scored.
        """
        self._require_open("perplexity")
        self._check_count("perplexity", "window", window, 2)
        if window > self.config.context:
            raise attr_error("perplexity", "window", window, f"at most {self.config.context}")
        ids = self._check_ids("perplexity", ids, window=window)
        if len(ids) < 2:
            raise attr_error("perplexity", "ids", f"{len(ids)} id", "two or more")
        with self._claim("perplexity"):
            windows = [ids[i : i + window] for i in range(0, len(ids), window)]
            sums = [self._window_nll(w) for w in windows if len(w) > 1]
        tokens = sum(len(w) - 1 for w in windows)
        total = math.fsum(sums)
        self._require_numbers(math.isfinite(total))
        return Perplexity(total, tokens, math.exp(total / tokens), tuple(sums))

    def _window_nll(self, ids: list[int]) -> float:
        sums, at = [], 1  # ids[at] is what the first row of a chunk predicts
        for rows in self._engine.all_logits(ids):
            for i in range(0, len(rows), _ROWS_AT_ONCE):
                part = rows[i : i + _ROWS_AT_ONCE].astype(np.float64)
                targets = ids[at : at + len(part)]
                part = part[: len(targets)]  # the window's last row predicts nothing in it
                top = part.max(axis=1)
                logsum = top + np.log(np.exp(part - top[:, None]).sum(axis=1))
                sums += (logsum - part[np.arange(len(targets)), targets]).tolist()
                at += len(targets)
        return math.fsum(sums)

    # ------------------------------------------------------------------ checks
    def _prompt_ids(self, prompt) -> list[int]:
        if isinstance(prompt, str):
            prompt = self.tokenizer.encode(prompt)
        elif isinstance(prompt, (list, tuple)) and prompt and isinstance(prompt[0], dict):
            prompt = self.tokenizer.chat(prompt)
        return self._check_ids("generate", prompt, "prompt")

    def _check_ids(self, op: str, ids, operand="ids", window=None) -> list[int]:
        out = ids_of(op, operand, ids)
        vocab, context = self.config.vocab, self.config.context
        if not out:
            raise attr_error(op, operand, "empty", "at least one token")
        if window is None and len(out) > context:
            raise attr_error(op, operand, f"{len(out)} tokens", f"at most {context}, the context")
        for i, token in enumerate(out):
            if not 0 <= token < vocab:
                raise attr_error(op, f"{operand}[{i}]", token, f"an id below {vocab}")
        return out

    def _check_count(self, op: str, operand: str, value, least: int) -> None:
        if type(value) is not int:
            raise TypeError(f"{op}: {operand} is {value!r} and must be an int")
        if value < least:
            raise attr_error(op, operand, value, f"at least {least}")

    def _require_numbers(self, fine) -> None:
        if not fine:
            raise format_error(self._file.path, "its logits are not numbers; a tensor holds NaN")

    def _require_open(self, op: str) -> None:
        if self._closed:
            raise bind_error("lifetime", "model", f"{op}: the model is closed and must be open")

    @contextmanager
    def _claim(self, op: str):
        if not self._busy.acquire(blocking=False):
            raise bind_error(
                "in_flight", "model", f"{op}: a sequence is running and must end or be closed first"
            )
        try:
            self._require_open(op)
            yield
        finally:
            self._busy.release()

    def close(self) -> None:
        """Frees plans, caches and the mapping. Closing again does nothing."""
        if self._closed:
            return
        with self._claim("close"):
            self._closed = True
            for sampler in self._samplers.values():
                sampler.close()
            self._engine.close()
            self._weights.close()
            self._file.close()
        if self._owned_device is not None:
            self._owned_device.close()

    def __reduce__(self):
        raise TypeError("a Model holds memory of its device and cannot be copied; load it again")

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_) -> None:
        self.close()


@dataclass(frozen=True)
class _Run:
    """One call of generate, checked."""

    ids: list[int]
    max_tokens: int
    options: SamplingOptions
    stream: Stream
    stop: tuple[str, ...]
    ends: frozenset | set

    def end(self, token: int, n: int, full: bool) -> str | None:
        """Why the n-th generated token is the last one, or None."""
        if token in self.ends:
            return "eos"
        if n == self.max_tokens:
            return "length"
        return "context" if full else None
