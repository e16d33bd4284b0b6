"""The kernels of shaders/cuda/ring.h and ring_fused.h, run by a stand-in of a group of threads
(tests/cuda/rings): fibers in random turns, copies that arrive at the first or the last moment,
memory that others have left. Every ring, plain and fused, against plain loops in the registered
orders."""

import re
from pathlib import Path

import pytest

from .fibers import HERE, ROOT, SHADERS, built, needs_fibers, planted, ran

FORMATS = {
    "WeightF16": "NARROW",
    "WeightBf16": "NARROW",
    "WeightF32": "F32",
    "WeightInt8": "INT8",
    "WeightInt4<AsF16>": "INT4",
    "WeightInt4<AsBf16>": "INT4",
    "WeightInt4<AsF32>": "INT4",
}
HALF_X = ("WeightF16", "WeightBf16", "WeightInt8")

pytestmark = [pytest.mark.rules, needs_fibers]


def program(name: str, folder: Path, few: str = "", shaders: Path = SHADERS) -> Path:
    """The test of one format of weights."""
    rings = f"RINGS_{FORMATS[name]}"
    defines = [f"-DFORMAT={name}", f"-DRINGS={rings}{few}", f"-DRINGS_ONE={rings}_ONE"]
    if name in HALF_X:
        defines.append("-DHALF_X")
    return built(HERE / "rings" / "rings.cc", defines, folder, shaders)


@pytest.mark.parametrize("name", FORMATS)
def test_every_ring_has_the_bits_of_its_order(name):
    done = ran(program(name, ROOT / "build" / "cuda_rings"))
    assert done.returncode == 0, done.stdout
    cases = int(re.search(r"^(\d+) cases, 0 wrong$", done.stdout, re.M)[1])
    assert cases >= 12 * 4 + 28 * 2


# ---------------------------------------------------------------- faults


PLANTED = {
    "x is read before it is there": (
        "ring_fused.h",
        "  stage_x<1, T>(x, xs, k0, width, segment, of);\n  __syncthreads();\n",
        "  stage_x<1, T>(x, xs, k0, width, segment, of);\n",
        "column",
    ),
    "a stage is read before it is there": (
        "ring_fused.h",
        "wait_copies<Stages - 2>();",
        "wait_copies<Stages - 1>();",
        "column",
    ),
    "a slot is filled again too early": (
        "ring_fused.h",
        "      __syncwarp();  // all copies of the warp",
        "      // all copies of the warp",
        "column",
    ),
    "tiles of another part": (
        "ring_fused.h",
        "of_three(part(t), 0u, t.first, t.second)",
        "of_three(part(t), 0u, t.first, t.first)",
        "",
    ),
    "gain before the kernels before are done": (
        "ring_fused.h",
        "  for (int s = 0; s < Stages - 1; ++s) ring.ask();\n  earlier_done();\n",
        "  for (int s = 0; s < Stages - 1; ++s) ring.ask();\n",
        "a read before the kernels before are done",
    ),
    "a plain slot is filled again too early": (
        "ring.h",
        "      __syncwarp();  // all copies of the warp",
        "      // all copies of the warp",
        "column",
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_caught(fault, tmp_path):
    file, text, changed, said = PLANTED[fault]
    shaders = planted(file, text, changed, tmp_path / "shaders")
    done = ran(program("WeightF32", tmp_path, "_ONE", shaders))
    assert done.returncode == 1 and said in done.stdout, done.stdout
