"""Kernels of shaders/cuda that run on the host: tests/cuda/rings/device.h is a group of threads,
each a fiber, and a program of a folder here runs the kernels' own text against plain loops."""

import hashlib
import os
import platform
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SHADERS, HERE = ROOT / "shaders", Path(__file__).parent
CXX = os.environ.get("CXX", "c++")
# Without warnings: pragmas and mixed signs are what the other compiler takes.
OPTIONS = ("-std=c++20", "-O1", "-ffp-contract=off", "-w")
GIVEN = HERE / "rings"  # what every program includes

needs_fibers = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the fibers are those of glibc"
)


def texts_of(shaders: Path) -> list[Path]:
    return [*shaders.glob("cuda/*.h"), *shaders.glob("shared/**/*.h")]


def built(source: Path, defines: list[str], folder: Path, shaders: Path = SHADERS) -> Path:
    """The program of a source file; what is in the folder is kept while its text stays."""
    include = [f"-I{path}" for path in dict.fromkeys((source.parent, GIVEN, shaders))]
    digest = hashlib.sha256(" ".join([CXX, *OPTIONS, *defines]).encode())
    own = {*source.parent.glob("**/*.[ch]*"), *GIVEN.glob("**/*.[ch]*")}
    for path in sorted([*texts_of(shaders), *own]):
        digest.update(path.read_bytes())
    program = folder / digest.hexdigest()[:24]
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / f"{program.name}.{os.getpid()}"
        subprocess.run([CXX, *OPTIONS, *include, *defines, source, "-o", made], check=True)
        made.replace(program)
    return program


def ran(program: Path) -> subprocess.CompletedProcess:
    return subprocess.run([program], capture_output=True, text=True, timeout=240)


def planted(file: str, text: str, fault: str, folder: Path) -> Path:
    """The shaders in a folder, with one place of one file changed."""
    for path in texts_of(SHADERS):
        copy = folder / path.relative_to(SHADERS)
        copy.parent.mkdir(parents=True, exist_ok=True)
        source = path.read_text()
        if path.name == file:
            assert source.count(text) == 1
            source = source.replace(text, fault)
        copy.write_text(source)
    return folder
