"""Packed weights (E14): the same bits, one set of buffers for every M, and refusals by name."""

import itertools

import accel
import ml_dtypes
import numpy as np
import pytest
from accel import tensor as T
from conftest import open_runtime

F32 = np.float32
K, N = 75, 256


def planes_of(rng, group, dtype=np.float16, kind="zeros", k=K, n=N):
    groups = -(-k * n // group)
    codes = rng.integers(0, 2**32, k * n // 8, dtype=np.uint64).astype(np.uint32)
    scales = (rng.random(groups) * 0.2 + 0.01).astype(dtype)
    scales[::7] = 0
    return {"w.codes": codes, "w.scales": scales, f"w.{kind}": rng.random(groups).astype(dtype)}


def quants_of(rng, k=K, n=N):
    quants = rng.integers(-128, 128, (k, n)).astype(np.int8)
    return {"w.quants": quants, "w.scales": (rng.random(k * n // 32) * 0.1).astype(np.float16)}


DTYPES = {np.dtype(F32): accel.F32, np.dtype(np.float16): accel.F16}
DTYPES |= {np.dtype(ml_dtypes.bfloat16): accel.BF16}
DTYPES |= {np.dtype(np.uint32): accel.U32, np.dtype(np.int8): accel.I8}


def weight(b, planes, group):
    w = {n: b.weight(n, DTYPES[a.dtype], a.shape) for n, a in planes.items()}
    if "w.quants" in w:
        return T.Quantized(w["w.quants"], w["w.scales"])
    codes = planes["w.codes"].size
    return T.Int4(**{n[2:]: t for n, t in w.items()}, weights=codes * 8, group=group)


def product(runtime, planes, m, group=32, pack=False, dtype=accel.F32, **keywords):
    """A plan of one product over x [m, K]; m = 0 is the matvec."""
    b = runtime.new_builder("packed")
    w = weight(b, planes, group)
    x = b.input("x", dtype, [m, K] if m else [K])
    op = T.quant_matmul if "w.quants" in planes else T.int4_matmul if m else T.int4_matvec
    b.output("out", op(x, w, **keywords))
    return b.compile(pack=pack)


def run(plan, bindings, x):
    shape = next(tuple(p.shape) for p in plan.ports() if p.name == "out")
    out = np.zeros(shape, F32)
    assert plan.submit({**bindings, "x": x, "out": out}).wait()
    return out


def layouts(plan):
    return {p.name: p.layout for p in plan.ports()}


WEIGHTS = [
    ("int8", 32, lambda rng: quants_of(rng)),
    *(
        (f"int4-{group}-{np.dtype(dtype).name}-{kind}", group, make)
        for group in (32, 64, 128)
        for dtype, kind in [
            (np.float16, "zeros"),
            (ml_dtypes.bfloat16, "zeros"),
            (F32, "biases"),
        ]
        for make in [lambda rng, g=group, d=dtype, k=kind: planes_of(rng, g, d, k)]
    ),
]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("group", "make"), [w[1:] for w in WEIGHTS], ids=[w[0] for w in WEIGHTS])
def test_p26_42_packed_is_plain_bit_for_bit_and_one_set_serves_every_m(
    group, make, threads, isa, rng
):
    runtime, planes = open_runtime(isa, threads), make(rng)
    packed = None
    half = [np.dtype(np.float16)] if "w.quants" in planes else []
    for m in (1, 2, 7, 17, *([0] if "w.codes" in planes else [])):
        for dtype, activations in itertools.product([np.dtype(F32), *half], (None, "bf16")):
            x = rng.standard_normal((m, K) if m else K).astype(dtype)
            options = {"activations": activations, "dtype": DTYPES[dtype]}
            plain = product(runtime, planes, m, group, **options)
            plan = product(runtime, planes, m, group, pack=True, **options)
            assert set(layouts(plain).values()) == {"plain"}
            assert all(layouts(plan)[n] != "plain" for n in planes)
            packed = packed or plan.pack(planes)
            want = run(plain, planes, x)
            got = run(plan, packed, x)
            assert got.tobytes() == want.tobytes() and len(np.unique(want)) > 1
            s = plan.selections()[0]
            assert "panels" in s.kernel and layouts(plan)["w.scales"] in s.reason


def test_bytes_and_seconds_are_reported_and_a_plain_port_keeps_its_buffer(isa, rng):
    runtime, planes = open_runtime(isa), quants_of(rng)
    plan = product(runtime, planes, 1, pack=True)
    scales = runtime.device.buffer(planes["w.scales"])
    x = np.zeros((1, K), F32)
    packed = plan.pack({"w.quants": planes["w.quants"], "w.scales": scales, "x": x})
    assert set(packed) == {"w.quants", "w.scales", "x"} and isinstance(packed, dict)
    assert packed["x"] is x
    assert packed["w.scales"].layout == layouts(plan)["w.scales"] and scales.layout == "plain"
    assert packed.bytes == planes["w.quants"].nbytes + planes["w.scales"].nbytes
    assert packed.seconds > 0
    again = plan.pack(packed)
    assert again["w.quants"] is packed["w.quants"] and again.bytes == 0


def test_p26_42_another_layout_and_a_plain_array_are_refused_by_name(isa, rng):
    runtime, planes = open_runtime(isa), quants_of(rng)
    plan, plain = product(runtime, planes, 1, pack=True), product(runtime, planes, 1)
    packed = plan.pack(planes)
    x, out = np.zeros((1, K), F32), np.zeros((1, N), F32)
    for kind, target, bindings in [
        ("array", plan, {**packed, "w.quants": planes["w.quants"]}),
        ("buffer", plan, {**packed, "w.quants": runtime.device.buffer(planes["w.quants"])}),
        ("packed", plain, {**planes, "w.quants": packed["w.quants"]}),
    ]:
        with pytest.raises(accel.BindError) as caught:
            target.submit({**bindings, "x": x, "out": out}).wait()
        error = caught.value
        assert error.code == "layout" and [p.name for p in error.problems] == ["w.quants"], kind
        assert "plan.pack" in str(error) and "w.quants" in str(error), kind
        with pytest.raises(accel.BindError, match="layout|laid out"):
            target.bind({**bindings, "x": x, "out": out})
    wide = quants_of(rng, K, 2 * N)
    other = {n: a[:, ::2].copy() if a.ndim == 2 else a[::2].copy() for n, a in wide.items()}
    assert product(runtime, other, 1, pack=True).pack(other).bytes == packed.bytes


def test_pack_refuses_what_bind_refuses(isa, rng):
    runtime, planes = open_runtime(isa), quants_of(rng)
    plan = product(runtime, planes, 1, pack=True)
    with pytest.raises(accel.BindError) as caught:
        plan.pack({"nothing": planes["w.quants"], "w.scales": planes["w.scales"][:5]})
    assert {(p.code, p.name) for p in caught.value.problems} == {
        ("unknown", "nothing"),
        ("too_small", "w.scales"),
    }
    plan.close()
    with pytest.raises(accel.BindError, match="closed"):
        plan.pack(planes)


def test_what_another_node_reads_otherwise_stays_plain(isa, rng):
    """A table that is gathered and multiplied keeps one layout for both."""
    runtime, planes = open_runtime(isa), quants_of(rng)
    b = runtime.new_builder("tied")
    w = weight(b, planes, 32)
    x, ids = b.input("x", accel.F32, [1, K]), b.input("ids", accel.U32, [2])
    b.output("out", T.quant_matmul(x, w))
    b.output("rows", T.quant_gather_rows(w, ids))
    plan = b.compile(pack=True)
    assert set(layouts(plan).values()) == {"plain"}
    assert plan.pack(planes).bytes == 0


def test_two_products_over_one_weight_share_it(isa, rng):
    runtime, planes = open_runtime(isa), quants_of(rng)
    b = runtime.new_builder("twice")
    w = weight(b, planes, 32)
    x, y = b.input("x", accel.F32, [1, K]), b.input("y", accel.F16, [5, K])
    b.output("out", T.quant_matmul(x, w))
    b.output("more", T.quant_matmul(y, w))
    plan = b.compile(pack=True)
    assert layouts(plan)["w.quants"] == layouts(product(runtime, planes, 3, pack=True))["w.quants"]
    assert layouts(plan)["w.quants"] != "plain"


@pytest.mark.parametrize(
    ("n", "keywords"), [(N + 8, {}), (N, {"w_order": "nk"}), (N - 32, {})], ids=str
)
def test_weights_without_whole_panels_or_in_nk_stay_plain(n, keywords, isa, rng):
    planes = planes_of(rng, 64, k=K, n=n)
    plan = product(open_runtime(isa), planes, 1, 64, pack=True, **keywords)
    assert set(layouts(plan).values()) == {"plain"}


def test_pack_is_a_bool(runtime, rng):
    b = runtime.new_builder("kind")
    b.output("out", T.silu(b.input("x", accel.F32, [4])))
    with pytest.raises(TypeError, match="pack is an int and must be a bool"):
        b.compile(pack=1)


def test_p26_42_a_packed_buffer_is_no_array(isa, rng):
    """Its bytes are in a kernel's order: as elements they would be read, or written, wrong."""
    runtime, planes = open_runtime(isa), quants_of(rng)
    packed = product(runtime, planes, 1, pack=True).pack(planes)["w.quants"]
    device = runtime.device
    for call in (
        packed.numpy,
        packed.read,
        lambda: packed.write(planes["w.quants"]),
        lambda: packed.access(lambda a: None),
        packed.__dlpack__,
        lambda: device.from_dlpack(packed),
        lambda: device.buffer(packed),
        lambda: device.queue.write_buffer(packed, 0, planes["w.quants"].reshape(-1)),
        lambda: device.queue.read_buffer(packed),
    ):
        with pytest.raises(accel.BindError, match="is in layout panels32 .* must be plain") as e:
            call()
        assert e.value.code == "layout"
