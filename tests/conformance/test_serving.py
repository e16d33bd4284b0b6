"""A paged serving loop: whatever the batch, chunks, pages and neighbours, a request gets the
bits of its solo run; blocks are lent, exhausted and given back."""

import accel
import numpy as np
import pytest
import tiny
from accel import tensor as T
from conftest import open_runtime
from serving import Request, Server, TinyModel

SIZE = tiny.Size()
BLOCK = 8


def requests(rng, count: int) -> list[Request]:
    made = []
    for i in range(count):
        greedy = rng.random() < 0.3
        made.append(
            Request(
                rng.integers(0, SIZE.vocab, rng.integers(1, 30)).tolist(),
                int(rng.integers(1, 12)),
                seed=i,
                temperature=0.0 if greedy else float(np.float32(rng.uniform(0.5, 1.5))),
                top_k=int(rng.choice([0, 3, 200])),
                top_p=float(np.float32(rng.choice([0, 0.6, 0.95]))),
                arrival=int(rng.integers(0, 150)),
            )
        )
    return made


def server(isa, threads, batch, blocks, block, weights) -> Server:
    model = TinyModel(SIZE, weights)
    return Server(open_runtime(isa, threads), model, batch, blocks, block, (4, 16, 48))


@pytest.fixture(scope="module")
def weights():
    return tiny.weights_of(SIZE, np.random.default_rng(3))


def test_p26_29_200_requests_equal_their_solo_runs(weights, isa):
    rng = np.random.default_rng(11)
    served = requests(rng, 200)
    # Too few blocks for all that are active: the pool is exhausted and recovers many times.
    loop = server(isa, 2, 6, 18, BLOCK, weights)
    loop.serve(served, rng)
    assert loop.pool.available == 18, "a block leaked"
    assert loop.exhausted > 0 and any(r.preempted for r in served)
    alone = server(isa, 1, 1, 12, 16, weights)  # other pages, capacity, batch and threads
    for r in served:
        solo = r.fresh()
        alone.serve([solo], np.random.default_rng(0))
        assert solo.tokens == r.tokens
        assert solo.logits == r.logits, "another batch gave other bits"
    assert alone.pool.available == 12
    assert len({tuple(r.tokens) for r in served}) > 100


def test_a_wrong_page_is_seen(weights, isa, monkeypatch):
    """The comparison has teeth: one page swapped changes a request's bits."""
    request = Request(list(range(20)), 4)
    good, bad = request.fresh(), request.fresh()
    server(isa, 1, 1, 12, BLOCK, weights).serve([good], np.random.default_rng(0))
    loop = server(isa, 1, 1, 12, BLOCK, weights)
    grow = loop.grow

    def swapped(r, n):
        grown = grow(r, n)
        if len(r.pages) > 2 and r.done > 16:
            r.pages = [r.pages[1], r.pages[0], *r.pages[2:]]
        return grown

    monkeypatch.setattr(loop, "grow", swapped)
    loop.serve([bad], np.random.default_rng(0))
    assert good.logits != bad.logits


def test_exhaustion_is_refused_and_changes_nothing():
    pool = T.BlockPool(3, 4)
    pages = pool.grow(None, 9)
    with pytest.raises(accel.CapacityError) as caught:
        pool.grow(pages, 13)
    assert caught.value.code == "exhausted"
    assert pool.available == 0 and pool.positions(pages) == 12
    pool.free(pages)
    assert pool.available == 3
