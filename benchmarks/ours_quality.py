"""What rounding activations to int8 costs: perplexity and divergence, as one JSON object.

ours_quality.py MODEL THREADS WINDOWS

Both models score the same windows of 512 ids; the divergence of a position is that of the rounded
model's distribution of the next token from the exact one's, in nats.
"""

import json
import math
import sys

import accel
import numpy as np
from accel import llm
from reference import text_ids

WINDOW = 512
ROWS = 32  # widened to f64 at once


def log_softmax(rows: np.ndarray) -> np.ndarray:
    rows = rows.astype(np.float64)
    rows -= rows.max(axis=1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))


def compare(exact: np.ndarray, rounded: np.ndarray, ids: list[int]) -> dict:
    """Sums over a window: nats of the next id for both, divergences, equal choices."""
    found = {"exact": 0.0, "rounded": 0.0, "kl": [], "same": 0}
    for at in range(0, len(ids) - 1, ROWS):
        rows = slice(at, min(at + ROWS, len(ids) - 1))
        p, q = log_softmax(exact[rows]), log_softmax(rounded[rows])
        targets = np.array(ids[rows.start + 1 : rows.stop + 1])
        index = np.arange(len(targets))
        found["exact"] -= p[index, targets].sum()
        found["rounded"] -= q[index, targets].sum()
        found["kl"] += (np.exp(p) * (p - q)).sum(axis=1).tolist()
        found["same"] += int((p.argmax(axis=1) == q.argmax(axis=1)).sum())
    return found


def main() -> None:
    path, threads, windows = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    device = accel.open_cpu(threads=threads)
    ids = text_ids()
    pieces = [ids[WINDOW * i : WINDOW * (i + 1)] for i in range(windows)]
    models = [llm.load(path, device=device, context=WINDOW, activations=a) for a in (None, "int8")]
    sums = [compare(*(m.logits(piece, all=True) for m in models), piece) for piece in pieces]
    tokens = sum(len(piece) - 1 for piece in pieces)
    divergences = [value for found in sums for value in found["kl"]]
    result = {
        "tokens": tokens,
        "perplexity_f32": math.exp(sum(s["exact"] for s in sums) / tokens),
        "perplexity_int8": math.exp(sum(s["rounded"] for s in sums) / tokens),
        "kl_mean": float(np.mean(divergences)),
        "kl_p99": float(np.quantile(divergences, 0.99)),
        "same_choice": sum(s["same"] for s in sums) / tokens,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
