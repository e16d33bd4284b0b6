"""The kernels of shaders/cuda/matrix.h, run by a stand-in of a group of threads (fibers.py) with
matrix instructions that add in a way of their own (tests/cuda/matrix/cuda/mma.h). Every tile
against a plain loop of the order matrix16 over the same instructions: the bits of a row are those
of the order, whatever M and whatever the tile."""

import re
from pathlib import Path

import pytest

from .fibers import HERE, ROOT, SHADERS, built, needs_fibers, planted, ran

pytestmark = [pytest.mark.rules, needs_fibers, pytest.mark.timeout(600)]
ACTIVATIONS = {"f32": "float", "f16": "u16"}


def program(x: str, weight: str, folder: Path, few: bool = False, shaders: Path = SHADERS) -> Path:
    defines = [f"-DFORMAT={weight}", f"-DACTIVATIONS={ACTIVATIONS[x]}"] + ["-DFEW"] * few
    return built(HERE / "matrix" / "matrix.cc", defines, folder, shaders)


@pytest.mark.parametrize("weight", ["WeightF16", "WeightBf16"])
@pytest.mark.parametrize("x", ACTIVATIONS)
def test_every_tile_has_the_bits_of_the_order(x, weight):
    done = ran(program(x, weight, ROOT / "build" / "cuda_matrix"))
    assert done.returncode == 0, done.stdout
    cases = int(re.search(r"^(\d+) cases, 0 wrong$", done.stdout, re.M)[1])
    assert cases >= 6 * 12 * 2


# ---------------------------------------------------------------- faults

MATRIX, TERMS = "matrix.h", "matrix_terms.h"
FEW_SYNC = "__syncwarp();  // all copies of the warp are there"
PLANTED = {
    "the largest term first": (
        TERMS,
        "for (int term = 2; term >= 0; --term) terms_of(f, term);",
        "for (int term = 0; term < 3; ++term) terms_of(f, term);",
        "column",
    ),
    "the second instruction first": (
        TERMS,
        "for (int half = 0; half < 2; ++half) {",
        "for (int half = 1; half >= 0; --half) {",
        "column",
    ),
    "another place in a fragment": (
        TERMS,
        "wide[i][r] = __float_as_uint(two[0]), wide[i][2 + r] = __float_as_uint(two[1]);",
        "wide[i][r] = __float_as_uint(two[1]), wide[i][2 + r] = __float_as_uint(two[0]);",
        "column",
    ),
    "bits that are none of TF32": (
        TERMS,
        "#define TF32_BITS 0xffffe000u",
        "#define TF32_BITS 0xfffff000u",
        "an operand is no TF32",
    ),
    "chunks in another order": (
        MATRIX,
        "for (u32 c = 0; c < chunks; ++c)",
        "for (u32 c = chunks; c-- > 0;)",
        "column",
    ),
    "one sum over chunks": (
        MATRIX,
        "    clear(acc, 0.0f);\n  }\n\n  const u32 row0",
        "  }\n\n  const u32 row0",
        "column",
    ),
    "what is behind K is no zero": (
        MATRIX,
        "copy16_or_zeros(slot + i * kApart * Pitch, own + u64(i * kApart) * K, in);",
        "if (in) copy16_or_zeros(slot + i * kApart * Pitch, own + u64(i * kApart) * K, in);",
        "column",
    ),
    "what is behind K is no zero, read one by one": (
        MATRIX,
        "((T*)(to + row * Pitch))[at] = k + at < K ?",
        "if (k + at < K) ((T*)(to + row * Pitch))[at] = k + at < K ?",
        "column",
    ),
    "rows that are not there are read": (
        MATRIX,
        "if (row + i * kApart < min(u32(Most), there))",
        "if (row + i * kApart < Most)",
        "a read outside the operands",
    ),
    "x before the kernels before are done": (
        MATRIX,
        "  earlier_done();\n  way = Way",
        "  way = Way",
        "a read before the kernels before are done",
    ),
    "x of many rows before the kernels before are done": (
        MATRIX,
        "  earlier_done();\n  for",
        "  for",
        "a read before the kernels before are done",
    ),
    "a stage is read before it is there": (
        MATRIX,
        f"wait_copies<Stages - 2>();\n        {FEW_SYNC}",
        f"wait_copies<Stages - 1>();\n        {FEW_SYNC}",
        "column",
    ),
    "a stage of other lanes is read before it is there": (
        MATRIX,
        FEW_SYNC,
        "// all copies of the warp are there",
        "column",
    ),
    "sums are overwritten before they are added": (
        MATRIX,
        "__syncthreads();  // the sums before are added",
        "// the sums before are added",
        "column",
    ),
    "sums are added before they are there": (
        MATRIX,
        "      __syncthreads();\n      const u32 chunks",
        "      const u32 chunks",
        "column",
    ),
    "a slot of many rows is filled again too early": (
        MATRIX,
        "__syncthreads();  // all copies are there",
        "// all copies are there",
        "column",
    ),
    "lanes part": (
        MATRIX,
        "    add_step(sums, a, b);",
        "    if (threadIdx.x % 32 != 5) add_step(sums, a, b);",
        "lanes of a warp part",
    ),
    "infinities are not made again": (
        MATRIX,
        "else return row < p.M && n < p.N;",
        "else return false;",
        "column",
    ),
    "results that are none are made again": (
        MATRIX,
        "else return row < p.M && n < p.N;",
        "else return true;",
        "a read outside the operands",
    ),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_caught(fault, tmp_path):
    file, text, changed, said = PLANTED[fault]
    shaders = planted(file, text, changed, tmp_path / "shaders")
    done = ran(program("f32", "WeightF16", tmp_path, True, shaders))
    assert done.returncode == 1 and said in done.stdout, done.stdout
