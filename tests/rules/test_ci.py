"""The scripts around the tests, over stubs: no failure is lost, nothing goes on, a half-made
.venv is made again."""

import os
import shutil
import signal
import subprocess
import sys
import time

import accel
import pytest
from tree import ROOT, files, name

pytestmark = pytest.mark.rules

# Writes down how it was called, and fails where FAIL says so.
STUB = """#!/bin/bash
line="${0#"$PWD"/} $*"
echo "$line" >>"$CALLS"
case $line in *isas.py) echo avx2; echo base ;; esac
case $line in "$SLOW") sleep 300 & echo $! >>"$CALLS.pids"; wait ;; esac
[ "$line" != "$FAIL" ] && exit
for _ in {1..500}; do # what is slow has begun before anything fails
  [ "$SLOW" = nothing ] || [ -s "$CALLS.pids" ] || sleep 0.02
done
exit 1
"""


@pytest.fixture
def stubs(tmp_path):
    """Runs .ci/run where every command that it starts is a stub."""
    text = (ROOT / ".ci/run").read_text()
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
    commands = [name(p) for p in files(".sh", under="tools")]
    commands += [".venv/bin/python", ".venv/bin/mypy", "build/py/test_random_graphs", "bin/make"]
    for command in commands:
        path = tmp_path / command
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(STUB)
        path.chmod(0o755)
    calls = tmp_path / "calls"

    def start(fail="nothing", slow="nothing", text=text):
        calls.unlink(missing_ok=True)
        (tmp_path / ".ci/run").write_text(text)
        own = {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "CALLS": str(calls)}
        return subprocess.Popen(
            [tmp_path / ".ci/run"],
            env=os.environ | own | {"FAIL": fail, "SLOW": slow},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    return start, calls


def test_ci_fails_with_any_of_its_commands(stubs):
    start, calls = stubs
    assert start().wait(60) == 0
    lines = list(dict.fromkeys(calls.read_text().splitlines()))
    assert len(lines) > 15 and "tools/test.sh --isa base" in lines
    lost = [line for line in lines if start(fail=line).wait(60) == 0]
    assert not lost


def test_a_lost_failure_of_ci_is_found(stubs):
    start, _ = stubs
    text = (ROOT / ".ci/run").read_text()
    planted = text.replace("tools/cuda.sh\n", "tools/cuda.sh || true\n")
    assert planted != text
    assert start(fail="tools/cuda.sh ", text=planted).wait(60) == 0


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(condition) -> bool:
    end = time.monotonic() + 20
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks processes up in /proc")
@pytest.mark.parametrize("how", ["failure", "signal"])
def test_what_runs_beside_ends_with_ci(stubs, how):
    start, calls = stubs
    fail = "tools/cuda.sh " if how == "failure" else "nothing"
    run = start(fail=fail, slow="build/py/test_random_graphs 10000")
    pids = calls.with_name("calls.pids")
    assert until(lambda: pids.exists() and pids.read_text().strip())
    if how == "signal":
        run.send_signal(signal.SIGTERM)
    assert run.wait(60) != 0
    assert until(lambda: not any(alive(int(pid)) for pid in pids.read_text().split()))


def collected(**variables: str) -> subprocess.CompletedProcess:
    """What a suite on the CPU takes of the tests of GPUs' executors, where CI asks for all."""
    kept = {k: v for k, v in os.environ.items() if k != "ACCEL_TEST_DEVICE"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--collect-only", "tests/cuda", "tests/metal"],
        cwd=ROOT,
        env={**kept, "ACCEL_TEST_CUDA": "1", "ACCEL_TEST_METAL": "1", **variables},
        capture_output=True,
        text=True,
    )


sys.path.append(str(ROOT / "tools"))
import cuda_shaders  # noqa: E402


@pytest.mark.skipif(
    not (os.environ.get("NVRTC_DIR") or cuda_shaders.find_nvrtc()), reason="no NVRTC"
)
def test_a_suite_on_the_cpu_takes_no_test_that_needs_a_gpu():
    done = collected()
    assert done.returncode == 0 and "skipped" not in done.stdout, done.stdout
    # The same question about a device that is not there: each file that needs one is an error.
    if any(d.backend == "cuda" for d in accel.enumerate_devices().devices):
        return
    asked = collected(ACCEL_TEST_DEVICE="cuda")
    assert asked.returncode != 0 and "ERROR tests/cuda/test_overlap.py" in asked.stdout


# A Python of which the environments that it makes hold a copy.
PYTHON = """#!/bin/bash
case "$*" in
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/python3" ;;
  *requirements.py*) echo package ;;
esac
[ "$1" != - ] || cat >/dev/null
"""


@pytest.mark.parametrize("state", ["moved", "interrupted", "usable"])
def test_an_environment_that_is_of_no_use_is_made_again(tmp_path, state):
    for path in ("tools/setup.sh", "tools/requirements.py", "pyproject.toml"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    venv, system = tmp_path / ".venv", tmp_path / "system"
    for folder in (venv / "bin", system):
        folder.mkdir(parents=True)
        for program in ("python3", "python", "c++"):
            (folder / program).write_text(PYTHON)
            (folder / program).chmod(0o755)
    if state != "interrupted":
        (venv / ".root").write_text(str(tmp_path if state == "usable" else "/elsewhere"))
    (venv / "old").write_text("")
    # As the Makefile has it, and once more where one Makefile was started by another.
    path = f"{venv}/bin:{venv}/bin:{system}:{os.environ['PATH']}"
    done = subprocess.run(
        [tmp_path / "tools/setup.sh", "llm"],
        env={**os.environ, "PATH": path, "PYTHON": "python3"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert (venv / ".root").read_text() == str(tmp_path)
    assert (venv / "old").exists() == (state == "usable")


@pytest.mark.parametrize(
    "first, second, by_hand, in_ci",
    [(0, 0, 0, 0), (0, 5, 0, 0), (5, 0, 0, 5), (5, 5, 5, 5), (1, 0, 1, 1), (0, 1, 1, 1)],
)
def test_a_selection_of_nothing_is_an_error(tmp_path, first, second, by_hand, in_ci):
    """pytest ends with 5 where no test was selected."""
    python = tmp_path / ".venv/bin/python"
    for path, text in (
        (tmp_path / "tools/test.sh", (ROOT / "tools/test.sh").read_text()),
        (python, f'#!/bin/bash\n[[ $* != *"not threads"* ]] || exit {first}\nexit {second}\n'),
    ):
        path.parent.mkdir(parents=True)
        path.write_text(text)
        path.chmod(0o755)
    for ci, status in (("", by_hand), ("true", in_ci)):
        command = [tmp_path / "tools/test.sh", "--slow"]
        assert subprocess.run(command, env=os.environ | {"CI": ci}).returncode == status
