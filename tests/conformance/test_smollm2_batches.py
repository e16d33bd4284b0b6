"""The whole SmolLM2 step: a sequence alone, in batches of 2 to 16 with others joining and leaving,
under any chunking, bucket, page order, capacity and thread count: one set of bits and tokens."""

import numpy as np
import pytest
from checkpoint import checkpoint_path, reference
from conftest import open_runtime
from serving import Request, Server
from smollm2 import SmolLM2

pytestmark = pytest.mark.slow

# Batch, blocks, positions a block, buckets, threads.
LOOPS = [
    (1, 16, 16, (8, 64), 1),
    (2, 40, 8, (3, 16, 32), 2),
    (5, 9, 32, (8, 64), 1),
    (16, 70, 7, (16, 40), 2),
]


@pytest.fixture(scope="module")
def model():
    return SmolLM2(checkpoint_path())


def requests() -> list[Request]:
    ids = reference()["perplexity"]["token_ids"]
    rng = np.random.default_rng(4)
    made = []
    for i in range(18):
        at, n = int(rng.integers(0, 3000)), int(rng.integers(1, 30))
        made.append(
            Request(
                ids[at : at + n],
                int(rng.integers(2, 9)),
                seed=i,
                temperature=0.0 if i % 3 == 0 else 0.8,
                top_k=[0, 40][i % 2],
                top_p=[0, 0.9, 0][i % 3],
                arrival=int(rng.integers(0, 12)),
            )
        )
    return made


def test_p26_29_a_sequence_of_the_real_model_gives_the_same_bits_in_any_batch(model, isa):
    want = None
    for number, (batch, blocks, block, buckets, threads) in enumerate(LOOPS):
        served = requests()
        loop = Server(open_runtime(isa, threads), model, batch, blocks, block, buckets)
        loop.serve(served, np.random.default_rng(number))
        assert loop.pool.available == blocks
        got = [(r.tokens, r.logits) for r in served]
        want = want or got
        for i, (mine, first) in enumerate(zip(got, want, strict=True)):
            assert mine[0] == first[0], f"request {i}: other tokens in a batch of {batch}"
            assert mine[1] == first[1], f"request {i}: other bits in a batch of {batch}"
    assert len({tuple(tokens) for tokens, _ in want}) > 12
