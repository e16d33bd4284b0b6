"""An int4 weight beside the weight it came from: what it costs and what it loses."""

from __future__ import annotations

import accel
import numpy as np
from accel import quant
from accel import tensor as T

M, K, N = 3, 512, 256
rng = np.random.default_rng(1)
weight = rng.standard_normal((N, K)).astype(np.float32)
planes = quant.int4_quantize(weight, group=64)
assert planes.zeros is not None  # GGUF's affine types have biases instead

runtime = accel.Runtime(accel.open_cpu())
b = runtime.new_builder("int4")
x = b.input("x", accel.F32, [M, K])
b.output("y", T.int4_matmul(x, b.int4("w", [N, K], group=64), w_order="nk"))
plan = b.compile()

activations = rng.standard_normal((M, K)).astype(np.float32)
y = np.zeros((M, N), np.float32)
bindings = {
    "x": activations,
    "w.codes": planes.codes,
    "w.scales": planes.scales,
    "w.zeros": planes.zeros,
    "y": y,
}
assert plan.submit(bindings).wait()

exact = activations @ weight.T
scales, zeros = (np.repeat(p[: K // 64], 64).astype("f4") for p in (planes.scales, planes.zeros))
bound = quant.int4_bound(activations[0], scales, zeros)
print(f"bytes: {planes.codes.nbytes + planes.scales.nbytes * 2} of {weight.nbytes}")
print(f"largest difference {np.abs(y - exact).max():.3f}; bound of one element {bound:.3f}")
