"""The samplers beside the logits processors of transformers.

Both keep the same tokens except where theirs decides otherwise by design or by rounding, and such
rows are left out: TopKLogitsWarper keeps every token that ties with the k-th, and where a
cumulative probability comes closer to p, or to a draw, than both sums round, either may be right.
"""

import numpy as np
import pytest
import torch
from accel import tensor as T
from conftest import open_runtime
from runner import Graph, run
from transformers.generation import logits_process as peers

pytestmark = pytest.mark.peers

F32, U32 = np.float32, np.uint32


def logits_of(rng, rows=400, vocab=500):
    x = rng.standard_normal((rows, vocab)) * rng.choice([0.5, 2, 5], (rows, 1))
    return x.astype(F32)


def kept_by(warper, x):
    """Scores after a warper; what it drops is -inf."""
    with torch.no_grad():
        return warper(torch.zeros((len(x), 1), dtype=torch.long), torch.from_numpy(x)).numpy()


def masked(isa, x, mask):
    g = Graph(open_runtime(isa))
    g.output("out", mask(T.softmax(g.port("x", x))))
    return run(open_runtime(isa).device, g)["out"]


U = 2.0**-24


def weight_error(x):
    """Relative, of both softmaxes in f32: scores move by half a unit in each of three steps
    (penalty, temperature, difference to the maximum), exp by 4 ULP, the division by 2.5."""
    return 2 * (3 * np.abs(x[np.isfinite(x)]).max() + 8 + 5) * U


def cumulative(w):
    """Running sums, and what a sequential f32 sum may be off by: half a unit of each of them."""
    sums = np.cumsum(w, axis=-1)
    return sums, U * np.cumsum(sums, axis=-1)


def crosses_clearly(x, p):
    """Rows in which no cumulative probability comes as close to p as both sums round: ours from the
    largest down, theirs from the smallest up."""
    w = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    w = -np.sort(-w / w.sum(1, keepdims=True), axis=1)
    sums, down = cumulative(w)
    up = cumulative(w[:, ::-1])[1][:, ::-1]
    return (np.abs(sums - p) > down + up + weight_error(x)).all(1)


@pytest.mark.parametrize("k", [1, 40, 128, 300])
def test_top_k_keeps_the_same_tokens(k, isa, rng):
    x = logits_of(rng)
    got = masked(isa, x, lambda w: T.top_k_mask(w, k, exact=True)) != 0
    assert (got == np.isfinite(kept_by(peers.TopKLogitsWarper(k), x.copy()))).all()
    assert (got.sum(1) == k).all()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9, 0.99])
def test_top_p_keeps_the_same_tokens(p, isa, rng):
    x = logits_of(rng)
    got = masked(isa, x, lambda w: T.top_p_mask(w, p, exact=True)) != 0
    theirs = np.isfinite(kept_by(peers.TopPLogitsWarper(p), x.copy()))
    clear = crosses_clearly(x, p)
    assert clear.mean() > 0.5 and (got == theirs)[clear].all()
    assert len(np.unique(got.sum(1))) > 3


def test_sample_rows_draws_what_the_chain_of_processors_gives(isa, rng):
    """Penalty, temperature, top-k and top-p of each row; a draw as close to the edge between two
    tokens as its sum rounds may fall on either."""
    rows, vocab = 300, 200
    x = logits_of(rng, rows, vocab)
    history = rng.integers(0, vocab, (rows, 20)).astype(U32)
    repetition = rng.choice([1.0, 1.2, 0.8], rows).astype(F32)
    temperature = rng.choice([0.5, 1.0, 1.5], rows).astype(F32)
    top_k = rng.choice([3, 50, 150], rows).astype(U32)
    top_p = rng.choice([0.3, 0.8, 0.95], rows).astype(F32)
    draws = rng.random(rows).astype(F32)
    g = Graph(open_runtime(isa))
    f = {
        n: g.port(n, a)
        for n, a in {
            "factor": F32(1) / temperature,
            "top_k": top_k,
            "top_p": top_p,
            "filled": np.full(rows, 20, U32),
            "repetition": repetition,
            "zero": np.zeros(rows, F32),
        }.items()
    }
    counts = g.port("counts", np.zeros((rows, vocab), U32), "state")
    g.writes(counts)
    penalties = T.RowPenalties(
        g.port("history", history, "state"),
        counts,
        f["filled"],
        f["repetition"],
        f["zero"],
        f["zero"],
    )
    policy = T.RowSampling(f["factor"], f["top_k"], f["top_p"], penalties=penalties)
    g.output("out", T.sample_rows(g.port("x", x), g.port("draws", draws), policy))
    got = run(open_runtime(isa).device, g)["out"]

    compared = 0
    for row in range(rows):
        ids = torch.from_numpy(history[row : row + 1].astype(np.int64))
        s = torch.from_numpy(x[row : row + 1].copy())
        with torch.no_grad():
            s = peers.RepetitionPenaltyLogitsProcessor(float(repetition[row]))(ids, s)
            s = peers.TemperatureLogitsWarper(float(temperature[row]))(ids, s)
            s = peers.TopKLogitsWarper(int(top_k[row]))(ids, s)
            if not crosses_clearly(s.numpy(), float(top_p[row]))[0]:
                continue
            s = peers.TopPLogitsWarper(float(top_p[row]))(ids, s)
        w = torch.softmax(s.double(), -1)[0].numpy()
        edges, off = cumulative(w)
        if (np.abs(edges - draws[row]) <= off + weight_error(s.numpy())).any():
            continue
        compared += 1
        assert got[row] == np.searchsorted(edges, draws[row], "right"), row
    assert compared > 0.8 * rows and len(set(got.tolist())) > 20
