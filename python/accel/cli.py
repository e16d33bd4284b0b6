"""The accel command: it prints what the library returns.

Text goes to stdout; progress, the closing line and errors go to stderr. A failure is one line and
a status other than 0: 1 for what was refused, 2 for a wrong command line, 130 after Ctrl-C, 141
after a broken pipe.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from contextlib import closing, contextmanager
from pathlib import Path

DEFAULT_MODEL = "smollm2"
DEFAULT_PROMPT = "The capital of France is"
REFUSED, USAGE, INTERRUPTED, BROKEN_PIPE = 1, 2, 130, 141


class _Parser(argparse.ArgumentParser):
    def error(self, message: str):
        self.exit(USAGE, f"{self.prog}: error: {message}\n")


class _Version(argparse.Action):
    """Imports the package only where it is asked for."""

    def __init__(self, option_strings, dest, **options):
        super().__init__(option_strings, dest=argparse.SUPPRESS, nargs=0, **options)

    def __call__(self, parser, *_):
        import accel

        print(f"accel {accel.__version__}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="accel", description="Run language models from checkpoints.")
    parser.add_argument("--version", action=_Version, help="print the version")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    generate = commands.add_parser("generate", help="write text that follows a prompt")
    _model_flags(generate)
    _generate_flags(generate)
    score = commands.add_parser("perplexity", help="score a list of token ids")
    _model_flags(score)
    score.add_argument("--ids", required=True, metavar="FILE", help="JSON list of token ids")
    score.add_argument("--window", type=int, default=512, metavar="N", help="ids a window (512)")
    bench = commands.add_parser("bench", help="time decode and prefill beside the machine's limits")
    _model_flags(bench, many_threads=True)
    _bench_flags(bench)
    devices = commands.add_parser("devices", help="list devices and what was probed")
    devices.add_argument("--json", action="store_true", help="print one JSON object")
    explain = commands.add_parser("explain", help="print a compiled plan in full")
    _model_flags(explain, as_json=False)
    explain.add_argument("--plan", default="decode", help="which plan (decode)")
    return parser


def _model_flags(
    parser: argparse.ArgumentParser, as_json: bool = True, many_threads: bool = False
) -> None:
    add = parser.add_argument
    add("--model", default=DEFAULT_MODEL, help=f"a GGUF file, a folder or a name ({DEFAULT_MODEL})")
    add("--device", default="cpu", help="the backend to run on: cpu, metal or cuda (cpu)")
    some = {"nargs": "+", "default": [0]} if many_threads else {"default": 0}
    add("--threads", type=int, metavar="N", help="CPU threads (0: all cores)", **some)
    add("--kv", choices=("f16", "f32"), default="f16", help="type of the cache (f16)")
    add("--context", type=int, metavar="N", help="positions of the cache (the model's, to 8192)")
    narrow = ("int8", "f16", "bf16")
    add("--activations", choices=narrow, help="round the rows of quantized products to this")
    if as_json:
        add("--json", action="store_true", help="print one JSON object and nothing else")


def _generate_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--prompt", default=DEFAULT_PROMPT, help=f"the text to go on from ({DEFAULT_PROMPT!r})")
    add("--chat", action="store_true", help="put the prompt into the model's chat template")
    add("--max-tokens", type=int, default=128, metavar="N", help="the most tokens to make (128)")
    add("--temperature", type=float, default=0.0, metavar="T", help="0 takes the likeliest (0)")
    add("--top-k", type=int, metavar="K", help="draw from the K likeliest (0: off)")
    add("--top-p", type=float, metavar="P", help="draw from the nucleus P (0: off)")
    add("--seed", type=int, metavar="S", help="of the random draws (0)")
    add("--stop", action="append", default=[], metavar="TEXT", help="end before this text")
    add("--ignore-eos", action="store_true", help="go on after the end of the text")


def _bench_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--prompt-tokens", type=int, default=512, metavar="N", help="tokens of the prompt (512)")
    add("--decode-tokens", type=int, default=64, metavar="N", help="tokens made after it (64)")
    add("--rounds", type=int, default=3, metavar="N", help="runs whose median is printed (3)")


# ---------------------------------------------------------------------- progress


@contextmanager
def _progress(stages: str):
    """A callback f(stage, done, total) that draws a bar on stderr; None away from a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:
        yield None
        return
    columns = (TextColumn("{task.description:12}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(stages, total=None)

        def tell(stage: str, done: int, total: int) -> None:
            bars.update(task, description=stage, completed=done, total=total)

        yield tell


# ---------------------------------------------------------------------- commands


def _open_device(args: argparse.Namespace):
    import accel

    found = accel.enumerate_devices()
    backends = sorted({d.backend for d in found.devices})
    if args.device not in backends:
        for n in found.notes:
            if n.backend == args.device:
                why = f"{n.stage}: {n.error}"
                raise accel.UnsupportedError(f"the {n.backend} device is not available ({why})")
        known = ", ".join(sorted({*backends, *(n.backend for n in found.notes)}))
        raise accel.UnsupportedError(f"device is {args.device!r} and must be one of: {known}")
    if args.device == "cpu":
        return accel.open_cpu(threads=args.threads)
    if args.threads:
        raise accel.UnsupportedError(f"--threads is for the cpu device, not {args.device}")
    # Asked for by name, so a software adapter is meant where it is all there is.
    return accel.open_best(prefer=(args.device,), allow_cpu=False, allow_software=True)


@contextmanager
def _model(args: argparse.Namespace):
    from accel import llm

    device = _open_device(args)
    with _progress("read") as progress:
        model = llm.load(
            args.model,
            device=device,
            kv=args.kv,
            context=args.context,
            activations=args.activations,
            progress=progress,
        )
    with model:
        yield model
    device.close()


class _Speed:
    """Times a stream of tokens: the first one ends the prompt, the others are decoding."""

    def __init__(self, prompt_tokens: int):
        self._prompt, self._tokens = prompt_tokens, 0
        self._start = self._first = self._last = time.perf_counter()

    def tick(self) -> None:
        self._last = time.perf_counter()
        if self._tokens == 0:
            self._first = self._last
        self._tokens += 1

    def prefill(self) -> float:
        return self._prompt / max(self._first - self._start, 1e-9)

    def decode(self) -> float:
        """0 for a text of one token."""
        seconds = self._last - self._first
        return (self._tokens - 1) / seconds if seconds > 0 else 0.0


def _generate(args: argparse.Namespace) -> None:
    import accel
    from accel.tensor import SamplingOptions

    drawn = {"--top-k": args.top_k, "--top-p": args.top_p, "--seed": args.seed}
    options = SamplingOptions(
        temperature=args.temperature, top_k=args.top_k or 0, top_p=args.top_p or 0.0, exact=True
    )
    options.validate()
    idle = ", ".join(flag for flag, value in drawn.items() if value is not None)
    if idle and args.temperature == 0:
        raise accel.AttrError(f"generate: {idle} given, --temperature is 0: nothing is drawn")
    if not args.prompt:
        raise accel.AttrError("generate: prompt is empty and must hold text")
    with _model(args) as model:
        prompt = [{"role": "user", "content": args.prompt}] if args.chat else args.prompt
        ids = model.tokenizer.chat(prompt) if args.chat else model.tokenizer.encode(prompt)
        tokens = model.generate(
            ids,
            args.max_tokens,
            sampling=options,
            seed=args.seed or 0,
            stop=args.stop,
            ignore_eos=args.ignore_eos,
        )
        _write_tokens(args, model, ids, tokens)


def _write_tokens(args: argparse.Namespace, model, ids: list[int], tokens) -> None:
    out, made, text, logprobs = sys.stdout, [], [], []
    speed = _Speed(len(ids))
    with closing(tokens):  # also when writing fails: the model cannot be closed while it runs
        for token in tokens:
            speed.tick()
            made.append(token.id)
            text.append(token.text)
            logprobs.append(token.logprob)
            if not args.json and token.text:
                out.write(token.text)
                out.flush()
    report = model.report()
    if args.json:
        kernels = Counter(s.kernel for s in model.plans["decode"].selections())
        result = {
            "prompt_ids": ids,
            "ids": made,
            "text": "".join(text),
            "logprobs": logprobs,
            "stop": token.stop,
            "prefill_tok_s": speed.prefill(),
            "decode_tok_s": speed.decode(),
            "load_s": report.load_seconds,
            "plan_memory": report.plan_bytes,
            "device": report.device,
            "kernels": dict(sorted(kernels.items())),
        }
        out.write(json.dumps(result) + "\n")
    else:
        out.write("\n")
        out.flush()
        print(
            f"prompt {speed.prefill():.1f} tok/s, decode {speed.decode():.1f} tok/s, "
            f"plan memory {report.plan_bytes / 2**20:.2f} MiB, {report.device}",
            file=sys.stderr,
        )
    out.flush()


def _read_ids(path: str) -> list[int]:
    """A JSON list of ids, or an object that holds one as ids or token_ids."""
    import accel

    def bad(what: str):
        return accel.FormatError(f"{path}: {what} and must be a JSON list of token ids")

    try:
        value = json.loads(Path(path).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as e:
        raise bad(f"the file is no JSON ({e})") from None
    if isinstance(value, dict):
        value = value.get("ids", value.get("token_ids"))
    if not isinstance(value, list) or any(type(i) is not int for i in value):
        raise bad("the file holds something else")
    return value


def _perplexity(args: argparse.Namespace) -> None:
    ids = _read_ids(args.ids)
    with _model(args) as model, _progress("score"):
        result = model.perplexity(ids, args.window)
    if args.json:
        fields = {
            "nll_sum": result.nll_sum,
            "tokens": result.tokens,
            "perplexity": result.perplexity,
            "per_window": list(result.per_window),
        }
        print(json.dumps(fields))
        return
    windows = len(result.per_window)
    print(f"perplexity {result.perplexity:.4f} over {result.tokens} tokens in {windows} windows")


def _gpu_text(info) -> str:
    """Memory and driver of a GPU of NVIDIA's."""
    if info.backend != "cuda":
        return ""
    major, minor = divmod(info.limits["driver"], 1000)
    mib = info.limits["max_bytes"] >> 20
    return f" {mib} MiB, driver for CUDA {major}.{minor // 10},"


def _devices(args: argparse.Namespace) -> None:
    import accel

    found = accel.enumerate_devices()
    if args.json:
        devices = [
            {
                "id": d.id.hex(),
                "backend": d.backend,
                "name": d.name,
                "vendor": d.vendor,
                "software": d.software,
                "level": d.level,
                "isa": d.isa,
                "threads": d.threads,
                "capabilities": list(d.capabilities),
                "limits": dict(d.limits),
            }
            for d in found.devices
        ]
        notes = [{"backend": n.backend, "stage": n.stage, "error": n.error} for n in found.notes]
        print(json.dumps({"devices": devices, "notes": notes}))
        return
    for d in found.devices:
        threads = f" {d.threads} threads," if d.threads else ""
        print(f"{d.backend}: {d.name}, {d.isa},{threads}{_gpu_text(d)} level {d.level}")
    for n in found.notes:
        print(f"{n.backend}: not available ({n.stage}: {n.error})")


def _explain(args: argparse.Namespace) -> None:
    import accel

    with _model(args) as model:
        report = model.report()
        names = [name for name, _ in report.plans] + list(report.uncompiled)
        if args.plan not in names:
            must = f"must be one of: {', '.join(names)}"
            raise accel.AttrError(f"explain: plan is {args.plan!r} and {must}")
        print(model.plan(args.plan).explain())


def _bench(args: argparse.Namespace) -> None:
    import accel

    from . import bench

    for name, least in (("prompt_tokens", 1), ("decode_tokens", 2), ("rounds", 1)):
        if (value := getattr(args, name)) < least:
            raise accel.AttrError(f"bench: {name} is {value} and must be at least {least}")
    # Every count of threads is one that a device opens, before anything is timed.
    counts, runs = [], []
    for threads in args.threads:
        device = _open_device(argparse.Namespace(**{**vars(args), "threads": threads}))
        counts.append(device.info.threads)
        device.close()
    context = args.context or args.prompt_tokens + args.decode_tokens
    for threads in counts:
        machine = bench.ceilings(threads)
        once = argparse.Namespace(**{**vars(args), "threads": threads, "context": context})
        with _model(once) as model:
            rows = bench.rows(model, machine, args.prompt_tokens, args.decode_tokens, args.rounds)
            report = model.report()
        runs.append((machine, rows, report))
        if not args.json:
            print(bench.machine_line(machine), *map(bench.row_line, rows), sep="\n", flush=True)
    if args.json:
        result = {
            "device": runs[0][2].device,
            "activations": args.activations,
            "ceilings": [machine for machine, _, _ in runs],
            "rows": [row for _, rows, _ in runs for row in rows],
            "load_s": [report.load_seconds for _, _, report in runs],
            "plan_memory": runs[0][2].plan_bytes,
            "kv_bytes": runs[0][2].kv_bytes,
        }
        print(json.dumps(result))


_COMMANDS = {
    "bench": _bench,
    "generate": _generate,
    "perplexity": _perplexity,
    "devices": _devices,
    "explain": _explain,
}


def main(argv: list[str] | None = None) -> int:
    """Runs one command; gives the exit status."""
    if sys.stderr is None:  # closed by the caller: what would go there is dropped
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    args = _parser().parse_args(argv)
    if sys.stdout is None:
        print(f"accel {args.command}: error: stdout is closed and must be open", file=sys.stderr)
        return REFUSED
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that lacks a character shows a mark
            stream.reconfigure(errors="replace")
    import accel

    try:
        _COMMANDS[args.command](args)
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer has no reader; without this the exit would try once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return INTERRUPTED
    except (accel.Error, OSError, ImportError, TypeError, OverflowError, MemoryError) as e:
        text = " ".join(str(e).split())
        print(f"accel {args.command}: error: {text}", file=sys.stderr)
        return REFUSED
    return 0
