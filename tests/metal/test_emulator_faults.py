"""The nets themselves: every class of kernel fault once, and the source that the lint refuses."""

import re

import numpy as np
import pytest
from emulator import MetalError

pytestmark = pytest.mark.metal

STD = "#include <metal_stdlib>\nusing namespace metal;\n"
HEAD = (
    STD
    + """#line 1 "faulty.metal"
kernel void k(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
              constant uint& n [[buffer(2)]], threadgroup float* s [[threadgroup(0)]],
              uint lid [[thread_position_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
              uint g [[threadgroup_position_in_grid]]) {
"""
)
FENCE = "threadgroup_barrier(mem_flags::mem_threadgroup);"
AT = r"faulty\.metal:\d+"
FAULTS = {
    "barrier in divergent code": (
        f"if (lid < 16) {FENCE}\ny[lid] = x[lid];",
        rf"divergence: .*not reached by every thread .*{AT}",
    ),
    "two different barriers": (
        f"if (lid < 16) {FENCE}\nelse {FENCE}\ny[lid] = x[lid];",
        rf"divergence: .*different threadgroup_barriers .*{AT}",
    ),
    "simd operation in divergent code": (
        f"float v = x[lid];\nif (lane < 7) v = simd_sum(v);\n{FENCE}\ny[lid] = v;",
        rf"divergence: .*{AT}",
    ),
    "different simd operations": (
        "float v = x[lid];\nif (lane < 7) v = simd_sum(v);\nelse v = simd_max(v);\ny[lid] = v;",
        rf"divergence: .*different simdgroup operations .*{AT}",
    ),
    "barrier without the memory flag": (
        "s[lid] = x[lid];\nthreadgroup_barrier(mem_flags::mem_none);\ny[lid] = s[31 - lid % 32];",
        rf"race: .*{AT}: .*threadgroup memory",
    ),
    "no barrier at all": (
        "s[lid] = x[lid];\ny[g * n + lid] = s[31 - lid % 32];",
        rf"race: .*{AT}: .*threadgroup memory",
    ),
    "two groups write one address": (
        "y[lid] = x[lid];",
        rf"race: .*{AT}: .*another threadgroup",
    ),
    "read of unwritten threadgroup memory": (
        f"if (lid == 0) s[0] = x[0];\n{FENCE}\nif (g == 0) y[lid] = s[lid & 1];",
        rf"uninitialised: .*{AT}",
    ),
    "threadgroup memory past its end": (
        "s[32 + lid] = x[lid];\ny[g * n + lid] = x[lid];",
        rf"out-of-bounds: .*{AT}: threadgroup memory",
    ),
    "misaligned vector load": (
        "float4 v = *(device const float4*)(x + (lid & 1));\n"
        "y[g * n + lid] = v.x + v.y + v.z + v.w;",
        rf"misaligned: .*{AT}",
    ),
    "write past a buffer": (
        "y[g * n + lid + 1] = x[g * n + lid];",
        rf"out-of-bounds: .*{AT}: write outside",
    ),
    "read past a buffer": (
        "y[g * n + lid] = x[g * n + lid + 1];",
        rf"out-of-bounds: .*{AT}: read outside",
    ),
    "write through a const argument": (
        "((device float*)x)[g * n + lid] = 1.0f;",
        rf"read-only: .*{AT}",
    ),
}


@pytest.mark.parametrize("seed", [1, 2, 5])
@pytest.mark.parametrize("name", FAULTS)
def test_a_kernel_fault_is_named(emu, run, name, seed):
    body, want = FAULTS[name]
    emu.mode(check=True, seed=seed)
    x, y = np.arange(4 * 32, dtype=np.float32), np.zeros(4 * 32, np.float32)
    n = np.uint32(32).tobytes()
    run(HEAD + body + "\n}\n").dispatch("k", [x, y, n], 4, 32, memory=128)
    found = emu.taken()
    assert re.search(want, found), found


@pytest.mark.parametrize(
    ("name", "kernel", "macro"),
    [
        ("matmul", "matmul_tiled", "FAULT_NO_SECOND_BARRIER"),
        ("softmax", "softmax_row", "FAULT_NO_BARRIER"),
    ],
)
def test_a_removed_barrier_is_named_with_its_line(emu, run, sample, name, kernel, macro):
    emu.mode(check=True)
    text = f'#define {macro}\n#line 1 "{name}.metal"\n' + sample(name)
    a = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    out = np.zeros_like(a)
    if name == "matmul":
        p = np.array([64, 64, 64, np.float32(1).view(np.uint32)], np.uint32).tobytes()
        run(text).dispatch(kernel, [a, a, out, p], (4, 4, 1), (16, 16, 1))
    else:
        run(text).dispatch(kernel, [a, out, np.uint32(1024).tobytes()], 4, 256, memory=128)
    found = emu.taken()
    where = (
        rf"race: kernel '{kernel}', group \d+, thread \d+, {name}\.metal:\d+: .*threadgroup memory"
    )
    assert re.search(where, found), found


def test_a_removed_barrier_changes_numbers(emu, run, sample):
    a = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    out = np.zeros_like(a)
    p = np.array([64, 64, 64, np.float32(1).view(np.uint32)], np.uint32).tobytes()
    r = run("#define FAULT_NO_SECOND_BARRIER\n" + sample("matmul"))
    r.dispatch("matmul_tiled", [a, a, out, p], (4, 4, 1), (16, 16, 1))
    assert np.abs(out - a @ a).max() > 1


@pytest.mark.parametrize(
    ("family", "call", "named"),
    [
        (5, "simd_sum(v)", True),
        (5, "simd_shuffle_xor(v, 1)", True),
        (6, "simd_shuffle_xor(v, 1)", False),
        (6, "simd_max(v)", True),
        (7, "simd_sum(v)", False),
    ],
)
def test_simd_operations_need_their_family(emu, run, family, call, named):
    emu.mode(family=family)
    source = HEAD + f"float v = x[lid];\nv = {call};\nif (g == 0) y[lid] = v;\n}}\n"
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run(source).dispatch("k", [x, y, np.uint32(32).tobytes()], 1, 32, memory=128)
    found = emu.taken()
    assert bool(re.search(rf"family: kernel 'k', {AT}", found)) == named, found


def test_too_deep_a_stack_is_named(emu, run):
    source = HEAD + (
        "float t[20000];\nfor (uint i = 0; i < 20000; ++i) t[i] = x[(i + lid) % n];\n"
        "float a = 0;\nfor (uint i = 0; i < 20000; i += 7) a += t[(i * 31) % 20000];\n"
        "y[g * n + lid] = a;\n}\n"
    )
    x, y = np.arange(32, dtype=np.float32), np.zeros(32, np.float32)
    run(source).dispatch("k", [x, y, np.uint32(32).tobytes()], 1, 32, memory=128)
    assert "stack: kernel 'k' needs more" in emu.taken()


def test_too_much_threadgroup_memory_is_named(child):
    source = STD + (
        "kernel void k(device float* y [[buffer(0)]], uint i [[thread_position_in_grid]]) {\n"
        "threadgroup float t[9000];\nt[i] = 1;\ny[i] = t[i];\n}\n"
    )
    r = child(
        f"with emu.pool(): Run(emu, {source!r}).dispatch('k', [np.zeros(32, np.float32)], 1, 32)"
    )
    assert r.returncode != 0
    assert "threadgroup-memory: kernel 'k' needs 36000 bytes" in r.stderr


BODY = {
    "device pointer to threadgroup pointer": (
        "threadgroup float* t = x; y[0] = t[0];",
        "cannot initialize.*threadgroup float|address space",
    ),
    "device pointer to thread pointer": (
        "thread float* t = (thread float*)0; t = x; y[0] = t[0];",
        "address space|incompatible",
    ),
    "constant pointer to device pointer": (
        "device const uint* t = &n; y[0] = t[0];",
        "address space|cannot init",
    ),
    "write to constant": ("n = 3;", "const"),
    "double": ("double d = x[0]; y[0] = d;", "not available in MSL"),
    "std": ("y[0] = std::sqrt(x[0]);", "not available in MSL"),
    "goto": ("goto out; out: y[0] = 1;", "not available in MSL"),
    "new": ("thread float* t = new float; y[0] = *t;", "not available in MSL"),
    "vector size": ("float4 v = float4(x[0], x[1]); y[0] = v.x;", "wrong number of components"),
    "implicit half4 to float4": (
        "half4 h = half4(1.0h); float4 f = h; y[0] = f.x;",
        "cannot initialize|incompatible",
    ),
    "unknown function": ("y[0] = simd_summ(x[0]);", "undeclared identifier"),
    "variable length array": ("float t[n]; t[0] = x[0]; y[0] = t[0];", "variable length array"),
    "threadgroup initializer": (
        "threadgroup float t = 1.0f; y[0] = t;",
        "cannot have an initializer",
    ),
    "as_type of another size": ("y[0] = as_type<float>(ushort(1));", "different sizes"),
}


@pytest.mark.parametrize("name", BODY)
def test_the_lint_refuses(emu, run, name):
    body, want = BODY[name]
    source = STD + (
        '#line 1 "bad.metal"\nkernel void k(device float* x [[buffer(0)]],'
        " device float* y [[buffer(1)]], constant uint& n [[buffer(2)]]) {\n" + body + "\n}\n"
    )
    with pytest.raises(MetalError) as e:
        run(source)
    assert re.search(want, str(e.value)) and "bad.metal:" in str(e.value), e.value


KERNELS = {
    "two arguments at one index": (
        "kernel void k(device float* x [[buffer(0)]], device float* y [[buffer(0)]]) {}",
        "used twice",
    ),
    "index past the last": ("kernel void k(device float* x [[buffer(31)]]) {}", "end at 30"),
    "a buffer in no space": (
        "kernel void k(float* x [[buffer(0)]]) {}",
        "needs device or constant",
    ),
    "unknown attribute": (
        "kernel void k(device float* x [[buffer(0)]], uint i [[thread_position]]) {}",
        "is not known",
    ),
    "a helper's pointer without space": (
        "static float f(const float* p) { return *p; }\n"
        "kernel void k(device float* x [[buffer(0)]]) { x[0] = 1; }",
        "names no address space",
    ),
    "a helper given another space": (
        "static float f(threadgroup const float* p) { return *p; }\n"
        "kernel void k(device float* x [[buffer(0)]]) { x[0] = f(x); }",
        "no matching function|address space",
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_translator_refuses(emu, run, name):
    text, want = KERNELS[name]
    with pytest.raises(MetalError, match=want) as e:
        run(STD + '#line 1 "bad.metal"\n' + text + "\n")
    assert e.value.domain == "MTLLibraryErrorDomain" and e.value.code == 3
