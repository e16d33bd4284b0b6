"""Every kernel that the host launches on CUDA is in the embedded table, takes what the host binds,
and compiles for the architectures that the project names."""

import re
import shutil
import subprocess
from functools import cache

import numpy as np
import pieces
import pytest
from accel import _core
from accel import tensor as T
from case import In, Int4, P, Quantized
from cases import CASES
from cases_attention import paged
from conftest import open_runtime
from runner import Graph, record

from .kernels import CXX, NVRTC, code_of, cuda_shaders, made, needs_nvrtc, ptx_waits, table
from .overlap import overlapped

pytestmark = [needs_nvrtc, pytest.mark.rules, pytest.mark.timeout(900)]
PARAMS, SCALARS, SCRATCH = 27, 28, 29
F32, U32 = np.float32, np.uint32

# What the rows of operators leave out: many rows over groups that straddle rows of the weight, and
# narrow attention with a kv head for each head.
MORE = [
    *(
        ("int4_matmul", P(In((17, 36)), Int4(36 * 5, 32, dtype), w_order="nk"))
        for dtype in ("f16", "bf16", "f32")
    ),
    *(
        ("quant_matmul", P(In((17, 36), dtype), Quantized((5, 36)), w_order="nk"))
        for dtype in ("f32", "f16")
    ),
    (
        "grouped_matmul",
        P(
            In((40, 36)),
            Quantized((2, 5, 36)),
            In((2,), "u32", ("list", (20, 20))),
            w_order="nk",
        ),
    ),
    ("attention", paged("decode", "f16", (2, 2), 64, 300, 16, 20, [280], operands="f16")),
    # Large tiles of matrix units.
    *(
        ("matmul", P(In((512, 64), x), In((4096, 64), w, kind="weight"), w_order="nk"))
        for x in ("f32", "f16")
        for w in ("f16", "bf16")
    ),
]


def launched(builder, what: str) -> list[dict]:
    """On a device of sm_90, with products on matrix units, and on one whose groups get no memory by
    their launches."""
    return [
        launch | {"of": what}
        for backend in ("cuda", "cuda_matrix", "cuda_plain")
        for launch in _core._launches(builder, backend)
    ]


def of_point(op: str, point) -> list[dict]:
    builder = record(open_runtime(None), op, point, np.random.default_rng(0)).builder
    return launched(builder, f"{op} {point}")


def of_copies() -> list[dict]:
    out = []
    for dtype in (np.float32, np.float16, np.int8):
        g = Graph(open_runtime(None))
        x = g.port("x", np.zeros(3, dtype))
        both = T.concat(x, x, axis=0)  # outputs that share a value
        g.output("out0", both)
        g.output("out1", both)
        out += launched(g.builder, f"copy of {dtype.__name__}")
    return out


def of_sample() -> list[dict]:
    g, options = Graph(open_runtime(None)), T.SamplingOptions(1, 5, 0.9, 1.1, 0.1, 0.1)
    T.declare_sampling_scalars(g.builder, options, "s")
    x, draws = g.port("x", np.zeros(40, F32)), g.port("draws", np.zeros(1, F32))
    history = g.port("history", np.zeros(9, U32), "state")
    counts = g.port("counts", np.zeros(40, U32), "state")
    g.output("out", T.sample(x, draws, history, counts, options=options, prefix="s"))
    return launched(g.builder, "sample")


def of_sample_rows() -> list[dict]:
    g = Graph(open_runtime(None))
    x, f = g.port("x", np.zeros((2, 40), F32)), g.port("f", np.ones(2, F32))
    n = g.port("n", np.ones(2, U32))
    history = g.port("history", np.zeros((2, 9), U32), "state")
    counts = g.port("counts", np.zeros((2, 40), U32), "state")
    bias = T.RowBias(g.port("ids", np.zeros((2, 3), U32)), g.port("b", np.zeros((2, 3), F32)))
    penalties = T.RowPenalties(history, counts, n, f, f, f)
    policy = T.RowSampling(f, top_k=n, top_p=f, bias=bias, penalties=penalties)
    g.output("out", T.sample_rows(x, f, policy))
    return launched(g.builder, "sample_rows")


def of_pieces() -> list[dict]:
    """What does the work of several commands; each ring of one row is among them."""
    runtime = open_runtime(None)
    graphs = [pieces.caches(runtime, dtype) for dtype in ("f16", "f32")]
    for kind in pieces.KINDS:
        graphs += [pieces.products(runtime, kind, size) for size in pieces.sizes(kind)]
    rows = [row for g in graphs for row in _core._launches(g.builder, "cuda", True)]
    return [row | {"of": "pieces"} for row in rows if row["kernel"] == "combined"]


@cache
def launches() -> list[dict]:
    """Every launch of a row of any operator."""
    points = [(case.op, point) for case in CASES for point in case.points] + MORE
    out = [launch for op, point in points for launch in of_point(op, point)]
    return out + of_copies() + of_sample() + of_sample_rows() + of_pieces()


def test_every_launch_finds_its_function_and_what_it_reads():
    wrong = []
    for launch in launches():
        kernel = table().get(launch["function"])
        if not kernel:
            wrong.append(f"{launch['of']}: {launch['function']} is missing")
            continue
        named = {PARAMS, SCALARS, SCRATCH} & set(kernel.places)
        unbound = set(kernel.places) - named - set(range(launch["operands"]))
        # concat's launches have the parts behind theirs in their words too.
        sized = launch["params"] == kernel.params or (
            launch["kernel"].startswith("concat") and launch["params"] % kernel.params == 0
        )
        if (
            unbound
            or not sized
            or (PARAMS in named) != (kernel.params > 0)
            or (SCALARS in named and not launch["scalars"])
            or (SCRATCH in named and not launch["scratch"])
            or (launch["group_bytes"] > 0) != (".extern .shared" in kernel.ptx)
            or launch["threads"] > kernel.threads
            or launch["threads"] % 32
        ):
            wrong.append(f"{launch} does not fit {kernel._replace(ptx='')}")
    assert not wrong, "\n".join(wrong[:5])
    assert len(launches()) > 4000


def test_every_row_of_cuda_is_launched_and_every_function_belongs_to_one():
    rows = {k["kernel"] for op in _core._ops() for k in op["kernels"] if k["backend"] == "cuda"}
    assert rows - {launch["kernel"] for launch in launches()} == set()
    assert set(table()) - {launch["function"] for launch in launches()} == set()


def test_every_ring_of_one_f32_row_has_a_fused_kernel_and_no_other_has():
    kinds = "matmul_nk_f32|int4_matmul_nk|quant_matmul_nk_f32"
    one_row = re.compile(rf"({kinds})_(\w+_)?ring_one_[a-z]+")
    plain = {name for name in table() if one_row.fullmatch(name)}
    fused = {name: kernel for name, kernel in table().items() if name.endswith("_fused")}
    assert len(plain) == 25 and set(fused) == {f"{name}_fused" for name in plain}
    for name, kernel in fused.items():
        assert kernel.places == [*range(15), PARAMS], name
        assert kernel.params == 44 and ".extern .shared" in kernel.ptx, name
        assert kernel.threads == table()[name.removesuffix("_fused")].threads, name


def test_every_tile_has_a_kernel_of_every_pair_of_types():
    kinds = {"f16_f16": "f16", "f16_bf16": "tf32", "f32_f16": "tf32", "f32_bf16": "bf16"}
    rows, expected = (1, 8, 16, 32, 64, 128), {}
    for pair, kind in kinds.items():
        name = f"matmul_matrix16_nk_{pair}"
        expected |= {f"{name}_rows{n}": {kind} for n in rows}
    found = {name: kernel for name, kernel in table().items() if "_matrix16_" in name}
    for name, kernel in found.items():
        assert kernel.places == [0, 1, 4, 5, PARAMS] and kernel.params == 36, name
        of = set(re.findall(r"mma\.sync\.aligned\.m16n8k\d+\.row\.col\.f32\.(\w+)\.", kernel.ptx))
        assert of == expected.pop(name), name
    assert not expected


def test_the_kernels_compile_for_compute_100():
    later = table("compute_100")
    assert {n: (k.places, k.params, k.threads) for n, k in later.items()} == {
        n: (k.places, k.params, k.threads) for n, k in table().items()
    }
    assert ".target sm_100" in later["rms_norm_f32"].ptx


HOT = (
    *(
        f"matmul_nk_{x}_{w}_{rows}"
        for x in ("f32", "f16")
        for w in ("f16", "bf16")
        for rows in ("one", "few", "many")
    ),
    *(f"int4_matmul_nk_f16_{rows}" for rows in ("one", "few", "many")),
    *(f"quant_matmul_nk_f32_{rows}" for rows in ("one", "few", "many")),
    *(
        f"attention_{kind}_{rows}"
        for kind in ("f32", "f16")
        for rows in ("split", "split1", "rows")
    ),
    *("attention_merge", "rms_norm_f32", "rope_f32", "swiglu_f32", "softmax_long_f32"),
    *("rope_write_f32", "rope_write_f16"),
)


def test_machine_code_for_sm_90a_keeps_to_the_registers():
    codes = {}
    for cubin in made("sm_90a", "CUBIN").values():
        codes |= code_of(cubin)
    assert set(codes) == set(table())
    for name, code in codes.items():
        assert code.registers >= 8 and code.registers * table()[name].threads <= 65536, (name, code)
        assert code.shared <= 48 * 1024, (name, code)
        # The price of the groups that a processor is to hold; none in what a model's step needs.
        assert code.frame <= 64, (name, code)
    # As many groups of a ring as the host counts on (ring_per_unit in cpp/ops/product_rings.cc).
    for name in (name for name in codes if "_ring_" in name):
        groups = 3 if re.search(r"matmul_nk_f32_b?f16_ring_one_wide", name) else 2
        registers = (codes[name].registers + 7) // 8 * 8
        assert groups * registers * table()[name].threads <= 65536, (name, codes[name])
    for name in (name for name in codes if "_matrix16_" in name):
        groups = 2 if re.search(r"_rows(1|8|64)$", name) else 1
        registers = (codes[name].registers + 7) // 8 * 8
        assert groups * registers * table()[name].threads <= 65536, (name, codes[name])
    hot = {*HOT, *(name for name, kernel in table().items() if kernel.file.startswith("cuda/"))}
    assert len(hot) > 60 and [name for name in hot if codes[name].frame] == []
    assert codes["attention_f32_split"].shared >= 4 * 256 * 4


# ---------------------------------------------------------------- the PTX


def test_ptx_is_read_by_every_driver_since_that_of_cuda_11():
    for name, kernel in table().items():
        assert kernel.ptx.startswith(".version 7.0\n.target sm_80\n"), name


@pytest.mark.skipif(not shutil.which("ptxas"), reason="the assembler of a CUDA toolkit")
def test_an_assembler_takes_the_ptx_under_its_version(tmp_path):
    chosen = {kernel.file: name for name, kernel in table().items()}  # one of each file
    for name in chosen.values():
        path = tmp_path / f"{name}.ptx"
        path.write_text(table()[name].ptx)
        command = ["ptxas", "-arch=sm_80", path, "-o", tmp_path / "out"]
        assert subprocess.run(command, capture_output=True).returncode == 0, name


def test_arithmetic_is_ieee():
    """No flush, no approximation, and a contraction nowhere that the text has none."""
    for name, kernel in table().items():
        assert not re.search(r"\.(ftz|approx|full)\b|\bmad\.(rn\.)?f32", kernel.ptx), name
    for name in ("add_f32", "mul_f32", "row_scale", "combine", "causal_conv1d", "row_bias"):
        assert "fma.rn" not in table()[name].ptx, name
    assert "sqrt.rn.f32" in table()["rms_norm_f32"].ptx
    assert "div.rn.f32" in table()["softmax_f32"].ptx


def test_no_kernel_calls_or_has_local_memory_in_its_ptx():
    for name, kernel in table().items():
        assert not re.search(r"\.local\b|\bcall\b", kernel.ptx), name


WIDE = {
    "matmul_nk_f32_f32_one": "ld.global.nc.v4.f32",
    "matmul_nk_f32_f16_one": "ld.global.nc.v4.u16",
    "matmul_nk_f32_bf16_one": "ld.global.nc.v4.u16",
    "quant_matmul_nk_f32_one": "ld.global.nc.v4.u8",
    "attention_f32_split": "ld.global.nc.v4.f32",
    "attention_f16_rows": "ld.global.nc.v4.u16",
    "int4_matmul_nk_f16_one": "ld.shared.v4.f32",
}


@pytest.mark.parametrize("name", WIDE)
def test_reads_of_four_stay_one_load(name):
    assert WIDE[name] in table()[name].ptx


# ---------------------------------------------------------------- where kernels wait


def test_every_kernel_waits_and_before_that_reads_weights_at_most():
    """That no way goes around the wait, and that nothing is written before, is what the build
    refuses (ptx_waits.early_places); here is who begins early at all."""
    for name, kernel in table().items():
        entry = kernel.ptx.split(".visible .entry ")[1]
        first = [one.text for one in ptx_waits.before_wait(entry)]
        if not re.search("_ring_|_matrix16_", name):
            assert entry.count(ptx_waits.WAIT) == 1 and first == ["accel.start"], name
            assert kernel.early == [], name
            continue
        assert "accel.start" not in first, name  # one ring ahead, and no more
        weights = {1} if "_matrix16_" in name else {1, 2, 3}
        if name.endswith("_fused"):  # of up to three products (cpp/ops/fused_product.h)
            weights = {place + 4 * part for place in (3, 4, 5) for part in range(3)}
        assert len(first) > 20 and kernel.early and set(kernel.early) <= weights, name


@pytest.mark.skipif(not shutil.which("ptxas"), reason="the assembler of a CUDA toolkit")
@pytest.mark.parametrize("architecture", ["sm_90", "sm_100"])
def test_an_assembler_takes_the_text_of_nodes_that_overlap(architecture, tmp_path):
    chosen = {kernel.file: name for name, kernel in table().items()}
    for name in chosen.values():
        path = tmp_path / f"{name}.ptx"
        path.write_text(text := overlapped(table()[name].ptx))
        assert text.startswith(".version 7.8\n.target sm_90\n") and ".nc" not in text
        command = ["ptxas", f"-arch={architecture}", path, "-o", tmp_path / "out"]
        assert subprocess.run(command, capture_output=True).returncode == 0, name


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("file", "line"),
    [("lanes.h", "a = a + simd_shuffle_xor(a, h);"), ("rms_norm.metal", "a = fma(v, v, a);")],
)
def test_an_error_is_named_by_the_shader_and_the_line(file, line):
    """An undeclared name in a header and in a text: NVRTC's log has the file of the tree."""
    shaders = cuda_shaders.embed_shaders
    lines = (shaders.ROOT / file).read_text().splitlines()
    number = next(i for i, text in enumerate(lines, 1) if line in text)
    text = dict(shaders.flattened())["rms_norm.metal"].replace(line, "a = planted;")
    head = "\n".join(shaders.flatten("cuda/msl.h", set())) + "\n"
    code, _ = cuda_shaders.to_cuda.translate("rms_norm.metal", text, CXX)
    with pytest.raises(cuda_shaders.Refused) as refused:
        cuda_shaders.Nvrtc(NVRTC).compile("rms_norm.metal", head + code, "compute_80")
    assert f'{file}({number}): error: identifier "planted" is undefined' in str(refused.value)
