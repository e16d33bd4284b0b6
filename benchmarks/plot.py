"""Draws the kept figures: plot.py FIGURES.json FOLDER writes speed.svg and scaling.svg.

The same figures give the same bytes: no date, and names of parts from a fixed salt.
"""

import json
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402

plt.rcParams.update({"svg.hashsalt": "accel", "svg.fonttype": "none", "font.size": 9})
LIMIT = "limit: reading the weights (decode), f32 multiply-add (prefill)"
COLOURS = {
    "accel f32": "#1b6ca8",
    "accel int8": "#5aa9e6",
    "llama.cpp Q4_1": "#d1495b",
    "llama.cpp Q4_0": "#edae49",
    "OpenVINO": "#7a7a7a",
}
OURS = {"f32": "accel f32", "int8": "accel int8"}


def speeds(rows: list[dict], what: str) -> dict[str, dict[int, float]]:
    """Engine -> threads -> tokens a second, of the rows whose name begins with `what`."""
    found: dict[str, dict[int, float]] = {}
    for r in rows:
        begin, _, form = r.get("name", "").partition(", ")
        if begin != what or form not in OURS:
            continue
        found.setdefault(OURS[form], {})[r["threads"]] = r["tok_s"]
        if r.get("peer") in COLOURS:
            speed = r["tok_s"] * r["us"] / r["peer_us"]
            found.setdefault(r["peer"], {})[r["threads"]] = speed
    return {engine: found[engine] for engine in COLOURS if engine in found}


def limits(rows: list[dict], what: str) -> dict[int, float]:
    """Threads -> tokens a second that the ceiling allows, which was measured between the runs."""
    key = {"read_gb_s": "gb_s", "fma_gop_s": "gflop_s"}
    mine = [r for r in rows if r.get("name") == f"{what}, f32"]
    return {r["threads"]: r["ceiling"] * r["tok_s"] / r[key[r["of"]]] for r in mine}


def bars(axes, found: dict, limit: dict, title: str) -> None:
    threads = sorted({t for speed in found.values() for t in speed})
    width = 0.8 / len(found)
    for i, (engine, speed) in enumerate(found.items()):
        at = [n + (i - (len(found) - 1) / 2) * width for n in range(len(threads))]
        heights = [speed.get(t, 0) for t in threads]
        drawn = axes.bar(at, heights, width * 0.92, color=COLOURS[engine], label=engine)
        axes.bar_label(drawn, fmt="%.0f", fontsize=7, padding=1)
    for n, t in enumerate(threads):
        if t in limit:
            axes.hlines(limit[t], n - 0.45, n + 0.45, "#222222", "dashed", lw=1, label=LIMIT)
    axes.set_xticks(range(len(threads)), [f"{t} thread{'s' * (t > 1)}" for t in threads])
    axes.set_ylabel("tokens a second")
    axes.set_title(title)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.12)


def draw_speed(figures: dict, path: Path) -> None:
    rows = figures["rows"]
    prefill = next(
        r["name"].partition(", ")[0] for r in rows if r.get("name", "").startswith("prefill")
    )
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axes, what in ((left, "decode"), (right, prefill)):
        title = f"SmolLM2-135M, Q4_1 file: {what}"
        bars(axes, speeds(rows, what), limits(rows, what), title)
    entries = dict(zip(*reversed(left.get_legend_handles_labels()), strict=True))
    figure.legend(
        entries.values(), entries.keys(), loc="outside lower center", ncols=3, frameon=False
    )
    save(figure, path)


def draw_scaling(scaling: dict, path: Path) -> None:
    figure, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained")
    titles = (
        ("context", "positions in the cache", "ms a token", "decode step against context"),
        ("layers", "layers", "ms", "record and compile against layers"),
    )
    for ax, (key, x, y, title) in zip(axes, titles, strict=True):
        at = [p["at"] for p in scaling[key]]
        ax.plot(at, [1e3 * p["seconds"] for p in scaling[key]], "o-", color="#1b6ca8", ms=4, lw=1.4)
        ax.set(xlabel=x, ylabel=y, title=title)
        ax.set_xlim(left=0)
        ax.set_ylim(bottom=0)
        ax.grid(alpha=0.3)
        ax.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def save(figure, path: Path) -> None:
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    plt.close(figure)


def main() -> None:
    figures, folder = json.loads(Path(sys.argv[1]).read_text()), Path(sys.argv[2])
    files = []
    if any(r.get("name", "").startswith("decode, ") for r in figures["rows"]):
        draw_speed(figures, folder / "speed.svg")
        files.append("speed.svg")
    if "scaling" in figures["facts"]:
        draw_scaling(figures["facts"]["scaling"], folder / "scaling.svg")
        files.append("scaling.svg")
    print(json.dumps({"files": files}))


if __name__ == "__main__":
    main()
