"""What `accel bench` measures: a model's decode and prefill beside the ceilings of its machine."""

from __future__ import annotations

import statistics
import time

import accel

PROBE_MS = 300
PROBE_MIB = 640  # of all threads together: beyond the last cache of most machines
LEAST_MIB = 64  # of one thread
CHECKED = 8  # tokens of the warm-up run that the timed runs must repeat


def ceilings(threads: int) -> dict:
    """Read bandwidth and the rates of multiply-adds and int8 products, of `threads` threads."""
    mib = max(PROBE_MIB // threads, LEAST_MIB)
    return {"threads": threads, **accel._core.cpu_ceilings(threads, PROBE_MS, mib)}


def prompt_ids(count: int, vocab: int) -> list[int]:
    """Ids all over the vocabulary; what they say does not matter to the time."""
    return [(7919 * i + 1) % vocab for i in range(count)]


def timed_run(model, ids: list[int], tokens: int) -> tuple[list[int], float, float]:
    """The new ids, the seconds to the first one, and the seconds of one later step."""
    begin = time.perf_counter()
    stamps, out = [], []
    for token in model.generate(ids, tokens, ignore_eos=True):
        stamps.append(time.perf_counter())
        out.append(token.id)
    return out, stamps[0] - begin, (stamps[-1] - stamps[0]) / (tokens - 1)


def work(model) -> tuple[int, int] | None:
    """Weights of the layers, which each token is multiplied with, and of the head, which serves
    the last one of a prompt; None for a model whose tokens take a part of its weights each."""
    sizes = {"layers": 0, "head": 0}
    for name, held in model._weights.held.items():
        if len(held.shape) > 2:
            return None
        if len(held.shape) == 2 and (name != "embed" or model.config.tied):
            part = "head" if name in ("embed", "head") else "layers"
            sizes[part] += held.shape[0] * held.shape[1]
    return sizes["layers"], sizes["head"]


def row(name: str, tokens: int, seconds: float, size: int, ops: int | None, ceiling: tuple) -> dict:
    """`size` bytes are read, `ops` operations done; ceiling: (key, rate in 1e9 a second)."""
    gb_s = size / seconds / 1e9
    gflop_s = None if ops is None else ops / seconds / 1e9
    key, rate = ceiling
    reached = gb_s if key == "read_gb_s" else gflop_s
    known = ops is not None and rate > 0
    return {
        "name": name,
        "us": seconds * 1e6,
        "tok_s": tokens / seconds,
        "gb_s": gb_s,
        "gflop_s": gflop_s,
        "percent": 100 * reached / rate if known else None,
        "of": key,
    }


def rows(model, machine: dict, prompt: int, tokens: int, rounds: int) -> list[dict]:
    """Decode and prefill, medians of `rounds` runs, each of which repeats the warm-up's tokens."""
    ids = prompt_ids(prompt, model.config.vocab)
    want, _, _ = timed_run(model, ids, min(CHECKED, tokens))
    prefills, steps = [], []
    for _ in range(rounds):
        out, prefill, step = timed_run(model, ids, tokens)
        if out[: len(want)] != want:
            raise accel.InternalError("bench: two runs of one prompt gave different tokens")
        prefills.append(prefill)
        steps.append(step)
    report, weights = model.report(), work(model)
    products = "int8_gop_s" if report.activations == "int8" else "fma_gop_s"
    decode_ops = prefill_ops = None
    if weights:
        layers, head = weights
        decode_ops, prefill_ops = 2 * (layers + head), 2 * (layers * prompt + head)
    step, prefill, size = statistics.median(steps), statistics.median(prefills), report.weight_bytes
    found = [
        row("decode", 1, step, size, decode_ops, ("read_gb_s", machine["read_gb_s"])),
        row(f"prefill {prompt}", prompt, prefill, size, prefill_ops, (products, machine[products])),
    ]
    return [{"threads": machine["threads"], **r} for r in found]


_OF = {
    "read_gb_s": "of reading",
    "fma_gop_s": "of multiply-add",
    "int8_gop_s": "of int8 products",
}


def machine_line(m: dict) -> str:
    int8 = f", {m['int8_gop_s']:.0f} Gop/s in int8 ({m['int8_unit']})" if m["int8_gop_s"] else ""
    return (
        f"{m['threads']} thread(s), {m['level']}: reads {m['read_gb_s']:.1f} GB/s, "
        f"multiplies and adds {m['fma_gop_s']:.0f} Gop/s in f32{int8}"
    )


def row_line(r: dict) -> str:
    rate = "" if r["gflop_s"] is None else f"{r['gflop_s']:9.1f} Gop/s"
    share = "" if r["percent"] is None else f"{r['percent']:6.1f} % {_OF[r['of']]}"
    return (
        f"  {r['name']:12} {r['us']:10.0f} us {r['tok_s']:9.1f} tok/s {r['gb_s']:8.2f} GB/s"
        f" {rate} {share}".rstrip()
    )
