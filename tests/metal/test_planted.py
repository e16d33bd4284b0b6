"""The nets over the project's own shaders: a fault put into a text is named with the line of it."""

import re

import accel
import pytest
from accel import _core
from driver import library
from runner import record, run
from test_check_mode import chosen, embed_shaders
from test_rows import generator

BARRIER = "threadgroup_barrier(mem_flags::mem_threadgroup);"
# Text, its operator, the device, what is changed into what, what is reported and where.
PLANTS = {
    "a barrier left out": (
        *("softmax.metal", "softmax", False, BARRIER, ""),
        r"race: kernel 'softmax_long_f32', .*softmax\.metal:\d+: .*threadgroup memory",
    ),
    "a barrier left out of what texts share": (
        *("rms_norm.metal", "rms_norm", True, BARRIER, ""),
        r"race: kernel 'rms_norm_f32_plain', .*lanes\.h:\d+: .*threadgroup memory",
    ),
    "a barrier for other memory": (
        *("rms_norm.metal", "l2_norm", True, BARRIER, BARRIER.replace("threadgroup)", "device)")),
        r"race: kernel 'l2_norm_f32_plain', .*lanes\.h:\d+: .*threadgroup memory",
    ),
    "a value that nobody writes": (
        *("rms_norm.metal", "rms_norm", True, "slots[thread_index] = a;", ""),
        r"uninitialised: kernel 'rms_norm_f32_plain', .*lanes\.h:\d+",
    ),
    "an element past the end": (
        *("rms_norm.metal", "l2_norm", False, "x[start + i]", "x[start + i + 500]"),
        r"out-of-bounds: kernel 'l2_norm_f32', .*rms_norm\.metal:\d+: .* outside",
    ),
    "rows of another group": (
        *("rms_norm.metal", "rms_norm", False, "group * ROWS_A_GROUP +", "group / 2 +"),
        r"race: kernel 'rms_norm_f32', .*rms_norm\.metal:\d+: .*another threadgroup",
    ),
    "a barrier in divergent code": (
        *("rms_norm.metal", "l2_norm", True, BARRIER, "if (thread_index < 7) " + BARRIER),
        r"divergence: kernel 'l2_norm_f32_plain', .*lanes\.h:\d+",
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


@pytest.mark.parametrize("name", PLANTS)
def test_a_fault_in_a_shader_is_named_with_its_line(name, lib):
    file, op, plain, good, bad, want = PLANTS[name]
    text = text_of(file)
    assert good in text
    _core._replace_shader(file, text.replace(good, bad))
    try:
        runtime = accel.Runtime(accel.open_metal(plain=plain))
        for row in chosen(op, "metal_plain" if plain else "metal"):
            r, plan = row.compile(runtime)
            try:
                run(runtime.device, r, plan)
            except (AssertionError, accel.Error):  # a result that is wrong as well
                pass
        found = lib.metalemu_fault_text().decode()
    finally:
        _core._replace_shader(file, "")
    assert re.search(want, found), found[:2000]
