"""Rows of the whole model: prefill and decode, alone, in a batch and on a busy machine."""

import json
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from reference import text_ids
from session import CACHE, alternate, median, ours, peer, ratio, rows_of, run_json

SEQUENCES, BATCH_PROMPT = 16, 32
EXACT, ROUNDED = "accel f32", "accel int8"
Q4_1, Q4_0 = "llama.cpp Q4_1", "llama.cpp Q4_0"
OPENVINO = {"OpenVINO": [], "OpenVINO, f32 asked for": ["--activations", "f32"]}


@dataclass(frozen=True)
class Setting:
    """What is measured, and against whom; `reference` where the recorded tokens are the model's."""

    model: Path
    reference: bool
    threads: list[int]
    rounds: int
    prompt_tokens: int
    decode_tokens: int
    peers: set[str]
    folder: Path  # of this session's prompts

    def prompt(self, name: str, ids: list) -> Path:
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(ids))
        return path

    def narrow_file(self) -> Path:
        """The checkpoint with Q4_0 in place of Q4_1."""
        path = CACHE / f"{self.model.stem}.from-{self.model.stat().st_size}.Q4_0.gguf"
        if not path.exists():
            print("bench: writing the checkpoint as Q4_0 into build/bench", flush=True)
            CACHE.mkdir(parents=True, exist_ok=True)
            subprocess.run(peer("bench-llama", "q4_0.py", self.model, path), check=True)
        return path


def step_rows(s: Setting) -> list[dict]:
    """Prefill and decode of one sequence."""
    prompt, rows = s.prompt("prompt", text_ids()[: s.prompt_tokens]), []
    check = ["--reference"] if s.reference else []
    for threads in s.threads:
        run = (threads, prompt, s.decode_tokens)
        commands = {
            EXACT: ours("ours.py", s.model, *run, *check),
            ROUNDED: ours("ours.py", s.model, *run, *check, "--activations", "int8"),
        }
        if "llama" in s.peers:
            commands[Q4_1] = peer("bench-llama", "peer_llama.py", s.model, *run, *check)
            commands[Q4_0] = peer("bench-llama", "peer_llama.py", s.narrow_file(), *run)
        if "openvino" in s.peers:
            for label, hint in OPENVINO.items():
                openvino = ("peer_openvino.py", s.model, *run, *check, *hint)
                commands[label] = peer("bench-openvino", *openvino)
        found = alternate(commands, s.rounds, threads)
        peers = [label for label in commands if label not in (EXACT, ROUNDED)]
        for label in (EXACT, ROUNDED):
            rows += decode_and_prefill(s, threads, found, label, peers)
        rows += [p | {"threads": threads} for p in described(found, peers)]
    return rows


def decode_and_prefill(s: Setting, threads: int, found: dict, label: str, peers: list[str]):
    one = found[label][0]
    products = "int8_gop_s" if label == ROUNDED else "fma_gop_s"
    size = one["weight_bytes"]
    decode = {"tokens": 1, "bytes": size, "ops": one["decode_ops"], "of": "read_gb_s"}
    prefill = {"tokens": s.prompt_tokens, "bytes": size, "ops": one["prefill_ops"], "of": products}
    name = f"prefill {s.prompt_tokens}"
    return [
        *rows_of("decode", threads, found, label, peers, "step_s", decode),
        *rows_of(name, threads, found, label, peers, "prefill_s", prefill),
    ]


def described(found: dict, peers: list[str]) -> list[dict]:
    """What each peer says of itself."""
    keys = ("version", "built_for", "precision")
    return [
        {"about": label, "load_s": median(found[label], "load_s")}
        | {k: found[label][0][k] for k in keys if k in found[label][0]}
        for label in peers
    ]


def batch_rows(s: Setting) -> list[dict]:
    """One token of each of 16 sequences a step, over pages; llama.cpp in one context."""
    ids, rows = text_ids(), []
    starts = range(0, SEQUENCES * BATCH_PROMPT, BATCH_PROMPT)
    prompts = s.prompt("prompts", [ids[at : at + BATCH_PROMPT] for at in starts])
    for threads in s.threads:
        run = (threads, prompts, max(10, s.decode_tokens // 3))
        commands = {
            EXACT: ours("ours_batch.py", s.model, *run),
            ROUNDED: ours("ours_batch.py", s.model, *run, "--activations", "int8"),
        }
        if "llama" in s.peers:
            script = "peer_llama_batch.py"
            commands[Q4_1] = peer("bench-llama", script, s.model, *run)
            commands[Q4_0] = peer("bench-llama", script, s.narrow_file(), *run)
        found = alternate(commands, s.rounds, threads)
        peers = [label for label in commands if label not in (EXACT, ROUNDED)]
        for label in (EXACT, ROUNDED):
            rows += batch_of(threads, found, label, peers)
    return rows


def batch_of(threads: int, found: dict, label: str, peers: list[str]) -> list[dict]:
    products = "int8_gop_s" if label == ROUNDED else "fma_gop_s"
    one = found[label][0]
    work = {"tokens": SEQUENCES, "bytes": one["weight_bytes"], "ops": one["ops"], "of": products}
    # The same steps one by one, as a run of its own.
    alone = [{"step_s": SEQUENCES * run["alone_s"]} for run in found[label]]
    known = found | {"one by one": alone}
    share = median(found[label], "products_share")
    made = rows_of(
        f"batch of {SEQUENCES}", threads, known, label, [*peers, "one by one"], "step_s", work
    )
    more = {"products_share": share}
    if made[0]["percent"] is not None:
        more["percent_of_products"] = made[0]["percent"] / share
    return [row | more for row in made]


def busy_rows(s: Setting) -> list[dict]:
    """Decode beside one process that never rests, with all of the threads asked for."""
    threads = max(s.threads)
    prompt = s.prompt("short", text_ids()[:64])
    run = (threads, prompt, s.decode_tokens)
    commands = {EXACT: ours("ours.py", s.model, *run)}
    if "llama" in s.peers:
        commands[Q4_1] = peer("bench-llama", "peer_llama.py", s.model, *run)
    quiet: dict = {label: [] for label in commands}
    busy: dict = {label: [] for label in commands}
    for _ in range(s.rounds):
        for label, command in commands.items():
            quiet[label].append(run_json(*command))
            with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as spinning:
                try:
                    busy[label].append(run_json(*command))
                finally:
                    spinning.kill()
    loss = {
        label: statistics.median(
            b["step_s"] / q["step_s"] for b, q in zip(busy[label], quiet[label], strict=True)
        )
        for label in commands
    }
    step = median(busy[EXACT], "step_s")
    size, ops = busy[EXACT][0]["weight_bytes"], busy[EXACT][0]["decode_ops"]
    row = {
        "name": "decode beside a busy process, f32",
        "threads": threads,
        "us": step * 1e6,
        "tok_s": 1 / step,
        "gb_s": size / step / 1e9,
        "gflop_s": ops / step / 1e9,
        "percent": None,
        "ratio": None,
        "peer": None,
        "times_slower": loss[EXACT],
    }
    if Q4_1 in commands:
        row |= {"peer": Q4_1, "ratio": ratio(busy[EXACT], busy[Q4_1], "step_s")}
        row |= {"peer_us": median(busy[Q4_1], "step_s") * 1e6, "peer_times_slower": loss[Q4_1]}
    return [row]
