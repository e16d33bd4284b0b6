"""Fixtures that every test shares: devices per kernel table, runtimes, seeds from the test's id.

ACCEL_TEST_ISA: `all` runs device tests on every kernel table of this machine, a name on that one;
without it the best table.
ACCEL_TEST_DEVICE: `metal` runs them on the Metal device instead, `metal_plain` on it without
exchange inside SIMD groups, `metal,metal_plain` on both; `cuda` runs them on the first NVIDIA GPU,
`cuda_matrix` on it with products on matrix units.
ACCEL_TEST_SLOW=1 runs the tests marked slow, ACCEL_TEST_PEERS=1 those marked peers.
"""

import os
import sys
import zlib
from functools import cache
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "ops"), str(HERE / "conformance")]

TABLES = ("base", "avx2", "avx512", "neon")
METAL = ("metal", "metal_plain")
CUDA = ("cuda", "cuda_matrix")
GPUS = (*METAL, *CUDA)
POISON = 0xFF  # every transient starts as NaN


def open_named(isa: str | None, threads: int = 1, **options):
    """A device by the name of a kernel table or of a GPU's backend."""
    import accel

    options = {"debug_fill": POISON, **options}
    if isa in METAL:
        return accel.open_metal(plain=isa == "metal_plain", **options)
    if isa in CUDA:
        return accel.open_cuda(matrix=isa == "cuda_matrix", **options)
    return accel.open_cpu(threads=threads, isa=isa, **options)


@cache
def open_runtime(isa: str | None, threads: int = 1):
    import accel

    return accel.Runtime(open_named(isa, threads))


@cache
def tables() -> tuple[str, ...]:
    """The kernel tables of this machine, best last."""
    import accel

    found = []
    for isa in TABLES:
        try:
            open_runtime(isa)
        except accel.UnsupportedError:
            continue
        found.append(isa)
    return tuple(found)


def fma_tables() -> tuple[str, ...]:
    return tuple(isa for isa in tables() if isa != "base")


def chosen_tables() -> tuple[str, ...]:
    if devices := os.environ.get("ACCEL_TEST_DEVICE", ""):
        return tuple(devices.split(","))
    wanted = os.environ.get("ACCEL_TEST_ISA", "")
    if wanted == "all":
        return tables()
    return (wanted,) if wanted else tables()[-1:]


def by_device(isa: str, hardware, emulated):
    """How much a test does: an emulated GPU runs thread by thread and takes a hundred times as long
    as the CPU, a real one takes what the CPU takes."""
    info = open_runtime(isa).device.info
    software = info.software or "Stand-in" in info.name
    return emulated if isa in GPUS and software else hardware


def without_matrix(isa: str) -> str:
    """The same device where products have the order of every other backend's."""
    return "cuda" if isa == "cuda_matrix" else isa


def level_of(isa: str) -> str:
    return "base" if isa == "base" else "fma"


def pytest_generate_tests(metafunc):
    if "isa" in metafunc.fixturenames:
        metafunc.parametrize("isa", chosen_tables(), scope="session")


# Marker: variable that asks for its tests.
ON_REQUEST = {"slow": "ACCEL_TEST_SLOW", "peers": "ACCEL_TEST_PEERS"}
# What these import is installed by the extra [peers] alone.
collect_ignore_glob = [] if os.environ.get("ACCEL_TEST_PEERS") == "1" else ["peers/*"]
collect_ignore = []
# Tests of the Metal executor need a build that has it.
if "metal" not in os.environ.get("ACCEL_TEST_DEVICE", ""):
    tests = (HERE / "metal").glob("test_*.py")
    collect_ignore += [p for p in tests if "from driver import" in p.read_text(encoding="utf-8")]
# Of the tests of CUDA these alone need no GPU and no stand-in of NVIDIA's driver.
if "cuda" not in os.environ.get("ACCEL_TEST_DEVICE", ""):
    names = ("kernels", "build", "rings_emulated", "matrix_emulated")
    without = {f"test_cuda_{name}.py" for name in names}
    tests = (HERE / "cuda").glob("test_*.py")
    collect_ignore += [p for p in tests if p.name not in without]


def pytest_itemcollected(item):
    """What runs on each device of a run is marked, so that -m device leaves out the rest."""
    if "isa" in getattr(item, "fixturenames", ()):
        item.add_marker("device")


def pytest_collection_modifyitems(items):
    for item in items:
        for marker, variable in ON_REQUEST.items():
            if marker in item.keywords and os.environ.get(variable) != "1":
                item.add_marker(pytest.mark.skip(reason=f"{marker}: set {variable}=1"))


@pytest.fixture
def runtime(isa):
    return open_runtime(isa)


@pytest.fixture
def device(runtime):
    return runtime.device


@pytest.fixture
def rng(request):
    """Seeded by the test's id without its kernel table, so that every table sees the same data."""
    name = request.node.nodeid
    for isa in (*reversed(GPUS), *TABLES):
        name = name.replace(isa, "")
    return np.random.default_rng(zlib.crc32(name.encode()))
