"""The README's example runs, and prints what the README says it prints."""

import re
import subprocess
import sys

import pytest
from tree import ROOT

pytestmark = pytest.mark.rules


BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)


def blocks(text: str) -> list[tuple[str, str]]:
    return BLOCK.findall(text)


def run(code: str, tmp_path) -> subprocess.CompletedProcess:
    script = tmp_path / "example.py"
    script.write_text(code)
    return subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )


def printed(text: str, at: int) -> str:
    """The text block behind python block number `at`."""
    kinds = blocks(text)
    pythons = [i for i, (kind, _) in enumerate(kinds) if kind == "python"]
    kind, body = kinds[pythons[at] + 1]
    assert kind == "text", "each python block is followed by what it prints"
    return body


def normal(text: str) -> str:
    return re.sub(r"[ \t]+", " ", text).strip()


def test_python_blocks_of_the_readme_print_what_it_says(tmp_path):
    text = (ROOT / "README.md").read_text()
    pythons = [body for kind, body in blocks(text) if kind == "python"]
    assert pythons
    for at, code in enumerate(pythons):
        result = run(code, tmp_path)
        assert result.returncode == 0, result.stderr
        assert normal(result.stdout) == normal(printed(text, at))


def test_the_readme_names_both_commands():
    text = (ROOT / "README.md").read_text()
    assert "make run" in text and "make test" in text


def test_the_example_is_short():
    first = next(
        body for kind, body in blocks((ROOT / "README.md").read_text()) if kind == "python"
    )
    assert len(first.strip().splitlines()) <= 20
