"""Products of one row and of many against torch and ONNX Runtime, runs of the two alternated.

Weights of a matvec are rotated: one run multiplies one row with as many matrices as fill 640 MiB,
twice the largest cache of the machines this ran on, so no matrix is read from a cache. Both sides
hold the same number of matrices in memory of their own.
"""

import gc
import sys

import accel
import alternate
import numpy as np
import torch
from accel import tensor as T

ROTATED = 640 << 20  # bytes of weights that one run of a matvec reads
DTYPES = {"f32": accel.F32, "f16": accel.F16, "bf16": accel.BF16}
TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
SIZE = {"f32": 4, "f16": 2, "bf16": 2}
UNIT = 2.0**-24


def narrow(values: np.ndarray, dtype: str) -> torch.Tensor:
    return torch.from_numpy(values).to(TORCH[dtype])


def bits(t: torch.Tensor) -> np.ndarray:
    """The bytes of a tensor: NumPy has no bf16."""
    return t.contiguous().view(torch.uint8).numpy().reshape(-1)


class Ours:
    """One graph that multiplies x with each of its weights."""

    def __init__(self, threads: int) -> None:
        self.device = accel.open_cpu(threads=threads)
        self.builder = accel.Runtime(self.device).new_builder("product")
        self.ports: dict[str, np.ndarray] = {}

    def port(self, kind: str, name: str, dtype, shape, data: np.ndarray):
        self.ports[name] = data.reshape(-1).view(np.uint8)
        return getattr(self.builder, kind)(name, dtype, shape)

    def ready(self) -> "Ours":
        self.plan = self.builder.compile()
        self.buffers = {}
        for port in self.plan.ports():
            buffer = self.device.new_buffer(port.dtype, port.shape.elements())
            if port.name in self.ports:
                buffer.numpy().reshape(-1).view(np.uint8)[:] = self.ports.pop(port.name)
            self.buffers[port.name] = buffer
        self.bound = self.plan.bind(self.buffers, {})
        return self

    def __call__(self) -> None:
        self.plan.submit(self.bound).wait()

    def result(self, name: str = "out0") -> np.ndarray:
        self()
        return self.buffers[name].numpy().astype(np.float64)


def float_product(threads: int, x: np.ndarray, weights: list[torch.Tensor], dtype: str, order: str):
    ours = Ours(threads)
    row = ours.port("input", "x", accel.F32, x.shape, x)
    for i, w in enumerate(weights):
        port = ours.port("weight", f"w{i}", DTYPES[dtype], tuple(w.shape), bits(w))
        ours.builder.output(f"out{i}", T.matmul(row, port, w_order=order))
    return ours.ready()


def check(got: np.ndarray, x: np.ndarray, w: np.ndarray, terms: int, what: str) -> None:
    """Within the bound of a sum of `terms` in f32, w being [K, N] in f64."""
    x = x.astype(np.float64)
    bound = 1.01 * (terms + 1) * UNIT * (np.abs(x) @ np.abs(w)).ravel()
    error = np.abs(got.ravel() - (x @ w).ravel())
    assert (error <= bound).all(), f"{what}: {error.max():.3g} beyond {bound.max():.3g}"


def torch_product(x: torch.Tensor, w: torch.Tensor, order: str):
    if order == "nk":
        return torch.nn.functional.linear(x, w)
    return x @ w


def matmul_rows(threads: int, shape, dtype: str, order: str, ceiling: dict) -> list[dict]:
    m, k, n = shape
    rng = np.random.default_rng(m + n)
    x = rng.standard_normal((m, k)).astype(np.float32)
    w = narrow(
        rng.standard_normal((n, k) if order == "nk" else (k, n)).astype(np.float32) / k**0.5, dtype
    )
    ours = float_product(threads, x, [w], dtype, order)
    whole = w.to(torch.float64).numpy()
    terms = k // 16 + 4 if order == "nk" else k
    check(ours.result(), x, whole.T if order == "nk" else whole, terms, f"matmul {shape} {dtype}")
    x32 = torch.from_numpy(x)
    xs, wide = x32.to(TORCH[dtype]), w.to(torch.float32)
    label = f"torch {dtype}"
    sides = {"accel": ours, label: lambda: torch_product(xs, w, order)}
    if dtype != "f32":
        sides["torch f32"] = lambda: torch_product(x32, wide, order)
    found = alternate.alternate(sides, rounds=9)
    size, ops = 4 * m * (k + n) + SIZE[dtype] * k * n, 2.0 * m * k * n
    name = f"matmul {m}x{k}x{n} {dtype} {order}"
    return [
        alternate.row(name, found, peer, size, ops, ceiling["fma_gop_s"])
        for peer in list(sides)[1:]
    ]


def matvec_row(threads: int, dtype: str, order: str, ceiling: dict) -> dict:
    k = n = 4096
    count = ROTATED // (SIZE[dtype] * k * n)
    rng = np.random.default_rng(7)
    x = rng.standard_normal((1, k)).astype(np.float32)
    first = narrow(rng.standard_normal((n, k)).astype(np.float32) / 64, dtype)
    weights = [first.clone() for _ in range(count)]
    ours = float_product(threads, x, weights, dtype, order)
    whole = first.to(torch.float64).numpy()
    terms = k // 16 + 4 if order == "nk" else k
    check(ours.result(), x, whole.T if order == "nk" else whole, terms, f"matvec {dtype}")
    xs = torch.from_numpy(x).to(TORCH[dtype])
    label = f"torch {dtype}"
    sides = {"accel": ours, label: lambda: [torch_product(xs, w, order) for w in weights]}
    found = alternate.alternate(sides, rounds=7)
    found = {name: [us / count for us in times] for name, times in found.items()}
    size = SIZE[dtype] * k * n
    r = alternate.row(f"matvec 4096 {dtype} {order}", found, label, size, 0, ceiling["read_gb_s"])
    return r | {"gflop_s": 2e-3 * k * n / r["us"]}


# ---------------------------------------------------------------- int4


def int4_parts(k: int, n: int):
    """Codes [N, K], scales and whole zero points [N, K / 32], as peers hold them."""
    rng = np.random.default_rng(11)
    codes = rng.integers(0, 16, (n, k), dtype=np.uint8)
    scales = (rng.random((n, k // 32)) * 0.02 + 0.005).astype(np.float16)
    return codes, scales, np.full((n, k // 32), 8, np.float16)


def whole_weight(codes, scales, zeros) -> np.ndarray:
    groups = codes.reshape(codes.shape[0], -1, 32).astype(np.float64)
    wide = (groups - zeros[..., None].astype(np.float64)) * scales[..., None].astype(np.float64)
    return wide.reshape(codes.shape).T


def int4_ours(threads: int, x: np.ndarray, parts, count: int, second: str, rounded=None) -> Ours:
    """`second` says how the offsets are held: "zeros", or "biases" of the same weights.

    `rounded` is what the product rounds the row to first, or None.
    """
    codes, scales, zeros = parts
    offsets = zeros if second == "zeros" else -zeros * scales
    n, k = codes.shape
    nibbles = codes.reshape(-1, 8).astype(np.uint32) << np.arange(0, 32, 4, dtype=np.uint32)
    words = np.bitwise_or.reduce(nibbles, axis=1)
    ours = Ours(threads)
    row = ours.port("input", "x", accel.F32, (k,), x)
    for i in range(count):
        planes = {
            "codes": ours.port("weight", f"w{i}.codes", accel.U32, words.shape, words),
            "scales": ours.port("weight", f"w{i}.scales", accel.F16, (scales.size,), scales),
            second: ours.port("weight", f"w{i}.{second}", accel.F16, (offsets.size,), offsets),
        }
        weight = T.Int4(weights=n * k, group=32, **planes)
        product = T.int4_matvec(row, weight, w_order="nk", activations=rounded)
        ours.builder.output(f"out{i}", product)
    return ours.ready()


def int4_torch(x: np.ndarray, parts, count: int, dtype: str):
    """torch's own int4 product: groups of 32 with a scale and a zero, in the dtype of x."""
    codes, scales, _ = parts
    both = np.stack([scales.astype(np.float32), np.zeros_like(scales, np.float32)], axis=-1)
    planes = torch.from_numpy(both).transpose(0, 1).contiguous().to(TORCH[dtype])
    packed = [
        torch.ops.aten._convert_weight_to_int4pack_for_cpu(
            torch.from_numpy(codes.astype(np.int32)), 1
        )
        for _ in range(count)
    ]
    planes = [planes.clone() for _ in range(count)]
    xs = torch.from_numpy(x).to(TORCH[dtype])
    product = torch.ops.aten._weight_int4pack_mm_for_cpu
    return lambda: [product(xs, w, 32, p) for w, p in zip(packed, planes, strict=True)]


def int4_onnx(threads: int, x: np.ndarray, parts, count: int, level: int):
    """One session whose graph multiplies x with each weight: MatMulNBits, group 32."""
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper

    codes, scales, _ = parts
    n, k = codes.shape
    packed = (codes[:, 0::2] | codes[:, 1::2] << 4).reshape(n, k // 32, 16)
    nodes, initializers, outputs = [], [], []
    for i in range(count):
        initializers += [
            numpy_helper.from_array(np.roll(packed, i, 0), f"b{i}"),
            numpy_helper.from_array(np.roll(scales, i, 0).astype(np.float32).reshape(-1), f"s{i}"),
        ]
        nodes.append(
            helper.make_node(
                "MatMulNBits",
                ["x", f"b{i}", f"s{i}"],
                [f"y{i}"],
                domain="com.microsoft",
                K=k,
                N=n,
                bits=4,
                block_size=32,
                accuracy_level=level,
            )
        )
        outputs.append(helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, [1, n]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, k])]
    graph = helper.make_graph(nodes, "rotated", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, {"x": x})


def check_rounded(got: np.ndarray, x: np.ndarray, w: np.ndarray, what: str) -> None:
    """A row rounded to int8 in groups of 32: each x moves by half a step at most, the largest of
    its group being 127 steps. Then come four roundings a group and those of the planes' offsets.
    """
    wide = np.abs(x.astype(np.float64)).reshape(-1, 32)
    steps = np.repeat(wide.max(axis=1) / 127, 32)[None]
    terms = 4 * wide.shape[0] + 8
    moved = 0.5 * steps + terms * UNIT * (np.abs(x) + steps)
    bound = 1.01 * (moved @ np.abs(w)).ravel()
    error = np.abs(got.ravel() - (x.astype(np.float64) @ w).ravel())
    assert (error <= bound).all(), f"{what}: {error.max():.3g} beyond {bound.max():.3g}"


INT8_PEER = "ONNX Runtime, level 4"  # rounds the row to int8, as activations="int8" does


def int4_rows(threads: int, ceiling: dict) -> list[dict]:
    k = n = 4096
    size = k * n // 2 + 2 * 2 * (k * n // 32)
    count = ROTATED // size
    parts = int4_parts(k, n)
    x = np.random.default_rng(13).standard_normal((1, k)).astype(np.float32)
    whole = whole_weight(*parts)
    exact = x.astype(np.float64) @ whole
    sides = {second: int4_ours(threads, x, parts, count, second) for second in ("biases", "zeros")}
    for second, ours in sides.items():
        check(ours.result(), x, whole, k // 16 + 8, f"int4 matvec, {second}")
    rounded = {}
    for second in ("biases", "zeros"):
        name = f"{second}, int8 rows"
        rounded[name] = int4_ours(threads, x, parts, count, second, "int8")
        check_rounded(rounded[name].result(), x, whole, f"int4 matvec, {name}")
    found = []
    peers = {
        "torch int4 f32": lambda: int4_torch(x, parts, count, "f32"),
        "torch int4 bf16": lambda: int4_torch(x, parts, count, "bf16"),
        "ONNX Runtime, level 0": lambda: int4_onnx(threads, x, parts, count, 0),
        INT8_PEER: lambda: int4_onnx(threads, x, parts, count, 4),
    }
    for label, make in peers.items():
        theirs = make()
        result = np.asarray(torch.as_tensor(theirs()[0]).to(torch.float64))
        loss = float(np.abs(result - exact).max() / np.abs(exact).max())
        assert loss < 0.05, f"{label}: {loss}"
        for second, ours in (sides | (rounded if label == INT8_PEER else {})).items():
            times = alternate.alternate({"accel": ours, label: theirs}, rounds=7)
            times = {name: [us / count for us in all_] for name, all_ in times.items()}
            name = f"int4 matvec 4096, {second}"
            r = alternate.row(name, times, label, size, 0, ceiling["read_gb_s"])
            found.append(r | {"gflop_s": 2e-3 * k * n / r["us"], "peer_loss": loss})
        del theirs
        gc.collect()
    return found


SHAPES = ((1024, 1024, 1024), (512, 576, 1536))


def rows(threads: int, only: str = "") -> list[dict]:
    torch.set_num_threads(threads)
    found = []
    with torch.inference_mode():
        for shape in SHAPES:
            for dtype in DTYPES:
                for order in ("nk", "kn"):
                    if only in f"matmul {'x'.join(map(str, shape))} {dtype} {order}":
                        found += matmul_rows(threads, shape, dtype, order, alternate.probe(threads))
        for dtype in DTYPES:
            for order in ("nk", "kn"):
                if only in f"matvec 4096 {dtype} {order}":
                    found.append(matvec_row(threads, dtype, order, alternate.probe(threads)))
                    gc.collect()
        if only in "int4 matvec 4096":
            found += int4_rows(threads, alternate.probe(threads))
    return found


if __name__ == "__main__":
    sys.exit(alternate.main(__doc__.splitlines()[0], rows))
