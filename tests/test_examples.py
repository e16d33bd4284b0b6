"""The examples run as they stand, from another folder, and say what they promise."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))
SAYS = {
    "first_plan.py": ["step 2: y[0, :3]", "matmul_nk_f32_f32", "transient_bytes"],
    "mistakes.py": ["at line 11", "at line 12", "at line 13"],
    "paged.py": ["pages [[1, 0], [2]]", "blocks left 3"],
    "quantized.py": ["bytes: 73728 of 524288", "largest difference"],
}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.name)
def test_an_example_runs(path, tmp_path):
    done = subprocess.run(
        [sys.executable, str(path)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    for text in SAYS[path.name]:
        assert text in done.stdout
