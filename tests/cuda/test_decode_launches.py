"""How many launches a decode step of a Llama is on CUDA: seven a layer."""

import numpy as np
import pytest
from accel import F16, F32, _core
from accel.llm.models.config import Config
from accel.llm.models.decoder import GGUF, Traits
from accel.llm.models.graph import Graph, Step
from accel.llm.models.llama import Llama
from accel.llm.models.rope import Rope
from accel.llm.weights import Held
from conftest import open_runtime

LAYERS = 3
SIZES = {"layers": LAYERS, "hidden": 128, "ffn": 192, "heads": 4, "kv_heads": 2, "head_dim": 32}
SIZES |= {"vocab": 320, "context": 64, "rotary_dim": 32}


def held(part, form: str) -> Held:
    if part.kind == "vector":
        return Held(part.port, part.stored, part.shape, "array", F32, False, 32, "F32", "f32", 0.0)
    return Held(part.port, part.stored, part.shape, form, F16, True, 32, form, form, 0.0)


def step(form: str, cache, backend: str):
    """The launches of a decode step."""
    config = Config(
        bos=None, eos=None, quantization="", architecture="llama", rope_base=1e4, eps=1e-5,
        tied=True, **SIZES,
    )  # fmt: skip
    model = Llama("synthetic", config, Traits(Rope(1e4, 32), pairing="adjacent"), GGUF)
    kinds = {part.name: held(part, "int8" if form == "int4" and part.kind == "table" else form)
             for part in model.parts()}  # fmt: skip
    builder = open_runtime(None).new_builder("step")
    model.record(Graph(builder, kinds, model.states(cache), Step(1, "last")))
    return _core._launches(builder, backend, True)


@pytest.mark.parametrize("form", ["array", "int8", "int4"])
@pytest.mark.parametrize("cache", [F16, F32], ids=str)
def test_a_layer_is_seven_launches(form, cache):
    rows = step(form, cache, "cuda")
    runs = [row["function"] for row in rows if row["kernel"] == "combined"]
    ropes = sum(name.startswith("rope_write") for name in runs)
    fused = sum(name.endswith("_fused") for name in runs)
    # Around attention and its merge; the last norm goes into the head.
    assert (ropes, fused, len(runs)) == (LAYERS, 4 * LAYERS + 1, 5 * LAYERS + 1)
    assert np.all([row["group_bytes"] > 0 for row in rows if row["function"].endswith("_fused")])


@pytest.mark.parametrize("form", ["array", "int4"])
def test_on_matrix_units_products_by_f16_are_launches_of_their_own(form):
    """The others keep their rings, and what stands among the products is combined as before."""
    rows = step(form, F16, "cuda_matrix")
    runs = [row["function"] for row in rows if row["kernel"] == "combined"]
    units = [row["function"] for row in rows if "_matrix16_" in row["function"]]
    assert sum(name.startswith("rope_write") for name in runs) == LAYERS
    if form == "array":  # seven a layer and the head
        assert units == ["matmul_matrix16_nk_f32_f16_rows1"] * (7 * LAYERS + 1)
        assert len(runs) == LAYERS
    else:
        assert units == [] and len(runs) == 5 * LAYERS + 1
