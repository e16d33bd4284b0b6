#!/usr/bin/env python3
"""Write shaders/*.metal, translated to CUDA C++, and shaders/cuda/*.cu as PTX in C++ data.

    cuda_shaders.py --out <file.inc> [--nvrtc <folder>] [--cxx <compiler>] [--cache <folder>]
    cuda_shaders.py --texts <folder>          the CUDA texts as files, for a compiler

NVRTC is a library of the package named below: it needs no GPU and no toolkit. Without it the data
say why there are no kernels, and the build goes on.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import hashlib
import importlib.util
import os
import re
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import embed_shaders
import ptx_waits

sys.path.insert(0, str(Path(__file__).resolve().parent / "mslc"))
import to_cuda  # noqa: E402

PACKAGE = "nvidia-cuda-nvrtc-cu12"
LIBRARIES = ("cuda_nvrtc/lib/libnvrtc.so.12", "cu13/lib/libnvrtc.so.13")  # below the folder nvidia
ARCHITECTURE = "compute_80"
OPTIONS = (
    *("--std=c++17", "--device-as-default-execution-space", "--fmad=false", "--ftz=false"),
    *("--prec-div=true", "--prec-sqrt=true"),
    "--diag-suppress=128,177",  # what a constant condition leaves out; functions of a header
)
METAL_ALONE = ("matmul_simdgroup.metal",)
STRUCT = re.compile(r"\.param \.align \d+ \.b8 \w+\[(\d+)\]")
# Memory of a group whose size a launch gives is declared outside the functions.
HEAD = re.compile(
    r"\.version \d+\.\d+\n\.target \w+\n\.address_size 64\n"
    r"(\.extern \.shared \.align \d+ \.b8 \w+\[\];\n)*"
)
HINT = re.compile(r'^\.pragma "used_bytes_mask [^"]*";\n', re.M)  # for tools; of a later version
GIVEN = re.compile(r"\.extern \.shared .* (\w+)\[\];\n")
# The first version of PTX that knows sm_80, read by every driver since that of CUDA 11.0, and the
# words of its instructions; text with other words keeps the version that NVRTC wrote.
LOWEST_PTX = "7.0"
WORDS = """
abs add and atom bar bfe bfi bra clz cp cvt cvta div fma ld ldmatrix lop3 mad max min mma mov mul
neg not or popc prmt rcp rem ret selp setp shfl shl shr sqrt st sub xor
f16 f16x2 bf16 bf16x2 tf32 f32 f64 s8 s16 s32 s64 u8 u16 u32 u64 b8 b16 b32 b64 pred
eq ne lt le gt ge ltu leu gtu geu equ neu num nan lo hi wide rn rz rni rzi rmi rpi sat
global shared param const local nc volatile to v2 v4 uni sync warp bfly idx up down exch cas
vote all ballot
async ca cg wait_group wait_all commit_group aligned row col m8n8 x1 x2 x4 trans
m16n8k4 m16n8k8 m16n8k16 m16n8k32
"""


class Refused(Exception):
    """A text that NVRTC does not take, with its log."""


def find_nvrtc() -> Path | None:
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations or [] if spec else []:
        for name in LIBRARIES:
            if (Path(folder) / name).is_file():
                return Path(folder) / name
    return None


def nvrtc_below(folder: Path) -> Path | None:
    found = [p for p in sorted(folder.rglob("libnvrtc.so.*")) if ".alt" not in p.name]
    return found[-1] if found else None


class Nvrtc:
    def __init__(self, path: Path):
        self.lib = ctypes.CDLL(str(path))
        self.lib.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *values) -> None:
        code = getattr(self.lib, f"nvrtc{name}")(*values)
        if code:
            raise Refused(f"nvrtc{name}: {self.lib.nvrtcGetErrorString(code).decode()}")

    def version(self) -> str:
        major, minor = ctypes.c_int(), ctypes.c_int()
        self.call("Version", ctypes.byref(major), ctypes.byref(minor))
        return f"{major.value}.{minor.value}"

    def output(self, program, what: str) -> bytes:
        size = ctypes.c_size_t()
        self.call(f"Get{what}Size", program, ctypes.byref(size))
        text = ctypes.create_string_buffer(size.value)
        self.call(f"Get{what}", program, text)
        return text.raw

    def compile(self, name: str, text: str, architecture: str, what: str = "PTX") -> bytes:
        """The PTX, or with what="CUBIN" the machine code."""
        program = ctypes.c_void_p()
        source = text.encode()
        self.call("CreateProgram", ctypes.byref(program), source, name.encode(), 0, None, None)
        try:
            options = [o.encode() for o in (f"--gpu-architecture={architecture}", *OPTIONS)]
            listed = (ctypes.c_char_p * len(options))(*options)
            try:
                self.call("CompileProgram", program, len(options), listed)
            except Refused as error:
                log = self.output(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
                raise Refused(f"{name}: {error}\n{log}") from None
            return self.output(program, what)
        finally:
            self.lib.nvrtcDestroyProgram(ctypes.byref(program))


def texts(cxx: str) -> list[tuple[str, str, dict[str, list[int]]]]:
    """Name, CUDA text and functions with their places of every shader file."""
    head = "\n".join(embed_shaders.flatten("cuda/msl.h", set())) + "\n"
    out = []
    own = sorted((embed_shaders.ROOT / "cuda").glob("*.cu"))
    for name, text in embed_shaders.flattened():
        if name not in METAL_ALONE:
            code, places = to_cuda.translate(name, text, cxx)
            out.append((name, head + code, places))
    for path in own:
        name = f"cuda/{path.name}"
        text = head + "\n".join(embed_shaders.flatten(name, set())) + "\n"
        out.append((name, text, to_cuda.places_of(text, cxx)))
    return out


class Job(NamedTuple):
    """One text to be compiled, for a virtual architecture to PTX or for a real one to CUBIN."""

    library: Path
    name: str
    text: str
    architecture: str = ARCHITECTURE
    what: str = "PTX"

    def key(self, version: str) -> str:
        parts = (version, self.architecture, self.what, *OPTIONS, self.name, self.text)
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def compile_job(job: Job) -> bytes:
    return Nvrtc(job.library).compile(job.name, job.text, job.architecture, job.what)


def compiled(jobs: list[Job], cache: Path | None, processes: int) -> list[bytes]:
    """What NVRTC makes of each, out of the cache where it is there; the longest are begun first."""
    version = Nvrtc(jobs[0].library).version()
    out = {}
    if cache:
        cache.mkdir(parents=True, exist_ok=True)
        for i, job in enumerate(jobs):
            if (kept := cache / job.key(version)).is_file():
                out[i] = kept.read_bytes()
                kept.touch()
    todo = [i for i in range(len(jobs)) if i not in out]
    todo.sort(key=lambda i: -jobs[i].text.count("__launch_bounds__") * len(jobs[i].text))
    if todo:
        with ProcessPoolExecutor(min(processes, len(todo)), get_context("spawn")) as pool:
            for i, made in zip(todo, pool.map(compile_job, [jobs[i] for i in todo]), strict=True):
                out[i] = made
                if cache:
                    keep(cache / jobs[i].key(version), made)
    if cache:
        forget(cache)
    return [out[i] for i in range(len(jobs))]


def keep(path: Path, content: bytes) -> None:
    beside = path.with_suffix(f".{os.getpid()}")
    beside.write_bytes(content)
    beside.replace(path)


def forget(cache: Path) -> None:
    """What was not used for a week goes."""
    for path in cache.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another build's turn
            if path.stat().st_mtime < time.time() - 7 * 86400:
                path.unlink()


def lowered(ptx: str) -> str:
    """The text under the lowest version that has its words."""
    ptx = HINT.sub("", ptx)
    known = set(WORDS.split())
    used = re.findall(r"^(?:@!?%p\d+ )?([a-z][\w.:]*)", ptx, re.M)
    if not {word for instruction in used for word in instruction.split(".")} <= known:
        return ptx
    return re.sub(r"^\.version .*$", f".version {LOWEST_PTX}", ptx, count=1, flags=re.M)


def split(name: str, ptx: str) -> dict[str, str]:
    """{function: PTX of it alone}, so that a driver compiles what a plan uses and no more. Of its
    comments only those stay that say where it waits."""
    lines = (line.strip() for line in ptx.splitlines())
    lines = (line if line in ptx_waits.SEEN else line.split("//")[0].strip() for line in lines)
    head, *entries = "".join(f"{line}\n" for line in lines if line).split(".visible .entry ")
    if not HEAD.fullmatch(head) or any(e[e.rindex("\n}\n") + 3 :] for e in entries):
        raise SystemExit(f"{name}: the PTX has something outside its functions")
    out = {}
    for e in entries:
        own = GIVEN.sub(lambda m, e=e: m[0] if re.search(rf"\b{m[1]}\b", e) else "", head)
        function = e[: e.index("(")]
        try:
            e = ptx_waits.marked(e)
        except ptx_waits.Refused as error:
            raise SystemExit(f"{name}: {function} {error}") from None
        out[function] = lowered(f"{own}.visible .entry {e}")
    return out


def early_places(name: str, function: str, ptx: str, places: list[int]) -> list[int]:
    """The places of operands that a function reads before it waits for earlier grids."""
    try:
        entry = ptx.split(".visible .entry ")[1]
        return sorted(ptx_waits.early_places(function, entry, places))
    except ptx_waits.Refused as error:
        raise SystemExit(f"{name}: {function} {error}") from None


def params_bytes(function: str, ptx: str) -> int:
    """Bytes of the struct of parameters, 0 for none."""
    sizes = [int(size) for size in STRUCT.findall(ptx)]
    if len(sizes) > 1:
        raise SystemExit(f"{function}: {len(sizes)} structs of parameters")
    return sizes[0] if sizes else 0


def embedded(found: list, ptx: list[str], version: str, why: str = "") -> str:
    """The data: a module a function, named by its file."""
    digest = hashlib.sha256(f"accel.cuda.1\n{version} {ARCHITECTURE} {OPTIONS}\n".encode())
    rows = {}
    for (name, text, listed), code in zip(found, ptx, strict=True):
        digest.update(f"{name} {len(text)}\n{text}".encode())
        texts_of = split(name, code)
        if set(texts_of) != set(listed):
            raise SystemExit(f"{name}: the PTX has other functions than the text")
        for function, own in texts_of.items():
            if function in rows:
                raise SystemExit(f"{name}: function {function} stands twice")
            rows[function] = (name, own, listed[function])
    modules, places, functions = [], [], []
    for function, (name, own, listed) in sorted(rows.items()):
        size = params_bytes(function, own)
        early = sum(1 << place for place in early_places(name, function, own, listed))
        numbers = ", ".join(map(str, (len(modules), len(places), len(listed), size, early)))
        functions.append(f'{{"{function}", {numbers}}},')
        modules.append(f'{{"{name}",\n{embed_shaders.quoted(own)}}},')
        places += listed
    return "\n".join(
        [
            "// Written by tools/cuda_shaders.py.",
            "static const CudaModule kModules[] = {",
            *(modules or ['{"", ""},']),
            "};",
            "static const uint8_t kPlaces[] = {" + ", ".join(map(str, places or [0])) + "};",
            "static const CudaFunction kFunctions[] = {",
            *(functions or ['{"", 0, 0, 0, 0, 0},']),
            "};",
            f'static const char kDigest[] = "{digest.hexdigest() if found else ""}";',
            f'static const char kAbsent[] = "{why}";',
            "",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path)
    what.add_argument("--texts", type=Path)
    parser.add_argument("--nvrtc", type=Path, help="a folder that holds NVRTC's library")
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--need", action="store_true", help="fail where NVRTC is not found")
    parser.add_argument("--absent", help="write data without kernels that say why")
    args = parser.parse_args()
    if args.texts:
        for name, text, _ in texts(args.cxx):
            path = args.texts / Path(name).with_suffix(".cu").name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return
    args.out.parent.mkdir(parents=True, exist_ok=True)
    library = nvrtc_below(args.nvrtc) if args.nvrtc else find_nvrtc()
    if args.need and not library:
        raise SystemExit(f"NVRTC was not found: install {PACKAGE}")
    if args.absent or not library:
        why = args.absent or f"this build was made without NVRTC (package {PACKAGE})"
        args.out.write_text(embedded([], [], "", why))
        return
    found = texts(args.cxx)
    try:
        made = compiled(
            [Job(library, name, text) for name, text, _ in found], args.cache, args.jobs
        )
    except Refused as error:
        raise SystemExit(str(error)) from None
    ptx = [text.rstrip(b"\0").decode() for text in made]
    args.out.write_text(embedded(found, ptx, Nvrtc(library).version()))


if __name__ == "__main__":
    main()
