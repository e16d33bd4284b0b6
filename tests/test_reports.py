"""What a plan says of itself: explain, Graphviz, memory maps, traces, progress."""

import gc
import json
import re
import xml.etree.ElementTree

import accel
import numpy as np
import pytest
from accel import tensor as T


@pytest.fixture
def rt():
    return accel.Runtime(accel.open_cpu(threads=1, debug_fill=0xFF))


def record(rt, label="report"):
    """A graph with transients that share bytes, a state, a copy for a second output, a dropped node
    and a rejected kernel."""
    b = rt.new_builder(label)
    x = b.input("x", accel.F32, [4, 64])
    gain = b.weight("gain", accel.F32, [64])
    w = b.weight("w", accel.F32, [64, 64])
    cache = b.state("cache", accel.F32, [8, 64])
    ids = b.input("ids", accel.U32, [4])
    y = T.rms_norm(x, gain, eps=1e-6)
    y = T.matmul(y, w)
    T.scatter_rows(cache, y, ids)
    T.silu(y)  # reaches nothing
    z = T.silu(T.matmul(y, w))
    z = T.cast(z, accel.F16)
    z = T.silu(z)  # rejects the f32 kernel
    b.output("z", z)
    b.output("flat", T.reshape(z, [256]))
    return b


def given():
    return {
        "x": np.ones((4, 64), np.float32),
        "gain": np.ones(64, np.float32),
        "w": np.eye(64, dtype=np.float32),
        "cache": np.zeros((8, 64), np.float32),
        "ids": np.arange(4, dtype=np.uint32),
        "z": np.zeros((4, 64), np.float16),
        "flat": np.zeros(256, np.float16),
    }


@pytest.fixture
def plan(rt):
    plan = record(rt).compile(max_in_flight=3)
    yield plan
    plan.close()


# ---------------------------------------------------------------- explain


def test_p26_05_explain_is_whole_and_stable(rt, plan):
    text = plan.explain()
    assert text == plan.explain() == record(rt).compile().explain()
    memory = plan.memory()
    for words in (
        "plan report: cpu",
        f"transient {memory.transient_bytes} bytes, peak {memory.peak_bytes}",
        f"unaliased {memory.unaliased_bytes}",
        "input x f32[4 64]",
        "state cache f32[8 64]",
        "arena [0:1024]",
        "test_reports.py:",
        "| marks a barrier",
        "one value is 2 outputs",
        "reaches no output and no state",
    ):
        assert words in text, words
    for pick in plan.selections():
        assert pick.op in text and pick.kernel in text and pick.reason in text
        for rejected in pick.rejected:
            assert f"rejected {rejected}" in text
    assert any(pick.rejected for pick in plan.selections())
    assert re.search(r"^  \| ", text, re.M), "barriers are marked"


# ---------------------------------------------------------------- dot


def edges_of(dot):
    return [
        (a, b, c or "") for a, b, c in re.findall(r"^  (\w+) -> (\w+)(?: \[(.*)\])?;$", dot, re.M)
    ]


def test_to_dot_holds_data_edges_barriers_and_shared_bytes(plan):
    dot = plan.to_dot()
    assert dot == plan.to_dot() and dot.startswith("digraph plan {") and dot.endswith("}\n")
    steps = re.findall(r'^  (s\d+) \[label="(\d+) (\w+)', dot, re.M)
    assert len(steps) >= 8 and [name for name, _, _ in steps] == [
        f"s{i}" for i in range(len(steps))
    ]
    ports = re.findall(r"^  (p\d+) \[shape=ellipse", dot, re.M)
    assert len(ports) == len(plan.ports())
    edges = edges_of(dot)
    names = {name for name, _, _ in steps} | set(ports)
    assert all(a in names and b in names for a, b, _ in edges)
    assert ("p0", "s0", "") in edges and ("s0", "s1", "") in edges
    shared = [c for _, _, c in edges if "dotted" in c]
    assert shared and all(re.search(r"bytes \[\d+:\d+\]", c) for c in shared)
    assert dot.count("peripheries=2") == plan.explain().count("\n  |")


def test_names_that_need_quoting_are_quoted(rt):
    b = rt.new_builder('a "quoted" \\ label')
    b.output('y"<&>\n', T.silu(b.input("x\\", accel.F32, [4])))
    plan = b.compile()
    dot = plan.to_dot()
    assert 'label="a \\"quoted\\" \\\\ label";' in dot and 'y\\"<&>\\n' in dot


# ---------------------------------------------------------------- memory map


def test_memory_map_json(plan, tmp_path):
    path = tmp_path / "map.json"
    plan.memory_map(path)
    report = json.loads(path.read_text())
    memory = plan.memory()
    assert report["plan"] == "report"
    for field in ("transient_bytes", "peak_bytes", "unaliased_bytes"):
        assert report[field] == getattr(memory, field)
    rows = report["transients"]
    assert rows and max(r["offset"] + r["bytes"] for r in rows) <= memory.transient_bytes
    assert sum(-(-r["bytes"] // 64) * 64 for r in rows) == memory.unaliased_bytes
    for r in rows:
        assert r["first"]["step"] <= r["last"]["step"] < report["steps"]
        assert {"name", "type", "offset", "bytes"} < set(r) and r["first"]["node"] >= 1
    overlapping = [
        (a, c)
        for i, a in enumerate(rows)
        for c in rows[i + 1 :]
        if a["offset"] < c["offset"] + c["bytes"] and c["offset"] < a["offset"] + a["bytes"]
    ]
    assert overlapping, "the plan shares bytes"
    for a, c in overlapping:
        one, two = sorted((a, c), key=lambda r: r["first"]["step"])
        assert one["last"]["step"] < two["first"]["step"]


def test_memory_map_svg(plan, tmp_path):
    path = tmp_path / "map.svg"
    plan.memory_map(str(path))
    root = xml.etree.ElementTree.fromstring(path.read_text())
    rects = [e for e in root if e.tag.endswith("rect")]
    plan.memory_map(tmp_path / "map.json")
    rows = json.loads((tmp_path / "map.json").read_text())["transients"]
    assert len(rects) == len(rows)
    titles = [e[0].text for e in rects]
    for row, title in zip(rows, titles, strict=True):
        assert f"[{row['offset']}:{row['offset'] + row['bytes']}]" in title


def test_memory_map_refuses(plan, tmp_path):
    for name in ("map.png", "map", "map.json.txt"):
        path = tmp_path / name
        with pytest.raises(accel.AttrError, match="must end in .json or .svg") as caught:
            plan.memory_map(path)
        assert (caught.value.op, caught.value.operand) == ("memory_map", "path")
        assert str(path) in str(caught.value) and not path.exists()
    with pytest.raises(FileNotFoundError, match="nowhere"):
        plan.memory_map(tmp_path / "nowhere" / "map.json")
    with pytest.raises(TypeError, match="memory_map: path is an int and must be a str or a path"):
        plan.memory_map(3)


def test_a_plan_without_transients_has_an_empty_map(rt, tmp_path):
    b = rt.new_builder()
    b.output("y", T.silu(b.input("x", accel.F32, [4])))
    plan = b.compile()
    plan.memory_map(tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text())["transients"] == []
    plan.memory_map(tmp_path / "m.svg")
    xml.etree.ElementTree.fromstring((tmp_path / "m.svg").read_text())


# ---------------------------------------------------------------- trace


def spans(path, category):
    events = json.loads(path.read_text())["traceEvents"]
    return [e for e in events if e.get("cat") == category]


def test_trace_times_every_node_and_changes_no_bit(rt, plan, tmp_path):
    plain, traced = given(), given()
    plan.submit(plain).wait()
    path = tmp_path / "trace.json"
    before = plan.submit(given())
    with plan.trace(path) as inside:
        assert type(inside).__name__ == "PlanTrace"
        fences = [plan.submit(traced), plan.submit(given(), queue=rt.device.new_queue("q"))]
    assert before.wait() and all(f.done for f in fences), "on exit it waits"
    plan.submit(given()).wait()
    for name in plain:
        assert plain[name].tobytes() == traced[name].tobytes()
    submissions, nodes = spans(path, "submission"), spans(path, "node")
    assert len(submissions) == 2 and len(nodes) % 2 == 0
    assert [e["name"] for e in submissions] == ["report"] * 2
    explained = plan.explain()
    for e in nodes:
        assert e["ph"] == "X" and e["dur"] >= 0 and e["args"]["kernel"] in explained
        assert e["args"]["node"] >= 1 and "test_reports.py:" in e["args"]["site"]
    for run in submissions:
        end = run["ts"] + run["dur"]
        own = [e for e in nodes if e["tid"] == run["tid"] and run["ts"] <= e["ts"] <= end]
        assert len(own) == len(nodes) // 2 >= 8
        assert min(e["ts"] for e in own) == run["ts"]
        total = sum(e["dur"] for e in own)
        assert total == pytest.approx(run["dur"], abs=0.01)
    kernels = {s.kernel for s in plan.selections()} - {"none"}
    assert {e["args"]["kernel"] for e in nodes} == kernels


def test_trace_writes_what_ran_when_something_fails(plan, tmp_path):
    path = tmp_path / "trace.json"
    with pytest.raises(ZeroDivisionError), plan.trace(str(path)):
        plan.submit(given()).wait()
        bad = plan.submit({})
        1 / 0  # noqa: B018
    assert len(spans(path, "submission")) == 1
    with pytest.raises(accel.BindError):
        bad.wait()
    with plan.trace(path):
        pass
    assert spans(path, "submission") == []


def test_trace_refuses(plan, tmp_path):
    with plan.trace(tmp_path / "a.json"):
        with (
            pytest.raises(accel.AttrError, match="plan report is being traced and must not") as e,
            plan.trace(tmp_path / "b.json"),
        ):
            raise AssertionError
        assert e.value.op == "trace"
    assert not (tmp_path / "b.json").exists()
    for _ in range(2):
        with pytest.raises(FileNotFoundError), plan.trace(tmp_path / "nowhere" / "t.json"):
            raise AssertionError
    with pytest.raises(TypeError, match="trace: path is None and must be a str or a path"):
        plan.trace(None)
    trace = plan.trace(tmp_path / "c.json")
    with trace:
        pass
    with pytest.raises(accel.AttrError, match="not being traced and must be"):
        trace.__exit__(None, None, None)


# ---------------------------------------------------------------- progress


def test_progress_goes_through_the_stages(rt):
    calls = []
    plan = record(rt).compile(progress=lambda *call: calls.append(call))
    stages = list(dict.fromkeys(stage for stage, _, _ in calls))
    assert stages == ["check", "select", "plan", "pipelines", "record"]
    for stage in stages:
        own = [(done, total) for s, done, total in calls if s == stage]
        assert own == sorted(own) and own[-1][0] == own[-1][1] > 0, stage
    plan.close()


@pytest.mark.parametrize("stage", ["check", "select", "plan", "pipelines", "record"])
def test_an_exception_from_progress_stops_the_compile(rt, stage):
    class Stop(Exception):
        pass

    seen = []

    def progress(now, done, total):
        seen.append(now)
        if now == stage:
            raise Stop(now)

    with pytest.raises(Stop, match=stage):
        record(rt).compile(progress=progress)
    assert seen[-1] == stage and seen.count(stage) == 1
    rt.close()  # no plan is counted


# ---------------------------------------------------------------- no kernel


def test_unsupported_carries_each_rejected_kernel(rt, monkeypatch):
    b = rt.new_builder()
    b.output("y", T.silu(b.input("x", accel.F16, [4])))
    monkeypatch.setenv("ACCEL_SKIP_KERNEL", "silu_f16")
    with pytest.raises(accel.UnsupportedError) as caught:
        b.compile()
    error = caught.value
    assert isinstance(error, NotImplementedError) and error.code == "unsupported"
    assert error.op == "silu" and error.line > 0
    assert error.rejected == [
        ("silu_f32", "reads f32"),
        ("silu_f16", "is switched off by ACCEL_SKIP_KERNEL"),
    ]
    assert error.rejected[0].kernel == "silu_f32" and error.rejected[0].why == "reads f32"
    assert all(str(r) in str(error) for r in error.rejected) and error.problems == []


def test_a_trace_that_is_dropped_ends(rt, tmp_path):
    builder = rt.new_builder("dropped")
    builder.output("y", T.silu(builder.input("x", accel.F32, [8])))
    plan = builder.compile()
    trace = plan.trace(tmp_path / "t.json")
    trace.__enter__()
    del trace
    gc.collect()
    with plan.trace(tmp_path / "again.json"):
        assert plan.submit({"x": np.ones(8, "f4"), "y": np.zeros(8, "f4")}).wait()
    assert (tmp_path / "again.json").stat().st_size > 100
