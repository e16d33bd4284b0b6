"""`import accel` starts no thread and opens nothing; what it adds to numpy is printed."""

import json
import statistics
import subprocess
import sys

import pytest

pytestmark = pytest.mark.rules


SCRIPT = """
import json, os, sys, time
import numpy
def threads():
    return len(os.listdir("/proc/self/task")) if os.path.isdir("/proc/self/task") else None
before, known = threads(), set(sys.modules)
begin = time.perf_counter()
import accel
print(json.dumps({"ms": (time.perf_counter() - begin) * 1e3, "before": before, "after": threads(),
                  "modules": sorted(set(sys.modules) - known)}))
"""


def fresh_import() -> dict:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    return json.loads(result.stdout)


def test_import_starts_no_thread(capsys):
    runs = [fresh_import() for _ in range(5)]
    assert all(run["before"] == run["after"] for run in runs)
    with capsys.disabled():
        added = statistics.median(run["ms"] for run in runs)
        print(f"\nimport accel adds {added:.1f} ms to import numpy")


def test_import_brings_no_optional_package():
    optional = {"tokenizers", "jinja2", "rich", "safetensors", "gguf", "torch", "ml_dtypes"}
    assert not optional & {module.split(".")[0] for module in fresh_import()["modules"]}
