"""Commands that nothing joins are unordered: wrong numbers for some seed, a name in check mode.

Two encoders or command buffers: one doubles `a` into `b`, the next adds 1 to `b` into `c`.
"""

import ctypes

import numpy as np
import pytest
from emulator import CONCURRENT, SERIAL, UNTRACKED, P

pytestmark = pytest.mark.metal

SOURCE = """#include <metal_stdlib>
using namespace metal;
kernel void twice(device const float* a [[buffer(0)]], device float* b [[buffer(1)]],
                  uint i [[thread_position_in_grid]]) {
  b[i] = a[i] * 2.0f;
}
kernel void next(device const float* b [[buffer(0)]], device float* c [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
  c[i] = b[i] + 1.0f;
}
"""
RACE = "another command, with no barrier, fence or event between them"


class Chain:
    """The two steps; a way to join them is called between and around."""

    def __init__(self, run, options):
        self.r = run(SOURCE)
        self.e = self.r.e
        # The host waits at the end of every case: nothing takes this long, and no order is luck.
        self.e.lib.metalemu_set_grace(2000)
        for name in ("twice", "next"):
            self.r.pipeline(name)
        self.a = self.r.buffer(np.arange(64, dtype=np.float32), options)
        self.b = self.r.buffer(np.zeros(64, np.float32), options)
        self.c = self.r.buffer(np.zeros(64, np.float32), options)

    def first(self, e):
        e.dispatch("twice", [self.a, self.b], 2, 32)

    def second(self, e):
        e.dispatch("next", [self.b, self.c], 2, 32)

    def right(self):
        want = np.arange(64, dtype=np.float32) * 2 + 1
        return np.array_equal(self.e.contents(self.c, np.float32), want)


def in_one_encoder(chain, kind=CONCURRENT, barrier=None):
    c = chain.r.commands()
    with c.compute(kind) as e:
        chain.first(e)
        if barrier:
            barrier(chain, e)
        chain.second(e)
    c.finish()


def in_two_encoders(chain, fence=False, kind=SERIAL):
    c = chain.r.commands()
    f = chain.r.new("newFence")
    with c.compute(kind) as e:
        chain.first(e)
        if fence:
            e.update(f)
    with c.compute(kind) as e:
        if fence:
            e.wait(f)
        chain.second(e)
    c.finish()


def in_two_buffers(chain, event=None, fence=False, wait=False, poll=False):
    one, two = chain.r.commands(), chain.r.commands()
    e = chain.r.new(event) if event else None
    f = chain.r.new("newFence")
    with one.compute() as c:
        chain.first(c)
        if fence:
            c.update(f)
    if event:
        one.signal(e, 5)
    one.commit()
    if wait:
        one.wait()
    if poll:
        chain.e.lib.metalemu_set_grace(1)
    while poll and chain.e.msg(one.it, "status", returns=ctypes.c_size_t) < 4:
        pass
    if event:
        two.wait_for(e, 5)
    with two.compute() as c:
        if fence:
            c.wait(f)
        chain.second(c)
    two.finish()


def scope(chain, e):
    e.barrier()


def resources(*names):
    def barrier(chain, e):
        held = (P * len(names))(*(getattr(chain, n) for n in names))
        e.send("memoryBarrierWithResources:count:", ctypes.cast(held, P), len(names))

    return barrier


UNTRACKED_JOINED = {
    "serial encoder": lambda c: in_one_encoder(c, SERIAL),
    "barrier of all": lambda c: in_one_encoder(c, barrier=scope),
    "barrier of the resource": lambda c: in_one_encoder(c, barrier=resources("b")),
    "fence": lambda c: in_two_encoders(c, fence=True),
    "fence, concurrent encoders": lambda c: in_two_encoders(c, fence=True, kind=CONCURRENT),
    "fence between command buffers": lambda c: in_two_buffers(c, fence=True),
    "event": lambda c: in_two_buffers(c, "newEvent"),
    "shared event": lambda c: in_two_buffers(c, "newSharedEvent"),
    "the host waits": lambda c: in_two_buffers(c, wait=True),
    "the host asks": lambda c: in_two_buffers(c, poll=True),
}
LOOSE = {
    "concurrent encoder": in_one_encoder,
    "two encoders": in_two_encoders,
    "two concurrent encoders": lambda c: in_two_encoders(c, kind=CONCURRENT),
    "two command buffers": in_two_buffers,
}


@pytest.mark.parametrize(
    "mode", [(False, 1), (False, 2), (False, 9), (True, 1), (True, 2)], ids=str
)
@pytest.mark.parametrize("how", UNTRACKED_JOINED)
def test_what_is_joined_is_ordered(emu, run, how, mode):
    emu.mode(*mode)
    chain = Chain(run, UNTRACKED)
    UNTRACKED_JOINED[how](chain)
    assert chain.right()


@pytest.mark.parametrize("how", LOOSE)
def test_what_nothing_joins_runs_in_another_order(emu, run, how):
    chain = Chain(run, UNTRACKED)
    LOOSE[how](chain)
    assert chain.right()  # the natural order hides it
    emu.mode(seed=2)
    chain = Chain(run, UNTRACKED)
    LOOSE[how](chain)
    assert not chain.right()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("how", LOOSE)
def test_what_nothing_joins_is_named(emu, run, how, seed):
    emu.mode(check=True, seed=seed)
    LOOSE[how](Chain(run, UNTRACKED))
    assert RACE in emu.taken()


@pytest.mark.parametrize("mode", [(False, 2), (True, 1), (True, 2)], ids=str)
@pytest.mark.parametrize("how", ["two encoders", "two concurrent encoders", "two command buffers"])
def test_tracked_resources_are_ordered_between_encoders(emu, run, how, mode):
    emu.mode(*mode)
    chain = Chain(run, 0)
    LOOSE[how](chain)
    assert chain.right()


def test_tracking_does_not_order_a_concurrent_encoder(emu, run):
    emu.mode(check=True)
    in_one_encoder(Chain(run, 0))
    assert RACE in emu.taken()


def test_a_barrier_of_another_resource_does_not_help(emu, run):
    emu.mode(check=True)
    in_one_encoder(Chain(run, UNTRACKED), barrier=resources("a", "c"))
    assert RACE in emu.taken()


def test_a_fence_that_nothing_updates_is_named(emu, run):
    chain = Chain(run, UNTRACKED)
    c = chain.r.commands()
    with c.compute() as e:
        e.wait(chain.r.new("newFence"))
        chain.first(e)
    c.finish()
    assert "fence: waitForFence" in emu.taken()


def test_a_fence_covers_only_what_precedes_its_update(emu, run):
    emu.mode(check=True)
    chain = Chain(run, UNTRACKED)
    c = chain.r.commands()
    f = chain.r.new("newFence")
    with c.compute() as e:
        e.update(f)
        chain.first(e)
    with c.compute() as e:
        e.wait(f)
        chain.second(e)
    c.finish()
    assert RACE in emu.taken()


def test_copies_have_an_order_too(emu, run):
    emu.mode(check=True)
    chain = Chain(run, UNTRACKED)
    c = chain.r.commands()
    with c.compute() as e:
        chain.first(e)
    blit = emu.msg(c.it, "blitCommandEncoder")
    copy = "copyFromBuffer:sourceOffset:toBuffer:destinationOffset:size:"
    emu.msg(blit, copy, P(chain.b), 0, P(chain.c), 0, 256, returns=None)
    emu.msg(blit, "endEncoding", returns=None)
    c.finish()
    assert "a copy: read of device memory" in emu.taken()


def test_an_event_joins_two_queues(emu, run):
    emu.mode(check=True, seed=2)
    chain = Chain(run, UNTRACKED)
    event = chain.r.new("newEvent")
    other = chain.r.new("newCommandQueue")
    two = emu.msg(other, "commandBuffer")  # committed first, and waits
    emu.msg(two, "encodeWaitForEvent:value:", P(event), 1, returns=None)
    enc = emu.msg(two, "computeCommandEncoder")
    emu.msg(enc, "setComputePipelineState:", P(chain.r.pipeline("next")), returns=None)
    for i, b in enumerate((chain.b, chain.c)):
        emu.msg(enc, "setBuffer:offset:atIndex:", P(b), 0, i, returns=None)
    dispatch = "dispatchThreadgroups:threadsPerThreadgroup:"
    emu.msg(enc, dispatch, emu.size(2, 1, 1), emu.size(32, 1, 1), returns=None)
    emu.msg(enc, "endEncoding", returns=None)
    emu.msg(two, "commit", returns=None)
    one = chain.r.commands()
    with one.compute() as e:
        chain.first(e)
    one.signal(event, 1)
    one.commit()
    emu.msg(two, "waitUntilCompleted", returns=None)
    assert chain.right()


def test_the_same_step_after_a_host_that_waited_is_ordered(emu, run):
    """A host that reuses its buffers step after step, waiting in between, has no race."""
    emu.mode(check=True, seed=4)
    chain = Chain(run, UNTRACKED)
    for _ in range(20):
        in_one_encoder(chain, barrier=scope)
    assert chain.right()
