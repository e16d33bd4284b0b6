"""The kernels as the build makes them: CUDA texts, PTX and machine code, kept in the build tree.

NVRTC_DIR names a folder that holds NVRTC, in place of the installed package; ACCEL_TEST_CUDA=1
makes its absence an error.
"""

import os
import re
import struct
import sys
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
import cuda_shaders
import ptx_waits  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]
CXX = os.environ.get("CXX", "c++")
CACHE = ROOT / "build" / "cuda_cache"  # that of the builds
FOLDER = os.environ.get("NVRTC_DIR")
NVRTC = cuda_shaders.nvrtc_below(Path(FOLDER)) if FOLDER else cuda_shaders.find_nvrtc()
if os.environ.get("ACCEL_TEST_CUDA") == "1" and not NVRTC:
    raise RuntimeError(f"ACCEL_TEST_CUDA=1: the tests of CUDA need {cuda_shaders.PACKAGE}")

needs_nvrtc = pytest.mark.skipif(
    not NVRTC, reason=f"NVRTC makes the kernels: package {cuda_shaders.PACKAGE}"
)


class Kernel(NamedTuple):
    file: str
    ptx: str
    places: list[int]
    params: int  # bytes of the struct, 0 for none
    threads: int  # of a group, at most
    early: list[int]  # the places whose memory it reads before it waits for earlier grids


@cache
def texts() -> list:
    return cuda_shaders.texts(CXX)


@cache
def made(architecture: str, what: str = "PTX") -> dict[str, bytes]:
    """{file: PTX or CUBIN} for an architecture."""
    jobs = [cuda_shaders.Job(NVRTC, n, text, architecture, what) for n, text, _ in texts()]
    results = cuda_shaders.compiled(jobs, CACHE, os.cpu_count() or 1)
    return {job.name: result for job, result in zip(jobs, results, strict=True)}


@cache
def table(architecture: str = cuda_shaders.ARCHITECTURE) -> dict[str, Kernel]:
    """{function: its kernel}, as the build embeds them."""
    out = {}
    for name, _, listed in texts():
        code = made(architecture)[name].rstrip(b"\0").decode()
        for function, ptx in cuda_shaders.split(name, code).items():
            threads = int(re.search(r"^\.maxntid (\d+)", ptx, re.M)[1])
            size = cuda_shaders.params_bytes(function, ptx)
            assert function not in out
            places = listed[function]
            early = cuda_shaders.early_places(name, function, ptx, places)
            out[function] = Kernel(name, ptx, places, size, threads, early)
    return out


class Code(NamedTuple):
    registers: int
    frame: int  # bytes of local memory
    shared: int


def code_of(cubin: bytes) -> dict[str, Code]:
    """{function: what its machine code uses}: an ELF of 64 bits with NVIDIA's own sections."""
    at, size, count, names_index = struct.unpack_from("<Q10xHHH", cubin, 0x28)
    headers = [struct.unpack_from("<IIQQQQII", cubin, at + i * size) for i in range(count)]

    def text(table: int, offset: int) -> str:
        begin = headers[table][4] + offset
        return cubin[begin : cubin.index(b"\0", begin)].decode()

    sections = {text(names_index, h[0]): h for h in headers}
    symbols = sections[".symtab"]
    shared = {n[11:]: h[5] for n, h in sections.items() if n.startswith(".nv.shared.")}
    out, info = {}, sections[".nv.info"]
    at, end = info[4], info[4] + info[5]
    facts: dict[str, dict[int, int]] = {}
    while at < end:  # format, attribute and, of format 4, the size of what follows
        form, attribute, n = struct.unpack_from("<BBH", cubin, at)
        at += 4
        if form != 4:
            continue
        if n == 8:
            symbol, value = struct.unpack_from("<II", cubin, at)
            name = text(symbols[6], struct.unpack_from("<I", cubin, symbols[4] + 24 * symbol)[0])
            facts.setdefault(name, {})[attribute] = value
        at += n
    for name, own in facts.items():
        if 0x2F in own:  # the others are parts of them
            out[name] = Code(own[0x2F], own[0x11], shared.get(name, 0))
    return out
