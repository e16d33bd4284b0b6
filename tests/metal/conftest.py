"""Fixtures of the emulated Metal device: one in the process, its modes set again for each test."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import emulator

BUILT = emulator.available()
if os.environ.get("ACCEL_TEST_METAL") == "1" and not BUILT:
    raise RuntimeError("ACCEL_TEST_METAL=1: the tests of Metal need clang++ 19 and BlocksRuntime")


@pytest.fixture(scope="session")
def library():
    if not BUILT:
        pytest.skip("clang++ 19 and BlocksRuntime build the emulated Metal device")
    return emulator.load()


@pytest.fixture
def emu(library):
    """The emulator in its natural mode; a test that leaves a fault behind fails."""
    library.mode()
    library.clear()
    with library.pool():
        yield library
    left = library.faults()
    library.mode()
    library.clear()
    assert not left, left


@pytest.fixture
def run(emu):
    """Makes a Run of a source, closed at the end."""
    made = []

    def make(source=None, **options):
        made.append(emulator.Run(emu, source, **options))
        return made[-1]

    yield make
    for r in made:
        r.close()


@pytest.fixture
def sample():
    folder = Path(__file__).parent / "samples"
    return lambda name: (folder / f"{name}.metal").read_text()


@pytest.fixture
def child(tmp_path):
    """Runs Python text in a process of its own, for what ends the process or is read once."""

    def start(text, **variables):
        head = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        head += "import numpy as np\nfrom emulator import *\nemu = load()\n"
        return subprocess.run(
            [sys.executable, "-c", head + text],
            env=os.environ | variables,
            capture_output=True,
            text=True,
            cwd=tmp_path,
            timeout=120,
        )

    return start
