"""The nets over the project's own shaders: a fault put into a text is named with the line of it."""

import re
from functools import cache

import accel
import pytest
from accel import _core
from conftest import METAL
from driver import library
from runner import run
from test_check_mode import OPS, chosen, embed_shaders

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
WRITTEN = "slots[thread_index] = a;\n      "
ANY_BARRIER = re.compile(r"\b(threadgroup|simdgroup)_barrier\([^;]*\);")
# Text, its operator, the device, what is changed into what, what is reported and where.
PLANTS = {
    "a barrier left out": (
        *("softmax.metal", "softmax", False, BARRIER, ""),
        r"race: kernel 'softmax_long_f\d+', .*softmax\.metal:\d+: .*threadgroup memory",
    ),
    "a barrier left out of what texts share": (
        *("rms_norm.metal", "rms_norm", True, BARRIER, ""),
        r"race: kernel 'rms_norm_f\d+_plain\w*', .*lanes\.h:\d+: .*threadgroup memory",
    ),
    "a barrier for other memory": (
        *("rms_norm.metal", "l2_norm", True, BARRIER, BARRIER.replace("threadgroup)", "device)")),
        r"race: kernel 'l2_norm_f\d+_plain\w*', .*lanes\.h:\d+: .*threadgroup memory",
    ),
    "a value that nobody writes": (
        *("rms_norm.metal", "rms_norm", True, "slots[thread_index] = a;", ""),
        r"uninitialised: kernel 'rms_norm_f\d+_plain\w*', .*lanes\.h:\d+",
    ),
    "an element past the end": (
        *("rms_norm.metal", "l2_norm", False, "widen(x[i])", "widen(x[i + 500])"),
        r"out-of-bounds: kernel 'l2_norm_f\d+', .*rms_norm\.metal:\d+: .* outside",
    ),
    "rows of another group": (
        *("rms_norm.metal", "rms_norm", False, "start = ulong(row)", "start = ulong(row / 2)"),
        r"race: kernel 'rms_norm_f\d+_row', .*rms_norm\.metal:\d+: .*another threadgroup",
    ),
    "a barrier in divergent code": (
        *("rms_norm.metal", "l2_norm", True, WRITTEN + BARRIER),
        WRITTEN + "if (thread_index < 7) " + BARRIER,
        r"divergence: kernel 'l2_norm_f\d+_plain\w*', .*lanes\.h:\d+",
    ),
}


def text_of(file: str) -> str:
    return dict(embed_shaders.flattened())[file]


@pytest.fixture
def lib():
    lib = library()
    lib.metalemu_set_check(1)
    lib.metalemu_clear_faults()
    yield lib
    lib.metalemu_set_check(0)
    lib.metalemu_clear_faults()


def reported(lib, file: str, text: str, rows, want: str) -> str:
    """What check mode reports of the rows of (operator, plain) with this text, until it is what is
    wanted."""
    _core._replace_shader(file, text)
    found = ""
    try:
        for op, plain in rows:
            runtime = accel.Runtime(accel.open_metal(plain=plain))
            for row in chosen(op, "metal_plain" if plain else "metal"):
                r, plan = row.compile(runtime)
                try:
                    run(runtime.device, r, plan)
                except (AssertionError, accel.Error):  # a result that is wrong as well
                    pass
                found = lib.metalemu_fault_text().decode()
                if re.search(want, found):
                    return found
    finally:
        _core._replace_shader(file, "")
    return found


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_in_a_shader_is_named_with_its_line(name, lib):
    file, op, plain, good, bad, want = PLANTS[name]
    text = text_of(file)
    assert good in text
    found = reported(lib, file, text.replace(good, bad), [(op, plain)], want)
    assert re.search(want, found), found[:2000]


@cache
def barriers() -> dict[tuple[str, int], list[tuple[str, int]]]:
    """Every barrier of the shaders by its file and line, with the texts that hold it and where."""
    found = {}
    for text_file, text in embed_shaders.flattened():
        file, number = "", 0
        for at, line in enumerate(text.splitlines()):
            if match := re.match(r'#line (\d+) "([^"]+)"', line):
                file, number = match[2], int(match[1])
                continue
            if ANY_BARRIER.search(line) and not line.lstrip().startswith("//"):
                found.setdefault((file, number), []).append((text_file, at))
            number += 1
    return found


@cache
def operators_of(text_file: str) -> tuple[tuple[str, bool], ...]:
    """Operators and devices whose rows launch a function of a text."""
    mine = set(embed_shaders.functions_of(text_of(text_file), "c++"))
    return tuple(
        (op, family == "metal_plain")
        for op in OPS
        for family in METAL
        if any(mine & row.groups.keys() for row in chosen(op, family))
    )


# Barriers that no row needs, by their number in the file, and what orders the same memory.
SPARE = {
    ("softmax.metal", 7): "between stretches of a row; the row tried first has one",
    ("softmax.metal", 6): "a fold leaves its slots to the next one; behind the last there is none",
    ("attention_rows.metal", 3): "each tile of values has two, and there is always one tile",
    ("attention_rows.metal", 9): "the last tile of values ends with one",
}


@pytest.mark.slow
@pytest.mark.parametrize("place", barriers(), ids=lambda p: f"{p[0]}:{p[1]}")
def test_no_barrier_of_a_shader_can_be_left_out(place, lib):
    found = ""
    for text_file, at in barriers()[place]:
        lines = text_of(text_file).splitlines()
        lines[at] = ANY_BARRIER.sub(";", lines[at])
        text = "\n".join(lines)
        found += reported(lib, text_file, text, operators_of(text_file), "race|uninitialised")
        if found:
            break
    number = 1 + [p for p in barriers() if p[0] == place[0]].index(place)
    assert bool(found) == ((place[0], number) not in SPARE), f"{place}, {number}: {found[:500]}"
