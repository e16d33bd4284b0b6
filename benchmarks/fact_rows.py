"""What is no race: cost of loading, loss of rounding, growth with context and layers, host cost."""

import subprocess

from model_rows import Setting
from session import BUILD, ROOT, environment, median, ours, peer, run_json

CONTEXTS = (512, 8192)  # of the caches
MODULES = ("products_peers", "attention", "sampling")
FILE_FACTOR = 1.15  # of the file, that loading may take at its peak beside plans and caches


def load_facts(s: Setting) -> list[dict]:
    """Seconds without the tokenizer; peak memory above the same process without a model."""
    return [load_of(s, context) for context in CONTEXTS]


def load_of(s: Setting, context: int) -> dict:
    threads = max(s.threads)
    runs, empty = [], []
    for _ in range(s.rounds):
        empty.append(run_json(*ours("ours_load.py", "none", threads, context)))
        runs.append(run_json(*ours("ours_load.py", s.model, threads, context)))
    one = runs[0]
    bound = FILE_FACTOR * one["file_mib"] + one["plan_mib"] + one["kv_mib"]
    return {
        "context": context,
        "load_s": median([{"s": r["load_s"] - r["tokenizer_s"]} for r in runs], "s"),
        "tokenizer_s": median(runs, "tokenizer_s"),
        "above_mib": median(runs, "peak_mib") - median(empty, "peak_mib"),
        "bound_mib": bound,
        **{key: one[key] for key in ("file_mib", "plan_mib", "kv_mib")},
    }


def quality_facts(s: Setting, windows: int) -> dict:
    return run_json(*ours("ours_quality.py", s.model, max(s.threads), windows))


def scaling_facts(s: Setting) -> dict:
    return run_json(*ours("ours_scaling.py", max(s.threads), max(3, s.rounds)))


def host_facts(s: Setting) -> dict:
    """What submitting costs the calling thread, and an empty dispatch, with empty kernels."""
    submit = run_json(*ours("submit_cost.py"))
    pool = run_json(BUILD / "bench_pool", max(s.threads))
    found = {key: submit[key] for key in ("ports", "operators", "submit_us", "submit_us_p90")}
    return found | {key: pool[key] for key in ("threads", "dispatch_us", "dispatch_us_p90")}


def operator_rows(s: Setting) -> list[dict]:
    """Rows of single operators, in the environment that holds their peers."""
    wanted = {"torch": "torch", "onnxruntime": "ONNX"}
    names = [word for key, word in wanted.items() if key in s.peers]
    modules = [m for m in MODULES if "torch" in s.peers or m == "products_peers"]
    rows = []
    env = environment(PYTHONPATH=str(BUILD / "py"))
    for threads in s.threads:
        for module in modules:
            if not (ROOT / "benchmarks" / f"{module}.py").exists():
                continue
            command = peer("bench-ops", "operator_run.py", module, threads)
            found = run_json(*command, env=env)["rows"]
            rows += [r | {"threads": threads} for r in found if kept(r, names)]
    return rows


def kept(row: dict, names: list[str]) -> bool:
    """A row against one of the peers asked for, or against another form of our own."""
    peer_name = row.get("peer") or ""
    known = "torch" in peer_name or "ONNX" in peer_name
    return not known or any(word in peer_name for word in names)


def commit() -> str:
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return result.stdout.strip() or "unknown"
