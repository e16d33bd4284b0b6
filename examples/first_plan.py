"""Record a graph once, compile it once, submit it many times."""

from __future__ import annotations

import accel
import numpy as np
from accel import tensor as T

device = accel.open_best(prefer=("cpu",))
runtime = accel.Runtime(device)

b = runtime.new_builder("mlp")
x = b.input("x", accel.F32, [4, 64])
up = b.weight("up", accel.F32, [256, 64])
down = b.weight("down", accel.F16, [64, 256])
hidden = T.silu(T.matmul(x, up, w_order="nk"))
b.output("y", x + T.matmul(hidden, down, w_order="nk"))
plan = b.compile()

rng = np.random.default_rng(0)
y = np.zeros((4, 64), np.float32)
bound = plan.bind(
    {
        "x": rng.standard_normal((4, 64)).astype(np.float32),
        "up": rng.standard_normal((256, 64)).astype(np.float32),
        "down": rng.standard_normal((64, 256)).astype(np.float16),
        "y": y,  # written in place
    }
)
for step in range(3):
    bound["x"] = rng.standard_normal((4, 64)).astype(np.float32)
    assert plan.submit(bound).wait()
    print(f"step {step}: y[0, :3] = {y[0, :3]}")

for s in plan.selections():
    print(f"{s.op:8} {s.kernel:22} {s.reason}")
print(plan.memory())
