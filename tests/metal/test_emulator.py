"""Numbers of the sample shaders, in every mode of the emulated device, against NumPy."""

import numpy as np
import pytest

pytestmark = pytest.mark.metal

MODES = [{"seed": 1}, {"seed": 2}, {"seed": 7}, {"check": True}, {"check": True, "seed": 3}]
modes = pytest.mark.parametrize("mode", MODES, ids=str)
HEAD = "#include <metal_stdlib>\nusing namespace metal;\n"


def words(*values):
    return np.array(
        [np.float32(v).view(np.uint32) if isinstance(v, float) else v for v in values], np.uint32
    ).tobytes()


def bf16(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def wide(x):
    return (x.astype(np.uint32) << 16).view(np.float32)


@modes
@pytest.mark.parametrize(
    ("file", "kernel"), [("matmul", "matmul_tiled"), ("matmul_simdgroup", "matmul_sg")]
)
@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 64), (33, 17, 45), (1, 70, 5)])
def test_matmul(emu, run, sample, file, kernel, m, n, k, mode):
    emu.mode(**mode)
    r = np.random.default_rng(m)
    a, b = r.standard_normal((m, k), np.float32), r.standard_normal((k, n), np.float32)
    c = np.zeros((m, n), np.float32)
    groups = (-(-n // 16), -(-m // 16), 1)
    run(sample(file)).dispatch(kernel, [a, b, c, words(m, n, k, 1.5)], groups, (16, 16, 1))
    # 2 * gamma(k + 2) of a sum of |a b|, times alpha.
    bound = (k + 2) * 2.0**-23 * 1.5 * (np.abs(a).astype(np.float64) @ np.abs(b))
    assert (np.abs(c - 1.5 * (a.astype(np.float64) @ b)) <= bound).all()


@modes
@pytest.mark.parametrize(("n", "threads"), [(1024, 256), (1000, 96), (7, 32), (1024, 1024)])
def test_softmax(emu, run, sample, n, threads, mode):
    emu.mode(**mode)
    x = np.random.default_rng(n).standard_normal((8, n), np.float32) * 3
    y = np.zeros_like(x)
    run(sample("softmax")).dispatch("softmax_row", [x, y, words(n)], 8, threads, memory=128)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    want = e / e.sum(1, keepdims=True)
    # x - max is exact to half an ulp of at most 32, exp to 2 ulp, then a sum of n and a product.
    assert (np.abs(y - want) <= want * (32 + 2 + n / threads + 12) * 2.0**-23 + 2.0**-126).all()


@modes
@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("relu", [False, True, None])
def test_four_bit_matvec(emu, run, sample, dtype, relu, mode):
    emu.mode(**mode)
    rows, k = 37, 512
    r = np.random.default_rng(3)
    q = r.integers(0, 16, (rows, k)).astype(np.uint32)
    w = np.zeros((rows, k // 8), np.uint32)
    for i in range(8):
        w |= q[:, i::8] << np.uint32(4 * i)
    s = (r.standard_normal((rows, k // 32)) * 0.1).astype(np.float16)
    x = r.standard_normal(k).astype(np.float32)
    stored = {"f32": x, "f16": x.astype(np.float16), "bf16": bf16(x)}[dtype]
    value = wide(stored) if dtype == "bf16" else stored.astype(np.float32)
    y = np.zeros(rows, np.float32)
    constants = None if relu is None else {0: relu}
    run(sample("qgemv")).dispatch(
        f"qgemv_{dtype}",
        [w, s, stored, y, words(rows, k)],
        -(-rows // 8),
        (32, 2, 1),
        constants or {},
    )
    terms = (q.astype(np.float64) - 8) * np.repeat(s.astype(np.float64), 32, 1) * value
    want = np.maximum(terms.sum(1), 0) if relu else terms.sum(1)
    assert (np.abs(y - want) <= (k + 8) * 2.0**-23 * np.abs(terms).sum(1)).all()


@modes
def test_atomics_and_simd_functions(emu, run, mode):
    """32 lanes of 4 groups count at one address; one group writes what its simd functions gave."""
    emu.mode(**mode)
    source = (
        HEAD
        + """
kernel void k(device const float* x [[buffer(0)]], device float* y [[buffer(1)]],
              device atomic_uint* count [[buffer(2)]], uint lid [[thread_position_in_threadgroup]],
              uint lane [[thread_index_in_simdgroup]], uint g [[threadgroup_position_in_grid]]) {
  atomic_fetch_add_explicit(count, 1u, memory_order_relaxed);
  float a = simd_shuffle_xor(x[lid], 1) + simd_broadcast(x[lid], 5) +
            simd_prefix_exclusive_sum(1.0f);
  float b = simd_max(a) - simd_min(a) + simd_shuffle_down(a, 1) +
            (simd_any(lane == 3) ? 100.0f : 0.0f);
  if (g == 1) y[lid] = b;
}
"""
    )
    x, y, count = np.arange(32, dtype=np.float32), np.zeros(32, np.float32), np.zeros(1, np.uint32)
    run(source).dispatch("k", [x, y, count], 4, 32)
    i = np.arange(32)
    a = x[i ^ 1] + 5 + i
    assert count[0] == 128
    np.testing.assert_array_equal(y, a.max() - a.min() + np.append(a[1:], a[-1]) + 100)


TYPES = {
    "float": np.float32,
    "half": np.float16,
    "ushort": np.uint16,
    "uint": np.uint32,
    "int": np.int32,
    "uchar": np.uint8,
    "char": np.int8,
    "ulong": np.uint64,
}


@modes
@pytest.mark.parametrize("name", TYPES)
def test_every_type_of_buffer_binds(emu, run, name, mode):
    emu.mode(**mode)
    source = (
        HEAD
        + f"""
struct Params {{ uint n; float scale; int bias; uint pad; }};
kernel void k(device const {name}* x [[buffer(0)]], device {name}* y [[buffer(1)]],
              constant Params& p [[buffer(2)]], constant {name}* c [[buffer(3)]],
              uint i [[thread_position_in_grid]]) {{
  if (i < p.n) y[i] = x[i] + c[i % 2] + {name}(p.bias);
}}
"""
    )
    dtype = TYPES[name]
    x, y = np.arange(60).astype(dtype), np.zeros(60, dtype)
    run(source).dispatch("k", [x, y, words(60, 2.0, 3, 0), np.array([1, 2], dtype)], 2, 32)
    np.testing.assert_array_equal(y, x + np.resize(np.array([1, 2], dtype), 60) + dtype(3))


def test_31_buffers(emu, run):
    n = 31
    inputs = ", ".join(f"device const uint* a{i} [[buffer({i})]]" for i in range(n - 1))
    total = " + ".join(f"a{i}[t]" for i in range(n - 1))
    source = (
        HEAD
        + f"""
kernel void k({inputs}, device uint* out [[buffer(30)]], uint t [[thread_position_in_grid]]) {{
  out[t] = {total};
}}
"""
    )
    arrays = [np.arange(32, dtype=np.uint32) * i for i in range(n - 1)]
    out = np.zeros(32, np.uint32)
    run(source).dispatch("k", [*arrays, out], 1, 32)
    np.testing.assert_array_equal(out, sum(arrays))


@modes
def test_positions(emu, run, mode):
    """What a thread knows of itself, in a grid that cuts its last groups."""
    emu.mode(**mode)
    source = (
        HEAD
        + """
kernel void k(device uint* out [[buffer(0)]], uint3 at [[thread_position_in_grid]],
              uint3 all [[threads_per_grid]], uint3 in [[thread_position_in_threadgroup]],
              uint3 size [[threads_per_threadgroup]], uint3 group [[threadgroup_position_in_grid]],
              uint index [[thread_index_in_threadgroup]], uint lane [[thread_index_in_simdgroup]],
              uint sg [[simdgroup_index_in_threadgroup]]) {
  device uint* o = out + ((at.z * all.y + at.y) * all.x + at.x) * 4;
  o[0] = at.x == group.x * 5 + in.x && at.y == group.y * 3 + in.y && at.z == group.z;
  o[1] = index == in.y * size.x + in.x;
  o[2] = index == sg * 32 + lane;
  o[3] = size.x * 100 + size.y;
}
"""
    )
    r = run(source)
    out = r.buffer(12 * 7 * 2 * 16)
    c = r.commands()
    with c.compute() as e:
        e.send("setComputePipelineState:", emu.pointer(r.pipeline("k")))
        e.send("setBuffer:offset:atIndex:", emu.pointer(out), 0, 0)
        size = emu.size
        e.send("dispatchThreads:threadsPerThreadgroup:", size(12, 7, 2), size(5, 3, 1))
    c.finish()
    got = emu.contents(out, np.uint32).reshape(2, 7, 12, 4)
    assert (got[..., :3] == 1).all()
    assert got[0, 0, 0, 3] == 503 and got[1, 6, 11, 3] == 201


def test_function_constants_and_macros(emu, run):
    source = (
        HEAD
        + """
constant int step_given [[function_constant(0)]];
constant int step = is_function_constant_defined(step_given) ? step_given : 7;
kernel void k(device int* out [[buffer(0)]], uint i [[thread_position_in_grid]]) {
  out[i] = step * int(i);
}
"""
    )
    out = np.zeros(8, np.int32)
    r = run(source)
    r.dispatch("k", [out], 1, 8, constants={0: 3})
    assert out[7] == 21
    r.dispatch("k", [out], 1, 8, constants={})
    assert out[7] == 49


def test_half_and_bfloat_round_after_each_operation(emu, run):
    source = (
        HEAD
        + """
kernel void k(device const half* a [[buffer(0)]], device const half* b [[buffer(1)]],
              device half* h [[buffer(2)]], device bfloat* f [[buffer(3)]],
              uint i [[thread_position_in_grid]]) {
  h[i] = a[i] * b[i] + a[i];
  f[i] = bfloat(float(a[i])) * bfloat(float(b[i])) + bfloat(float(a[i]));
}
"""
    )
    r = np.random.default_rng(5)
    a, b = (r.standard_normal(256).astype(np.float16) for _ in range(2))
    h, f = np.zeros(256, np.float16), np.zeros(256, np.uint16)
    run(source).dispatch("k", [a, b, h, f], 1, 256)
    np.testing.assert_array_equal(h, (a * b).astype(np.float16) + a)
    wa, wb = wide(bf16(a)), wide(bf16(b))
    np.testing.assert_array_equal(f, bf16(wide(bf16(wa * wb)) + wa))


def test_fma_is_fused_and_products_are_not(emu, run):
    source = (
        HEAD
        + """
kernel void k(device const float* x [[buffer(0)]], device float* y [[buffer(1)]]) {
  y[0] = fma(x[0], x[0], x[1]);
  y[1] = x[0] * x[0] + x[1];
}
"""
    )
    v = np.float32(1 + 2.0**-12)
    x, y = np.array([v, -np.float32(v * v)], np.float32), np.zeros(2, np.float32)
    run(source).dispatch("k", [x, y], 1, 1)
    assert y[0] == np.float32(float(v) * float(v) - float(np.float32(v * v))) != 0
    assert y[1] == 0
