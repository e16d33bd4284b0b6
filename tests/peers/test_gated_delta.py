"""linear_attention beside eight implementations of the gated delta rule, decay first; one decay a
key and the rule without u beside one each.

Two sequences of 37 tokens with a state of their own; keys and queries of unit length, queries
divided by the square root of Dk. Results and states agree within 1e-6: values are around 1, and
the decays keep the roundings of few steps alive.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from dataclasses import dataclass

import numpy as np
import pytest
from accel import tensor as T
from cases_linear import gated_delta
from conftest import open_runtime
from runner import Graph, run

pytestmark = [pytest.mark.peers, pytest.mark.filterwarnings("ignore")]

BOUND = 1e-6
B, TOKENS, H, DK, DV = 2, 37, 4, 16, 24


@dataclass(frozen=True)
class Data:
    q: np.ndarray  # [B, tokens, H, Dk], unit length
    k: np.ndarray
    v: np.ndarray  # [B, tokens, H, Dv]
    log_decay: np.ndarray  # [B, tokens, H]
    beta: np.ndarray
    state: np.ndarray  # [B, H, Dv, Dk]
    log_decay_keys: np.ndarray  # [B, tokens, H, Dk]

    @property
    def scaled(self) -> np.ndarray:
        return (self.q * np.float32(DK**-0.5)).astype(np.float32)

    @property
    def decay(self) -> np.ndarray:
        return np.exp(self.log_decay)

    @property
    def by_key(self) -> np.ndarray:
        """The state as [B, H, Dk, Dv]."""
        return np.ascontiguousarray(self.state.swapaxes(-1, -2))


@pytest.fixture(scope="module")
def data() -> Data:
    rng = np.random.default_rng(2024)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    def unit(x):
        return (x / np.sqrt((x * x).sum(-1, keepdims=True))).astype(np.float32)

    return Data(
        unit(normal(B, TOKENS, H, DK)),
        unit(normal(B, TOKENS, H, DK)),
        normal(B, TOKENS, H, DV),
        -rng.random((B, TOKENS, H)).astype(np.float32),
        rng.random((B, TOKENS, H)).astype(np.float32),
        normal(B, H, DV, DK),
        -rng.random((B, TOKENS, H, DK)).astype(np.float32),
    )


def rows(x: np.ndarray) -> np.ndarray:
    """Sequences behind each other."""
    return np.ascontiguousarray(x.reshape(B * TOKENS, *x.shape[2:]))


def ours(d: Data, isa, decay=None, beta=None, decay_first=True, rule="delta"):
    g = Graph(open_runtime(isa))
    out, after = T.linear_attention(
        g.port("q", rows(d.scaled)),
        g.port("k", rows(d.k)),
        g.port("v", rows(d.v)),
        g.port("state", d.state, "state"),
        alpha=g.port("alpha", rows(d.decay if decay is None else decay)),
        beta=g.port("beta", rows(d.beta if beta is None else beta)),
        query_extents=g.port("extents", np.full(B, TOKENS, np.uint32)),
        decay_first=decay_first,
        rule=rule,
    )
    g.output("out", out)
    g.writes(after)
    got = run(open_runtime(isa).device, g)
    return got["out"].reshape(B, TOKENS, H, DV), got["state"]


# ------------------------------------------------------------------ the eight


def torches(*arrays):
    import torch

    return [torch.from_numpy(np.array(a)) for a in arrays]


def by_torch(f, d: Data, log_decay=None, **options):
    """f(query, key, value, g=, beta=) over torch tensors; it scales the queries itself."""
    log_decay = d.log_decay if log_decay is None else log_decay
    q, k, v, g, beta, state = torches(d.q, d.k, d.v, log_decay, d.beta, d.by_key)
    out, after = f(q, k, v, g=g, beta=beta, initial_state=state, output_final_state=True, **options)
    return out.numpy(), after.numpy().swapaxes(-1, -2)


def transformers_recurrent(d: Data):
    from transformers.models.qwen3_next import modeling_qwen3_next as m

    return by_torch(m.torch_recurrent_gated_delta_rule, d)


def transformers_chunk(d: Data):
    from transformers.models.qwen3_next import modeling_qwen3_next as m

    return by_torch(m.torch_chunk_gated_delta_rule, d, chunk_size=8)


def fla_module():
    """The reference file alone: the package itself wants a GPU compiler."""
    wanted = "fla/ops/gated_delta_rule/naive.py"
    path = next(f.locate() for f in importlib.metadata.files("fla-core") if f.as_posix() == wanted)
    spec = importlib.util.spec_from_file_location("gated_delta_naive", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fla_recurrent(d: Data):
    return by_torch(fla_module().naive_recurrent_gated_delta_rule, d)


def fla_chunk(d: Data):
    return by_torch(fla_module().naive_chunk_gated_delta_rule, d)


def onnx_model(rule="gated_delta"):
    from onnx import TensorProto, helper

    def info(name, *shape):
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    state = (B, H, DK, DV)
    inputs = [
        info("q", B, TOKENS, H * DK),
        info("k", B, TOKENS, H * DK),
        info("v", B, TOKENS, H * DV),
        info("s", *state),
        info("g", B, TOKENS, H),
        *([info("b", B, TOKENS, H)] if rule == "gated_delta" else []),
    ]
    node = helper.make_node(
        "LinearAttention",
        [x.name for x in inputs],
        ["out", "after"],
        q_num_heads=H,
        kv_num_heads=H,
        update_rule=rule,
    )
    outputs = [info("out", B, TOKENS, H * DV), info("after", *state)]
    graph = helper.make_graph([node], "gated_delta", inputs, outputs)
    opset = [helper.make_opsetid("", 27)]
    return helper.make_model(graph, opset_imports=opset, ir_version=12)


def by_onnx(session, d: Data, with_beta=True):
    feed = {name: x.reshape(B, TOKENS, -1) for name, x in zip("qkv", (d.q, d.k, d.v), strict=True)}
    feed |= {"s": d.by_key, "g": d.log_decay}
    if with_beta:
        feed["b"] = d.beta
    out, after = session.run(None, feed)
    return out.reshape(B, TOKENS, H, DV), after.swapaxes(-1, -2)


def onnx_reference(d: Data):
    from onnx.reference import ReferenceEvaluator

    return by_onnx(ReferenceEvaluator(onnx_model()), d)


def onnxruntime(d: Data):
    from onnxruntime import InferenceSession

    model = onnx_model().SerializeToString()
    return by_onnx(InferenceSession(model, providers=["CPUExecutionProvider"]), d)


def by_mlx(f, d: Data):
    """f takes scaled queries, the decay itself and the state as we keep it."""
    import mlx.core as mx

    arrays = (d.scaled, d.k, d.v, d.decay, d.beta, d.state)
    out, after = f(*(mx.array(a) for a in arrays))
    return np.array(out), np.array(after)


def mlx_fast(d: Data):
    import mlx.core as mx

    return by_mlx(mx.fast.gated_delta_update, d)


def mlx_lm(d: Data):
    from mlx_lm.models.gated_delta import gated_delta_ops

    return by_mlx(gated_delta_ops, d)


PEERS = (
    transformers_recurrent,
    transformers_chunk,
    fla_recurrent,
    fla_chunk,
    onnx_reference,
    onnxruntime,
    mlx_fast,
    mlx_lm,
)


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.__name__)
def test_the_gated_delta_rule_agrees(peer, data, isa):
    want, want_state = peer(data)
    got, state = ours(data, isa)
    assert len(np.unique(want)) > 1000
    assert np.abs(got - want).max() <= BOUND
    assert np.abs(state - want_state).max() <= BOUND


def test_one_decay_a_key_agrees(data, isa):
    from transformers.models.kimi_linear import modeling_kimi_linear as m

    f = m.recurrent_kimi_delta_attention
    want, want_state = by_torch(f, data, log_decay=data.log_decay_keys)
    got, state = ours(data, isa, decay=np.exp(data.log_decay_keys))
    assert np.abs(got - want).max() <= BOUND
    assert np.abs(state - want_state).max() <= BOUND


def test_the_rule_without_u_agrees(data, isa):
    from onnx.reference import ReferenceEvaluator

    session = ReferenceEvaluator(onnx_model("gated"))
    want, want_state = by_onnx(session, data, with_beta=False)
    got, state = ours(data, isa, beta=np.ones_like(data.beta), rule="add")
    assert np.abs(got - want).max() <= BOUND
    assert np.abs(state - want_state).max() <= BOUND


def test_the_float64_loop_agrees(data, isa):
    wide = [rows(x).astype(np.float64) for x in (data.scaled, data.k, data.v)]
    gates = [rows(x).astype(np.float64) for x in (data.decay, data.beta)]
    want, after = gated_delta(*wide, data.state, *gates, [TOKENS] * B, decay_first=True)
    got, state = ours(data, isa)
    assert np.abs(rows(got) - want).max() <= BOUND
    assert np.abs(state - after).max() <= BOUND


def test_a_late_decay_is_caught(data, isa):
    """A planted mutation: the form that reads the state before its decay is another rule."""
    want, _ = transformers_recurrent(data)
    got, _ = ours(data, isa, decay_first=False)
    assert np.abs(got - want).max() > 1000 * BOUND
