"""accel beside other engines on one checkpoint, runs of all of them alternated in one session.

Prints a table and writes JSON with commit, machine and flags into benchmarks/results.
"""

import argparse
import datetime
import json
import os
import sys
import tempfile
from pathlib import Path

import fact_rows
import model_rows
import page
from session import ROOT, checkpoint, ours, peer, probe, run_json

RESULTS = ROOT / "benchmarks/results"
FIGURES = ROOT / "benchmarks/figures.json"  # what the plots are drawn from
PEERS = ("llama", "openvino", "torch", "onnxruntime")
ROWS = {"step": model_rows.step_rows, "batch": model_rows.batch_rows, "busy": model_rows.busy_rows}
FACTS = ("load", "quality", "scaling", "host")
OF = {"read_gb_s": "read", "fma_gop_s": "fma", "int8_gop_s": "int8"}


def line(r: dict) -> str:
    percent = "" if r.get("percent") is None else f"{r['percent']:.1f} % {OF.get(r.get('of'), '')}"
    tokens = f"{r['tok_s']:.1f} tok/s" if r.get("tok_s") else ""
    against = "" if r.get("ratio") is None else f"{r['ratio']:6.2f} x {r['peer']}"
    if r.get("peer_us"):
        against += f" ({r['peer_us']:.0f} us)"
    extra = "".join(
        f", {text} {r[key]:.2f}"
        for key, text in (
            ("percent_of_products", "% over products alone"),
            ("times_slower", "times slower than alone"),
            ("peer_times_slower", "the peer"),
        )
        if r.get(key) is not None
    )
    return (
        f"  {r['name']:38} {r['us']:11.1f} us {tokens:>15} {r['gb_s']:7.2f} GB/s"
        f" {r['gflop_s']:8.1f} Gop/s {percent:>14} {against}{extra}"
    )


def show_rows(rows: list[dict]) -> None:
    for threads in sorted({r["threads"] for r in rows}):
        print(f"{threads} thread(s)")
        for r in rows:
            if r["threads"] == threads:
                if "about" in r:
                    about = [str(r[k]) for k in ("version", "precision", "built_for") if k in r]
                    print(f"  {r['about']}: {', '.join(about)}; load {r['load_s']:.2f} s")
                else:
                    print(line(r))
    sys.stdout.flush()


def show_facts(name: str, f) -> None:
    if name == "load":
        for c in f:
            print(
                f"load {c['load_s']:.3f} s, its tokenizer {c['tokenizer_s']:.3f} s; peak ", end=""
            )
            print(f"{c['above_mib']:.1f} MiB above a process without a model, of a bound ", end="")
            print(f"of {c['bound_mib']:.1f} (context {c['context']})")
    elif name == "quality":
        print(f"int8 activations: perplexity {f['perplexity_int8']:.4f}, ", end="")
        print(f"f32 {f['perplexity_f32']:.4f} over {f['tokens']} tokens; divergence ", end="")
        print(f"{f['kl_mean']:.5f} nats, p99 {f['kl_p99']:.5f}; ", end="")
        print(f"same choice {100 * f['same_choice']:.1f} %")
    elif name == "scaling":
        for what, unit in (("context", "ms a token"), ("layers", "ms to compile")):
            points = "  ".join(f"{p['at']}: {1e3 * p['seconds']:.1f}" for p in f[what])
            print(f"{what}, {unit}: {points}")
    else:
        print(f"submit of {f['operators']} operators, {f['ports']} ports: ", end="")
        print(
            f"{f['submit_us']:.2f} us of the calling thread; empty dispatch of the pool, ", end=""
        )
        print(f"{f['threads']} threads: {f['dispatch_us']:.2f} us")


def measure(options: argparse.Namespace) -> dict:
    wanted = options.only or [*ROWS, *FACTS]
    peers = set(PEERS) if "all" in options.peer else set(options.peer) - {"none"}
    record: dict = {"rows": [], "facts": {}}
    with tempfile.TemporaryDirectory() as folder:
        s = model_rows.Setting(
            model=checkpoint(options.model),
            reference=options.model is None or options.reference,
            threads=options.threads,
            rounds=options.rounds,
            prompt_tokens=options.prompt_tokens,
            decode_tokens=options.decode_tokens,
            peers=peers,
            folder=Path(folder),
        )
        for name, rows in ROWS.items():
            if name in wanted:
                record["rows"] += (found := rows(s))
                show_rows(found)
        if peers & {"torch", "onnxruntime"} and (not options.only or "operators" in wanted):
            record["rows"] += (found := fact_rows.operator_rows(s))
            show_rows(found)
        for name in FACTS:
            if name in wanted:
                more = (options.windows,) if name == "quality" else ()
                record["facts"][name] = getattr(fact_rows, f"{name}_facts")(s, *more)
                show_facts(name, record["facts"][name])
    return record


def about(options: argparse.Namespace) -> dict:
    ceilings = [probe(t) for t in options.threads]
    chosen = {k: v for k, v in vars(options).items() if k not in ("plot", "record", "model")}
    return {
        "commit": fact_rows.commit(),
        "device": run_json(*ours("device.py"))["device"],
        "cores": os.cpu_count(),
        "flags": ceilings[0]["flags"],
        "options": chosen,
        "ceilings": ceilings,
    }


def save(record: dict) -> Path:
    RESULTS.mkdir(exist_ok=True)
    now = datetime.datetime.now(datetime.timezone.utc)
    path = RESULTS / f"{now:%Y%m%dT%H%M%S}-{record['commit']}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def keep(record: dict) -> None:
    """What is measured takes the place of its like in the tracked figures; the rest stays."""
    old = json.loads(FIGURES.read_text()) if FIGURES.exists() else {"rows": [], "facts": {}}
    mine = {"commit": record["commit"]}
    made = [{k: v for k, v in r.items() if k != "us_rounds"} | mine for r in record["rows"]]
    replaced = {place(r) for r in made}
    kept = [r for r in old["rows"] if place(r) not in replaced]
    ceilings = {c["threads"]: c for c in old.get("ceilings", []) + record["ceilings"]}
    record = record | {
        "rows": sorted(made + kept, key=lambda r: (r["threads"], ORDER.get(head(r), len(ORDER)))),
        "facts": old["facts"] | record["facts"],
        "measured": old.get("measured", {}) | dict.fromkeys(record["facts"], record["commit"]),
        "ceilings": [ceilings[t] for t in sorted(ceilings)],
    }
    FIGURES.write_text(json.dumps(record, indent=1) + "\n")


ORDER = {"decode": 0, "prefill": 1, "batch": 2}


def head(row: dict) -> str:
    return (row.get("name") or "about").split()[0]


def place(row: dict) -> tuple:
    return row.get("name"), row.get("about"), row.get("peer"), row["threads"]


def draw() -> None:
    page.write(json.loads(FIGURES.read_text()), ROOT / "docs")
    drawn = run_json(*peer("bench", "plot.py", FIGURES, ROOT / "docs"))
    print("drawn:", ", ".join(drawn["files"] + ["speed.md"]))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--op", help="run this operator's benchmark rows instead")
    add("--peer", nargs="+", choices=(*PEERS, "all", "none"), default=["llama"])
    add("--only", nargs="+", choices=(*ROWS, *FACTS, "operators"), help="these parts alone")
    add("--model", help="GGUF file; the installed SmolLM2 checkpoint by default")
    add("--reference", action="store_true", help="--model is that checkpoint too: check its tokens")
    add("--threads", type=int, nargs="+", default=[1, 2])
    add("--rounds", type=int, default=5)
    add("--prompt-tokens", type=int, default=512)
    add("--decode-tokens", type=int, default=64)
    add("--windows", type=int, default=8, help="of 512 ids, for perplexity and divergence")
    add("--plot", action="store_true", help="keep the figures and draw docs/*.svg from them")
    add(
        "--draw", action="store_true", help="draw docs/*.svg from the kept figures, measure nothing"
    )
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    if options.op:
        import op_rows

        op_rows.main(options.op)
        return
    if not options.draw:
        record = measure(options)
        record = about(options) | record
        print(f"written to {save(record).relative_to(ROOT)}")
        if options.plot:
            keep(record)
    if options.plot or options.draw:
        draw()


if __name__ == "__main__":
    main()
