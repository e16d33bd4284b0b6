"""How the end of a submission is waited for, by what its plan usually takes: looks are counted, no
time is. The stand-in holds launches back for as long as a look, or a number of them, asks."""

import gc
import os
import subprocess
import sys
import threading
import time

import accel
import pytest
from accel import _core
from cuda_driver import (  # noqa: F401
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    calls,
    end_at_query,
    fail,
    failed,
    held,
    library,
    live,
    no_faults,
    nothing_fails,
    until,
)
from test_executor import bindings, bits, data, expected, norms

library()
USUAL = 0.2  # seconds: naps of 20 ms
# A wait of that length begins with ten looks at most between naps, and then makes seventeen before
# it looks at the clock. So the twelfth belongs to the spin, however busy the machine is.
SPUN = 12


class Ends:
    """How often ends were seen in each way, and looked at, since this was made."""

    def __init__(self):
        self.before = self.now()

    @staticmethod
    def now():
        seen = _core._ends_seen()
        return seen | {name: calls(f"cuEvent{name}") for name in ("Query", "Synchronize")}

    def __getitem__(self, name):
        return self.now()[name] - self.before[name]

    def seen(self):
        return tuple(self[name] for name in ("dozed", "early", "spun", "slept"))


def learn(plan, bound, runs=2, seconds=USUAL, **where):
    """Runs that take that long at least: their clock starts before the mark is recorded."""
    for _ in range(runs):
        with held():
            before = calls("cuEventRecord")
            fence = plan.submit(bound, **where)
            until(lambda before=before: calls("cuEventRecord") > before)
            time.sleep(seconds)
        assert fence.wait()


class Learned:
    def __init__(self, device, times=2, **where):
        self.arrays, self.where, self.times = data(), where, times
        self.plan = norms(accel.Runtime(device), times=times)
        self.bound = bindings(device, self.arrays)
        learn(self.plan, self.bound, **where)

    def submit(self):
        return self.plan.submit(self.bound, **self.where)

    def is_right(self):
        return bits(self.bound["y"].read()) == bits(expected(self.arrays, self.times))


@pytest.fixture
def device():
    until(lambda: live() == {})  # a context that a test lost is gone
    return accel.open_cuda()


def test_two_runs_teach_a_plan_and_its_third_end_is_awaited_awake(device):
    ends = Ends()
    run = Learned(device)
    assert (ends["dozed"], ends["spun"] + ends["slept"]) == (0, 2)
    for _ in range(2):
        ends = Ends()
        end_at_query(SPUN)
        assert run.submit().wait()
        assert ends.seen() == (1, 0, 1, 0)
        assert (ends["Query"], ends["Synchronize"]) == (SPUN, 0)
    assert run.is_right()


def test_the_waiter_and_the_worker_are_told_that_the_end_is_near(device):
    run = Learned(device)

    def told():
        ends = Ends()
        with held():
            fence = run.submit()
            waiter = threading.Thread(target=fence.wait)
            waiter.start()
            until(lambda: ends["Synchronize"] == 1)  # nothing ends before
        waiter.join()
        assert fence.wait() and ends["dozed"] == 1
        return ends["roused"] == 2

    # Both were asleep by then, unless the machine was too busy to let them.
    assert any(told() for _ in range(10))


def test_short_runs_are_spun_for_from_the_start(device):
    plan, bound = norms(accel.Runtime(device)), bindings(device, data())

    def spun():
        ends = Ends()
        end_at_query(2)
        assert plan.submit(bound).wait()
        assert ends["slept"] == 0 and ends["Query"] == 2
        return ends.seen() == (0, 0, 1, 0)

    assert spun() and spun()  # nothing is known of the plan
    # A machine that is busy may make two runs long ones.
    assert any(spun() for _ in range(50))


def test_an_early_end_is_seen_after_the_nap_that_it_falls_into(device):
    run = Learned(device)
    ends = Ends()
    end_at_query(2)  # the first look stands before the first nap
    assert run.submit().wait()
    assert ends.seen() == (1, 1, 0, 0)
    assert (ends["Query"], ends["Synchronize"]) == (2, 0)
    assert run.is_right()


def test_an_end_that_comes_late_is_slept_for_behind_the_spin(device):
    run = Learned(device)
    for _ in range(2):
        ends = Ends()
        with held():
            fence = run.submit()
            until(lambda ends=ends: ends["Synchronize"] == 1)
            assert not fence.done
        assert fence.wait()
        assert ends.seen() == (1, 0, 0, 1)
    assert run.is_right()


def test_submissions_behind_one_another_end_in_order(device):
    runs = [Learned(device, times) for times in (2, 3)]
    other, ends = data(seed=1)["x"], Ends()
    with held():
        fences = [runs[0].submit()]
        fences.append(device.queue.write_buffer(runs[0].bound["x"], 0, other))
        fences.append(runs[1].submit())
        until(lambda: ends["dozed"] == 1)
        assert not any(f.done for f in fences)
    assert fences[2].wait() and fences[0].done and fences[1].done
    assert ends["dozed"] == 2
    assert all(run.is_right() for run in runs)


@pytest.mark.parametrize("code", [INVALID_VALUE, ILLEGAL_ADDRESS])
def test_a_look_that_fails_between_naps_has_its_error(device, code):
    run = Learned(device)
    lost = code == ILLEGAL_ADDRESS
    with held():
        fail("cuEventQuery", 2, code)
        fence = run.submit()
        until(lambda: failed() == ["cuEventQuery"])
    with pytest.raises(accel.DeviceLostError if lost else accel.DeviceError, match=str(code)):
        fence.wait()
    nothing_fails()
    if lost:
        with pytest.raises(accel.DeviceLostError):
            run.submit().wait()
    else:
        assert run.submit().wait() and run.is_right()


def test_a_kernel_that_fails_between_naps_loses_the_device(device):
    run = Learned(device)
    fail("kernel", 1, ILLEGAL_ADDRESS)
    ends = Ends()
    end_at_query(2)
    with pytest.raises(accel.DeviceLostError, match=str(ILLEGAL_ADDRESS)):
        run.submit().wait()
    assert ends["early"] == 1 and ends["Synchronize"] == 0
    with pytest.raises(accel.DeviceLostError):
        run.submit().wait()


def test_closing_between_naps_is_refused_and_dropping_ends_well():
    device = accel.open_cuda()
    queue = device.new_queue("other")
    run = Learned(device, queue=queue)
    ends = Ends()
    gc.collect()  # freeing memory of the device waits for all that runs
    with held():
        fence = run.submit()
        until(lambda: ends["dozed"] == 1)
        for close in (queue.close, device.close):
            with pytest.raises(accel.BindError) as e:
                close()
            assert e.value.code == "lifetime"
        e = close = None
        del run, queue, device
        gc.collect()
        assert not fence.done
    assert fence.wait()
    del fence
    until(lambda: live() == {})


def fork_between_naps() -> None:
    run, ends = Learned(accel.open_cuda()), Ends()
    with held():
        fence = run.submit()
        until(lambda: ends["dozed"] == 1)
        child = os.fork()
        if not child:
            try:
                fence.wait()
            except accel.DeviceLostError:
                del fence, run
                gc.collect()
                os._exit(0)
            os._exit(1)
    assert fence.wait() and run.is_right()
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def test_a_child_forked_between_naps_is_refused_and_its_parent_goes_on():
    text = f"import sys; sys.path[:0] = {sys.path!r}\nimport test_ends\n"
    done = subprocess.run(
        [sys.executable, "-c", text + "test_ends.fork_between_naps()"],
        cwd=os.path.dirname(__file__),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
