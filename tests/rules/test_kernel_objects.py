"""Kernel objects are islands: no standard header, no weak symbol, no call out, nothing
approximate, and no instruction of another table's set. Read from the objects of the build tree."""

import re
import subprocess

import pytest
from tree import ROOT, files, name

pytestmark = pytest.mark.rules


KERNELS = "cpp/backends/cpu/kernels"
# Intrinsics only: they define nothing with linkage.
HEADERS = {"immintrin.h", "arm_neon.h"}
# The compiler itself may call these; they allocate nothing and take no lock.
CALLS = {"memcpy", "memset", "memmove", "memcmp", "_GLOBAL_OFFSET_TABLE_", "__stack_chk_fail"}
APPROXIMATE = re.compile(
    r"\bv?(rcp|rsqrt)(14|28)?[ps][sdh]\b|\bvexp2p[sd]\b|\b(frecpe|frsqrte|urecpe|ursqrte)\b"
)
# Flushing subnormals to zero is a bit of this register.
CONTROL = re.compile(r"\bv?ldmxcsr\b|\bmsr\s+fpcr\b")


def objects() -> list[tuple[str, str]]:
    """Instruction set and path of each kernel object of the build tree."""
    found = [
        (re.search(r"accel_kernels_(\w+)\.dir", str(path)).group(1), str(path))
        for path in sorted((ROOT / "build/py").glob("**/accel_kernels_*.dir/**/*.o"))
    ]
    assert found, "build/py holds no kernel object: run make build"
    return found


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def code() -> dict[str, str]:
    texts: dict[str, str] = {}
    for isa, path in objects():
        texts[isa] = texts.get(isa, "") + output("objdump", "-d", "--no-show-raw-insn", path)
    return texts


def weak_symbols(nm: str) -> list[str]:
    return [line for line in nm.splitlines() if re.search(r"\s[wWvVu]\s", line)]


def calls(nm: str) -> set[str]:
    """What an object takes from others; a table names the lists of its own kernel files."""
    named = {m.group(1).split("@")[0] for m in re.finditer(r"\sU\s+(\S+)", nm)}
    return {name for name in named if not name.startswith("accel_kernels_")}


def test_kernel_sources_include_no_standard_header():
    for path in files(".h", ".inl", ".cc", ".inc", under=KERNELS):
        for included in re.findall(r"^\s*#\s*include\s+<([^>]+)>", path.read_text(), re.M):
            assert included in HEADERS, f"{name(path)} includes <{included}>"


def test_kernel_objects_have_no_weak_symbol():
    for isa, path in objects():
        assert not weak_symbols(output("nm", path)), isa


def test_kernel_objects_call_nothing():
    for isa, path in objects():
        assert calls(output("nm", path)) <= CALLS, isa


def test_kernel_objects_export_one_table():
    for isa, path in objects():
        exported = re.findall(r"\s[TDBRG]\s+(\S+)", output("nm", path))
        assert len(exported) == 1, f"{isa}: {exported}"


def test_p26_39_kernel_objects_hold_nothing_approximate(code):
    for isa, text in code.items():
        assert not APPROXIMATE.findall(text), isa
        assert not CONTROL.findall(text), isa


def test_kernel_objects_keep_to_their_instruction_set(code):
    if "avx2" not in code:
        return  # not an x86 machine
    assert not re.search(r"%[yz]mm|%k[1-7]\b", code["base"])
    assert not re.search(r"\bvf(n)?m(add|sub)", code["base"]), "base has no fused multiply-add"
    assert not re.search(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[1-7]\b", code["avx2"])
    assert "%zmm" in code["avx512"]


@pytest.mark.parametrize(
    "line",
    [
        "vrsqrt14ps %zmm0,%zmm1",
        "rcpps %xmm0,%xmm1",
        "vrcpps %ymm0,%ymm1",
        "rsqrtss %xmm0,%xmm1",
        "frsqrte v0.4s, v1.4s",
    ],
)
def test_an_approximate_instruction_is_found(line):
    assert APPROXIMATE.search(line)


def test_a_weak_symbol_and_a_call_are_found():
    assert weak_symbols("0000000000000000 W _ZSt3maxIfERKT_S2_S2_")
    assert calls("                 U malloc\n0000 t f") == {"malloc"}
