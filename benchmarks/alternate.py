"""Runs two sides alternately in one process, and what the machine allows beside them."""

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROUNDS = 15
BLOCK_S = 0.02  # of one side before the other has its turn
REST_S = 0.03  # in front of a block: threads of the other side spin so long for more work


class Clock:
    """Elapsed time; or, for one thread on a busy machine, processor time.

    Of accel's side that is the time of all threads but the calling one, which waits.
    """

    cpu = False

    def now(self, ours: bool) -> int:
        if not self.cpu:
            return time.perf_counter_ns()
        return time.process_time_ns() - (time.thread_time_ns() if ours else 0)


CLOCK = Clock()


def once(run: Callable[[], object], ours: bool) -> float:
    begin = CLOCK.now(ours)
    run()
    return (CLOCK.now(ours) - begin) / 1e3


def block(run: Callable[[], object], count: int, ours: bool) -> float:
    time.sleep(REST_S)
    if count > 1:
        run()
    return statistics.median(once(run, ours) for _ in range(count))


def alternate(sides: dict[str, Callable[[], object]], rounds: int = ROUNDS) -> dict[str, list]:
    """Microseconds of one run, one entry a round: the median of a block.

    A block of short runs hides neither a change of clock nor another process, so the sides meet
    the same of both; who goes first changes from round to round.
    """
    counts = {}
    for name, run in sides.items():
        run()
        best = min(once(run, name == "accel") for _ in range(3))
        counts[name] = max(3, min(200, int(BLOCK_S * 1e6 / best))) if best < 1e5 else 1
    found: dict[str, list] = {name: [] for name in sides}
    for round_ in range(rounds):
        order = list(sides) if round_ % 2 == 0 else list(sides)[::-1]
        for name in order:
            found[name].append(block(sides[name], counts[name], name == "accel"))
    return found


def ratio(found: dict[str, list], peer: str, ours: str = "accel") -> float:
    """How many times faster than the peer: the median of the rounds' ratios."""
    return statistics.median(p / o for o, p in zip(found[ours], found[peer], strict=True))


def probe(threads: int) -> dict:
    """Read bandwidth in GB/s and multiply-adds in Gop/s of this moment."""
    command = [ROOT / "build/py/bench_probe", str(threads), "300", "640"]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(result.stdout)["threads"][-1]


def row(name: str, found: dict, peer: str, size: int, ops: float, ceiling: float | None) -> dict:
    """One line: `size` bytes are read and written once, `ops` operations done by one run.

    `ceiling` is GB/s where a run is bound by reading, Gop/s where `ops` are given.
    """
    us = statistics.median(found["accel"])
    gb_s, gflop_s = size / us / 1e3, ops / us / 1e3
    # Of elapsed time only: a probe that others interrupt says nothing of processor time.
    percent = 100 * (gflop_s if ops else gb_s) / ceiling if ceiling and not CLOCK.cpu else None
    return {
        "name": name,
        "us": us,
        "gb_s": gb_s,
        "gflop_s": gflop_s,
        "percent": percent,
        "ratio": ratio(found, peer),
        "peer": peer,
        "peer_us": statistics.median(found[peer]),
    }


def show(rows: list[dict]) -> None:
    for r in rows:
        percent = "" if r["percent"] is None else f"{r['percent']:5.1f} %"
        print(
            f"  {r['name']:44} {r['us']:9.1f} us {r['gb_s']:7.2f} GB/s {r['gflop_s']:7.1f} GFLOP/s "
            f"{percent:8} {r['ratio']:6.2f} x {r['peer']} ({r['peer_us']:.1f} us)",
            flush=True,
        )


def main(what: str, rows: Callable[..., list[dict]]) -> None:
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--only", default="", help="rows whose name contains this")
    parser.add_argument("--cpu-time", action="store_true", help="processor time; one thread")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    CLOCK.cpu = options.cpu_time
    if options.cpu_time and options.threads != [1]:
        parser.error("--cpu-time needs --threads 1")
    for threads in options.threads:
        found = rows(threads, options.only)
        if options.json:
            print(json.dumps({"threads": threads, "rows": found}))
        else:
            print(f"{threads} thread(s)")
            show(found)
