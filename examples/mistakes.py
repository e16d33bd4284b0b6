"""Three mistakes in one model, reported together, each with its own line."""

from __future__ import annotations

import accel
from accel import tensor as T

runtime = accel.Runtime(accel.open_cpu())
b = runtime.new_builder("wrong")
x = b.input("x", accel.F32, [2, 8])
h = T.rms_norm(x, b.weight("gain", accel.F32, [7]), eps=1e-5)
y = T.matmul(x, b.weight("w", accel.F32, [9, 4]))
z = T.softmax(T.cast(x, accel.F16))
b.output("h", h)  # of a refused call: nothing more is said
try:
    b.compile()
except accel.GraphError as e:
    for d in e.diagnostics:
        print(f"{d.message}\n    at line {d.line}")
