"""rope_write, one launch, has the bits of rope, cast and scatter_rows one after another."""

import sys
from pathlib import Path

import accel
import numpy as np
import pytest
from accel import tensor as T
from runner import Graph, equal_bits
from runner import run as submit

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import embed_shaders

pytestmark = pytest.mark.metal
F32, U32 = np.float32, np.uint32
PARAMS, PLACES = 27, 12
PADDING = 2**32 - 1

# rows, heads of q and of the cache, width of a head, how much of it turns, width of a value's row,
# capacity of the cache, ids
STEPS = {
    "one row": (1, 9, 3, 64, 64, 192, 40, [17]),
    "a part turns": (1, 4, 2, 80, 32, 96, 9, [8]),
    "odd widths": (1, 3, 1, 7, 6, 5, 3, [0]),
    "padding": (1, 2, 2, 16, 16, 32, 5, [PADDING]),
    "beyond the cache": (1, 2, 2, 16, 16, 32, 5, [5]),
    "many heads": (1, 40, 8, 128, 128, 1024, 30, [29]),
    "rows": (5, 9, 3, 64, 64, 192, 40, [3, 1, PADDING, 40, 0]),
    "equal ids": (7, 2, 1, 34, 34, 35, 6, [2, 5, 2, 2, 5, 9, 9]),
    "all rows equal": (64, 1, 1, 8, 4, 8, 2, [1] * 64),
}


def step(rng, name, dtype, pairing):
    n, heads, kv, width, rotary, v_width, capacity, ids = STEPS[name]
    values = {
        "q": rng.standard_normal((n, heads, width)),
        "k": rng.standard_normal((n, kv, width)) * rng.choice([1, 1e-6, 1e5], (n, kv, width)),
        "v": rng.standard_normal((n, v_width)) * rng.choice([1, 1e-6, 1e5], (n, v_width)),
        "frequencies": rng.random(rotary // 2),
    }
    values = {key: a.astype(F32) for key, a in values.items()}
    for key in ("k", "v"):
        values[key].reshape(-1)[[0, -1]] = -np.nan, np.inf  # any NaN becomes one of f16
    values["positions"] = rng.integers(0, 5000, n).astype(U32)
    values["ids"] = np.array(ids, U32)
    values["keys"] = rng.standard_normal((capacity, kv, width)).astype(dtype)
    values["values"] = rng.standard_normal((capacity, v_width)).astype(dtype)
    return values, {"rotary_dim": rotary, "pairing": pairing}


def separate(values, options):
    device = accel.open_cpu(threads=1)
    g = Graph(accel.Runtime(device))
    kinds = {"keys": "state", "values": "state"}
    t = {name: g.port(name, a, kinds.get(name, "input")) for name, a in values.items()}

    def rope(x):
        return T.rope(t[x], t["positions"], frequencies=t["frequencies"], **options)

    g.output("out", rope("q"))
    for state, rows in (("keys", rope("k")), ("values", t["v"])):
        rows = T.cast(rows, t[state].dtype)
        T.scatter_rows(t[state], rows, t["ids"])
        g.writes(t[state])
    return submit(device, g)


def together(launch, values, options):
    """The launch that cpp/ops/rope_write.cc makes."""
    q, k, v = (values[name] for name in "qkv")
    n, width, rotary = len(q), q.shape[-1], options["rotary_dim"]
    items = width - rotary // 2
    groups = [
        -(-count // 256) for count in (n * q.shape[1] * items, n * k.shape[1] * items, v.size)
    ]
    ropes = [
        (n * x.shape[1], width, rotary, x.shape[1], options["pairing"] == "halves", 0)
        for x in (q, k)
    ]
    capacity = len(values["keys"])
    rest = (*groups[:2], n, k.shape[1], capacity, capacity, v.shape[1], 0)
    params = np.array([*ropes[0], *ropes[1], *rest], U32)
    got = {name: values[name].copy() for name in ("keys", "values")} | {"out": np.zeros_like(q)}
    turns = [values["positions"], values["frequencies"]]
    places = [q, *turns, got["out"], k, *turns, got["keys"], values["ids"]]
    places += [v, got["values"], values["ids"]]
    assert len(places) == PLACES
    absent = [bytes(4)] * (PARAMS - PLACES)
    function = f"rope_write_f{8 * values['keys'].itemsize}"
    launch.dispatch(function, [*places, *absent, params.tobytes()], sum(groups), 256)
    return got


@pytest.mark.parametrize("pairing", ["adjacent", "halves"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("name", STEPS)
def test_one_launch_has_the_bits_of_each(emu, run, rng, name, check, dtype, pairing):
    emu.mode(check=check, seed=3)
    text = dict(embed_shaders.flattened())["rope_write.metal"]
    values, options = step(rng, name, dtype, pairing)
    got, want = together(run(text), values, options), separate(values, options)
    assert got.keys() == want.keys()
    for port, array in want.items():
        equal_bits(got[port], array, f"{name} {port}")
        if array.dtype == np.float16:
            assert got[port].tobytes() == array.tobytes()
