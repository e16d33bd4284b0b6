"""The build step: what it writes with NVRTC, without it, and what the translator refuses."""

import re
import subprocess
import sys

import pytest

from .kernels import CACHE, CXX, NVRTC, ROOT, cuda_shaders, made, needs_nvrtc, ptx_waits, table

to_cuda = cuda_shaders.to_cuda
TOOL = ROOT / "tools" / "cuda_shaders.py"
HEAD = "#include <metal_stdlib>\nusing namespace metal;\nstruct P { unsigned n; };\n"


def build(out, *options, check=True):
    command = [sys.executable, TOOL, "--out", out, "--cxx", CXX, *map(str, options)]
    return subprocess.run(command, capture_output=True, text=True, check=check)


# ---------------------------------------------------------------- data


@needs_nvrtc
@pytest.mark.timeout(900)
def test_the_data_are_the_table_sorted_and_the_same_twice(tmp_path):
    made(cuda_shaders.ARCHITECTURE)  # fills the cache
    texts = []
    for name in ("a.inc", "b.inc"):
        build(tmp_path / name, "--cache", CACHE, "--nvrtc", NVRTC.parent)
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    rows = re.findall(r'^\{"(\w+)", (\d+), (\d+), (\d+), (\d+), (\d+)\},$', texts[0], re.M)
    assert [r[0] for r in rows] == sorted(table())
    places = [int(p) for p in re.search(r"kPlaces\[\] = \{(.*)\}", texts[0])[1].split(",")]
    modules = re.findall(r'^\{"([\w./]+)",$', texts[0], re.M)
    for name, *numbers in rows:
        module, first, count, size, early = map(int, numbers)
        kernel = table()[name]
        assert early == sum(1 << place for place in kernel.early)
        assert places[first : first + count] == kernel.places == sorted(kernel.places)
        assert (modules[module], size) == (kernel.file, kernel.params)
    assert texts[0].count(".visible .entry ") == len(rows)
    assert 'kAbsent[] = "";' in texts[0]
    assert re.search(r'kDigest\[\] = "[0-9a-f]{64}";', texts[0])


def test_without_nvrtc_the_data_say_why(tmp_path):
    build(tmp_path / "a.inc", "--nvrtc", tmp_path)
    text = (tmp_path / "a.inc").read_text()
    assert f"made without NVRTC (package {cuda_shaders.PACKAGE})" in text
    assert '{"", ""},' in text and '{"", 0, 0, 0, 0, 0},' in text and 'kDigest[] = "";' in text
    build(tmp_path / "b.inc", "--absent", "ACCEL_CUDA=OFF")
    assert 'kAbsent[] = "ACCEL_CUDA=OFF";' in (tmp_path / "b.inc").read_text()


def test_nvrtc_that_is_needed_and_absent_ends_the_build(tmp_path):
    done = build(tmp_path / "a.inc", "--nvrtc", tmp_path, "--need", check=False)
    assert done.returncode == 1 and f"install {cuda_shaders.PACKAGE}" in done.stderr
    assert not (tmp_path / "a.inc").exists()


PTX = """//
.version 8.8
.target sm_80
.address_size 64
.visible .entry f(
.param .u64 f_param_0,
.param .align 4 .b8 f_param_1[12]
)
{
%s
}
"""


def test_ptx_with_later_words_keeps_its_version():
    assert cuda_shaders.split("x", PTX % "ret;")["f"].startswith(".version 7.0\n")
    hint = '.pragma "used_bytes_mask 0xfff";\nret;'
    assert "pragma" not in cuda_shaders.split("x", PTX % hint)["f"]
    later = cuda_shaders.split("x", PTX % "ld.global.L1::evict_last.f32 %f1, [%rd1];")
    assert later["f"].startswith(".version 8.8\n")


def flow(*lines: str) -> str:
    """A kernel of place 0, a weight of place 1 and its parameters, which waits at "wait"."""
    head = "f(\n.param .u64 f_param_0,\n.param .u64 f_param_1,\n.param .align 4 .b8 f_param_2[8]\n)"
    named = {"wait": ptx_waits.WAIT, "start": ptx_waits.START}
    body = ["ld.param.u64 %rd0, [f_param_0];", "ld.param.u64 %rd1, [f_param_1];"]
    body += [named.get(line, line) for line in lines]
    return "\n".join([head, ".maxntid 32, 1, 1", "{", ".reg .b64 %rd<9>;", *body, "}", ""])


def early(*lines: str) -> set[int]:
    return ptx_waits.early_places("f", flow(*lines), [0, 5, 27])


READ = "ld.global.f32 %f1, [%rd2];"


def test_what_a_kernel_reads_before_it_waits_is_found():
    assert early("wait", READ, "st.global.f32 [%rd0], %f1;", "ret;") == set()
    assert early("cvta.to.global.u64 %rd2, %rd1;", READ, "wait", "ret;") == {5}
    # Through a copy to shared memory, a choice, a loop and a scope of its own.
    copy = "cp.async.cg.shared.global [%r1], [%rd2], 16;"
    assert early("add.s64 %rd2, %rd1, %rd0;", copy, "wait", "ret;") == {0, 5}
    assert early("selp.b64 %rd2, %rd1, %rd0, %p1;", copy, "wait", "ret;") == {0, 5}
    loop = ["$L_1:", "mov.u64 %rd2, %rd3;", READ, "add.s64 %rd3, %rd1, 4;", "@%p1 bra $L_1;"]
    assert early(*loop, "wait", "ret;") == {5}
    assert early("{.reg .b64 a;", "mov.b64 a, %rd1;", "ld.f32 %f1, [a];}", "wait", "ret;") == {5}
    assert early("ld.param.u32 %r1, [f_param_2+4];", "mad.wide.u32 %rd2, %r1, 4, %rd1;", READ,
                 "wait", "ret;") == {5}  # fmt: skip
    # Behind the wait on another way, in front of it in the text.
    apart = ["@%p1 bra $L_2;", "wait", "$L_1:", "ld.global.f32 %f1, [%rd0];", "ret;"]
    assert early(*apart, "$L_2:", "wait", "bra.uni $L_1;") == set()


UNWAITED = [
    ("a way around", ["@%p1 bra $L_1;", "wait", "$L_1:", "ret;"], "ends without a wait"),
    ("an early end", ["@%p1 ret;", "wait", "ret;"], "ends without a wait"),
    ("a condition", ["@%p1 " + "accel.wait;", "wait", "ret;"], "waits on a condition"),
    ("a store", ["st.global.f32 [%rd0], %f1;", "wait", "ret;"], "writes or does"),
    ("a store of any address", ["st.f32 [%rd0], %f1;", "wait", "ret;"], "writes or does"),
    ("an atomic", ["atom.global.add.u32 %r1, [%rd0], 1;", "wait", "ret;"], "writes or does"),
    ("a reduction", ["red.global.add.u32 [%rd0], 1;", "wait", "ret;"], "writes or does"),
    ("an address out of shared memory",
     ["st.shared.u64 [%r1], %rd1;", "ld.shared.u64 %rd6, [%r2];", "add.s64 %rd7, %rd6, %rd0;",
      "ld.global.f32 %f1, [%rd7];", "wait", "ret;"], "at an address out of memory"),
    ("an address out of an operand's memory",
     ["ld.global.u64 %rd6, [%rd0];", "ld.global.f32 %f1, [%rd6];", "wait", "ret;"],
     "at an address out of memory"),
    ("no operand", ["ld.global.f32 %f1, [%rd7];", "wait", "ret;"], "from no operand"),
    ("a table of ways",
     ["$L_t:", ".branchtargets $L_1, $L_2;", "brx.idx %r1, $L_t;",
      "$L_1:", "wait", "$L_2:", "ret;"],
     "ends without a wait"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "lines", "message"), UNWAITED)
def test_a_kernel_that_does_too_much_before_it_waits_is_refused(what, lines, message):
    with pytest.raises(ptx_waits.Refused, match=message):
        early(*lines)


def test_a_kernel_without_a_wait_gets_one_in_front_of_all():
    entry = flow(READ, "ret;")
    assert ptx_waits.marked(entry) == entry.replace(
        "%rd<9>;\n", f"%rd<9>;\n{ptx_waits.START}\n{ptx_waits.WAIT}\n"
    )
    assert ptx_waits.marked(flow("wait", "ret;")) == flow("wait", "ret;")
    with pytest.raises(ptx_waits.Refused, match="does not wait"):
        ptx_waits.marked(flow("start", "ret;"))
    with pytest.raises(SystemExit, match="x: f ends without a wait"):
        places = ["@%p1 ret;", f"{ptx_waits.WAIT}\nret;"]
        cuda_shaders.early_places("x", "f", PTX % "\n".join(places), [0, 27])


def test_ptx_is_refused_that_has_more_than_functions_or_two_structs():
    with pytest.raises(SystemExit, match="outside its functions"):
        cuda_shaders.split("x", PTX % "ret;" + ".global .b8 table[4];\n")
    two = PTX.replace(".param .u64 f_param_0", ".param .align 4 .b8 f_param_0[8]")
    with pytest.raises(SystemExit, match="f: 2 structs of parameters"):
        cuda_shaders.params_bytes("f", two)
    assert cuda_shaders.params_bytes("f", PTX) == 12


# ---------------------------------------------------------------- the translator


def translated(text: str) -> tuple[str, dict]:
    code, places = to_cuda.translate("x.metal", HEAD + text, CXX)
    return " ".join(code.split()), places


TRANSLATED = [
    (
        "kernel void f(constant P& p [[buffer(27)]], device float* o [[buffer(2)]], "
        "uint g [[threadgroup_position_in_grid]]) { o[g] = 1.0f; }",
        "static __forceinline__ void f_body(const P& p , float* o , uint g )",
    ),
    ("kernel void f(device int* o [[buffer(0)]]) { threadgroup float4 x[2], y; }",
     "__shared__ metal::vec<float, 4> x[2]; __shared__ metal::vec<float, 4> y;"),
    ("static inline float4 g(float4 x) { return float4(x.x) + 1.0f; }",
     "static __forceinline__ metal::vec<float, 4> g(metal::vec<float, 4> x) "
     "{ return metal::vec<float, 4>(x.x) + 1.0f; }"),
    ("static inline float g(float x) { return fma(x, min(x, 1.0f), metal::sqrt(x)); }",
     "return metal::fma(x, metal::min(x, 1.0f), metal::sqrt(x));"),
    ("static inline int g(thread char* x) { return x[0]; }", "int g( signed char* x)"),
    ("struct S { float v; inline float of(float a) const thread { return a; } };",
     "__forceinline__ float of(float a) const {"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "want"), TRANSLATED)
def test_translation(text, want):
    assert " ".join(want.split()) in translated(text)[0]


def test_an_entry_has_the_buffers_in_ascending_order():
    code, places = translated(
        "template <class T> kernel [[max_total_threads_per_threadgroup(64), "
        "groups_of_a_processor(sizeof(T))]] void f("
        "device T* o [[buffer(5)]], constant P& p [[buffer(27)]], device const T* x [[buffer(0)]], "
        "uint3 g [[threadgroup_position_in_grid]], uint i [[thread_index_in_threadgroup]]) {}\n"
        'template [[host_name("f_f32")]] [[kernel]] decltype(f<float>) f<float>;'
    )
    assert places == {"f_f32": [0, 5, 27]}
    assert (
        "template < class T > struct f_bounds { enum { threads = 64, groups = sizeof ( T ) }; }; "
        "typedef decltype(f_body < float >) f_f32_type; "
        'extern "C" __global__ void '
        "__launch_bounds__(f_bounds < float >::threads, f_bounds < float >::groups) f_f32( "
        "msl::pointer<2, f_f32_type> __restrict__ b0, msl::pointer<0, f_f32_type> __restrict__ b5, "
        "const __grid_constant__ msl::value<1, f_f32_type> b27) { "
        "f_body < float >(b5, b27, b0, msl::place(blockIdx), threadIdx.x); }"
    ) in code


def test_functions_for_devices_without_exchange_are_left_out():
    _, places = translated(
        "struct Plain {}; struct Simd {};\n"
        "template <class E> kernel void f(device int* o [[buffer(0)]]) {}\n"
        'template [[host_name("f")]] [[kernel]] decltype(f<Simd>) f<Simd>;'
        'template [[host_name("f_plain")]] [[kernel]] decltype(f<Plain>) f<Plain>;'
    )
    assert places == {"f": [0]}


REFUSED = [
    ("constant bool b [[function_constant(0)]];", "CUDA has no function constants"),
    (
        "kernel void f(device int* o [[buffer(0)]], uint q [[quadgroup_index_in_threadgroup]]) {}",
        "kernel f: quadgroup_index_in_threadgroup is not of CUDA",
    ),
    ("kernel void f(threadgroup int* o [[threadgroup(0)]]) {}", "threadgroup is not of CUDA"),
    ("kernel void f(device int* o [[buffer(0)]], device int* p [[buffer(0)]]) {}", "used twice"),
    ("static inline float g(float* x) { return *x; }", "names no address space"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_what_cuda_has_not_is_refused(text, message):
    with pytest.raises(SystemExit, match=re.escape(message)):
        translated(text)


def test_texts_can_be_written_out(tmp_path):
    command = [sys.executable, TOOL, "--texts", tmp_path, "--cxx", CXX]
    subprocess.run(command, check=True, capture_output=True)
    texts = sorted(p.name for p in tmp_path.iterdir())
    assert "rms_norm.cu" in texts and "matmul_simdgroup.cu" not in texts
