"""Property 27: buckets and block pools of the host, against models written from their rules."""

import threading

import accel
import numpy as np
import pytest
from accel import tensor as T

# ---------------------------------------------------------------- buckets


def test_p26_27_buckets_unsorted_exact_and_above():
    given = [512, 100, 2048]
    buckets = T.Buckets(*given)
    given[0] = 1
    assert buckets.sizes() == [100, 512, 2048]
    for n in range(1, 2049):
        assert buckets.for_length(n) == min(size for size in (100, 512, 2048) if size >= n)
    buckets.sizes().append(1)
    assert buckets.sizes() == [100, 512, 2048], "sizes() is a copy"
    assert T.Buckets(7).for_length(np.uint32(7)) == 7


@pytest.mark.parametrize(
    ("call", "operand", "words"),
    [
        (lambda: T.Buckets(), "sizes", "sizes is empty and must hold a size"),
        (lambda: T.Buckets(4, 0), "sizes", "sizes holds 0 and must hold positive sizes"),
        (lambda: T.Buckets(-3), "sizes", "sizes holds -3 and must hold positive sizes"),
        (lambda: T.Buckets(4, 8, 4), "sizes", "sizes holds 4 twice and must hold each size once"),
        (lambda: T.Buckets(4).for_length(0), "n", "n is 0 and must be positive"),
        (lambda: T.Buckets(4).for_length(-1), "n", "n is -1 and must be positive"),
        (
            lambda: T.Buckets(512, 100).for_length(513),
            "n",
            r"n is 513 and must be at most 512, the largest of \[100 512\]",
        ),
    ],
)
def test_p26_27_buckets_refuse(call, operand, words):
    with pytest.raises(accel.AttrError, match=words) as caught:
        call()
    assert caught.value.operand == operand


def test_buckets_take_integers_only():
    for call in (lambda: T.Buckets(1.0), lambda: T.Buckets(True), lambda: T.Buckets("4")):
        with pytest.raises(TypeError, match=r"Buckets: sizes\[0\] is a"):
            call()
    with pytest.raises(TypeError, match="for_length: n is a float"):
        T.Buckets(4).for_length(1.0)


# ---------------------------------------------------------------- block pool


def test_the_free_list_is_taken_from_its_end():
    pool = T.BlockPool(4, 16)
    assert (pool.block_size, pool.available) == (16, 4)
    first = pool.grow(None, 33)
    assert first == [2, 1, 0] and pool.available == 1
    assert pool.positions(first) == 48 and pool.positions([]) == 0
    same = pool.grow(first, 48)
    assert same is first
    assert pool.grow(first, 0) is first, "a pool never takes pages away"
    longer = pool.grow(first, 49)
    assert longer == [2, 1, 0, 3] and first == [2, 1, 0]
    pool.free([1, 2])
    assert pool.grow([], 1) == [2], "freed pages go to the end in the given order"
    assert pool.grow((0, 3, 2), 64) == [0, 3, 2, 1]
    assert pool.grow([], 0) == []


class Model:
    """The pool's rules once more, in lists."""

    def __init__(self, blocks, size):
        self.blocks, self.size = blocks, size
        self.list = list(range(blocks - 1, -1, -1))

    def bad(self, pages):
        found, met = [], set()
        for page in pages:
            if not 0 <= page < self.blocks or page in self.list or page in met:
                found.append(page)
            met.add(page)
        return found

    def grow(self, pages, n):
        if n < 0 or self.bad(pages):
            return accel.AttrError
        need = -(-n // self.size) - len(pages)
        if need <= 0:
            return list(pages)
        if need > len(self.list):
            return accel.CapacityError
        taken = self.list[-need:]
        del self.list[-need:]
        return list(pages) + taken

    def free(self, pages):
        if self.bad(pages):
            return accel.AttrError
        self.list += pages
        return None


def outcome(call):
    try:
        return call()
    except accel.Error as e:
        return type(e)


@pytest.mark.parametrize("seed", range(6))
def test_p26_27_block_pool_against_a_model(seed):
    rng = np.random.default_rng(seed)
    blocks, size = int(rng.integers(1, 40)), int(rng.integers(1, 9))
    pool, model = T.BlockPool(blocks, size), Model(blocks, size)
    held = [[] for _ in range(5)]
    seen = set()
    for _ in range(3000):
        i = int(rng.integers(len(held)))
        pages = list(held[i])
        if rng.random() < 0.15:  # spoil the list: a page of anybody, of nobody, or again
            pages.insert(int(rng.integers(len(pages) + 1)), int(rng.integers(-2, blocks + 2)))
        if rng.random() < 0.6:
            n = int(rng.integers(-1, size * blocks))
            want = model.grow(pages, n)
            got = outcome(lambda p=pages, n=n: pool.grow(p, n))
            if isinstance(want, list) and pages == held[i]:
                held[i] = list(want)
            elif isinstance(want, list):  # the spoiled list was another's page after all
                extra = [p for p in want if p not in pages]
                model.free(extra)
                if extra:
                    pool.free(extra)
        else:
            want, got = model.free(list(pages)), outcome(lambda p=pages: pool.free(p))
            if want is None:
                for page in pages:
                    for other in held:
                        if page in other:
                            other.remove(page)
        assert got == want
        seen.add(want if isinstance(want, type) else type(want))
        assert pool.available == len(model.list)
    # The order of the free list, by taking all of it.
    rest = list(model.list)
    assert pool.grow([], len(rest) * size) == rest
    assert seen == {accel.AttrError, accel.CapacityError, list, type(None)}


def test_exhausted_carries_its_numbers_and_changes_nothing():
    pool = T.BlockPool(4, 16)
    pages = pool.grow(None, 17)
    with pytest.raises(accel.CapacityError, match="3 blocks are needed and 2 of 4 are free") as e:
        pool.grow(pages, 80)
    error = e.value
    assert (error.code, error.requested, error.free, error.limit) == ("exhausted", 3, 2, 4)
    assert pool.available == 2 and pool.grow(pages, 64) == [1, 0, 3, 2]


@pytest.mark.parametrize(
    ("call", "operand", "words"),
    [
        (lambda p: T.BlockPool(0, 4), "blocks", "blocks is 0 and must be positive"),
        (lambda p: T.BlockPool(4, -1), "positions", "positions is -1 and must be positive"),
        (lambda p: T.BlockPool(2**32, 4), "blocks", "is 4294967296 and must be at most 4294967295"),
        (lambda p: p.grow([9], -1), "n", "n is -1 and must not be negative"),
        (lambda p: p.grow([3], 1), "pages", "3 is free and must be pages in use"),
        (lambda p: p.grow([0, 0], 1), "pages", "0 is repeated"),
        (lambda p: p.grow([4], 1), "pages", r"4 never existed .* of \[0, 4\)"),
        (lambda p: p.grow([3], 2**40), "pages", "3 is free"),
        (lambda p: p.free([0, 3, 0, -7]), "pages", "3 is free, 0 is repeated, -7 never existed"),
    ],
)
def test_p26_27_block_pool_refuses_and_changes_nothing(call, operand, words):
    pool = T.BlockPool(4, 16)
    assert pool.grow(None, 20) == [1, 0]
    with pytest.raises(accel.AttrError, match=words) as caught:
        call(pool)
    assert caught.value.operand == operand
    assert pool.available == 2
    pool.free([0, 1])
    assert pool.grow([], 64) == [3, 2, 0, 1]


def test_block_pool_takes_integers_only():
    pool = T.BlockPool(4, 16)
    for call in (
        lambda: T.BlockPool(4.0, 1),
        lambda: pool.grow(3, 1),
        lambda: pool.grow([], 1.0),
        lambda: pool.free([1.0]),
        lambda: pool.positions("12"),
    ):
        with pytest.raises(TypeError):
            call()
    big = T.BlockPool(4, 2**62)
    with pytest.raises(accel.AttrError, match="pages has 2 blocks of 4611686018427387904"):
        big.positions([0, 1])
    assert big.grow(None, 2**63 - 1) == [1, 0]


def test_block_pool_is_shared_between_threads():
    pool, errors = T.BlockPool(64, 4), []
    owner = [None] * 64

    def work(me):
        rng = np.random.default_rng(me)
        for _ in range(400):
            try:
                pages = pool.grow(None, int(rng.integers(1, 40)))
            except accel.CapacityError:
                continue
            for page in pages:
                if owner[page] is not None:
                    errors.append((page, owner[page], me))
                owner[page] = me
            for page in pages:
                owner[page] = None
            pool.free(pages)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and pool.available == 64
    assert sorted(pool.grow(None, 256)) == list(range(64))
