"""Loads a checkpoint once and makes one token: seconds and peak memory, as one JSON object.

ours_load.py MODEL THREADS CONTEXT [ACTIVATIONS]

With MODEL `none` nothing is loaded: the same process without a model.
"""

import importlib
import json
import resource
import sys
import time
from pathlib import Path

import accel
import numpy as np
from accel import llm

STATUS = Path("/proc/self/status")


def peak_mib() -> float:
    """Of this process alone; the resource usage would start at the size of the one that forked."""
    if STATUS.exists():
        rows = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        return int(rows["VmHWM"].split()[0]) / 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 1024)


class Timed:
    """A tokenizer's class that counts the seconds of its construction."""

    seconds = 0.0

    def __init__(self, made):
        self.made = made

    def __call__(self, *arguments):
        begin = time.perf_counter()
        found = self.made(*arguments)
        Timed.seconds += time.perf_counter() - begin
        return found


def main() -> None:
    path, threads, context = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    device = accel.open_cpu(threads=threads)
    if path == "none":
        # The threads and the buffers of numpy are there as in the other process.
        np.ones(1 << 10).sum()
        print(json.dumps({"peak_mib": peak_mib()}))
        return
    loading = importlib.import_module("accel.llm.load")  # the package names its function alike
    loading.Tokenizer = Timed(loading.Tokenizer)
    begin = time.perf_counter()
    activations = sys.argv[4] if len(sys.argv) > 4 else None
    model = llm.load(path, device=device, context=context, activations=activations)
    load_s = time.perf_counter() - begin
    loaded_mib = peak_mib()
    next(model.generate([1, 2, 3], 1))
    report = model.report()
    result = {
        "load_s": load_s,
        "tokenizer_s": Timed.seconds,
        "peak_mib": peak_mib(),
        "loaded_mib": loaded_mib,
        "file_mib": report.file_bytes / 2**20,
        "plan_mib": report.plan_bytes / 2**20,
        "kv_mib": report.kv_bytes / 2**20,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
