"""Property 26: identities change with what they cover and with nothing else; the plan cache."""

import hashlib
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import accel
import numpy as np
import pytest
from accel import tensor as T

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("semantic", "numerical", "deployment")


@pytest.fixture(scope="module")
def rt():
    return accel.Runtime(accel.open_cpu(threads=1))


def record(b, **change):
    """A graph in which every kind of field occurs; each keyword changes one of them."""
    what = {
        "x": "x",
        "rows": 4,
        "eps": 1e-6,
        "axis_order": [1, 0],
        "order": "kn",
        "start": 0,
        "out": "y",
        "scalar": "f",
        "port": "input",
        "group": 32,
        "layer": 0,
        "dtype": accel.F16,
        "twice": False,
    } | change
    declare = b.input if what["port"] == "input" else b.weight
    x = declare(what["x"], accel.F32, [what["rows"], 64])
    f = b.scalar(what["scalar"], T.ScalarKind.F32)
    gain = b.weight("gain", accel.F32, [64])
    w = b.weight("w", accel.F32, [64, 64])
    state = b.state("s", accel.F32, [2, 4, 64])
    ids = b.input("ids", accel.U32, [what["rows"]])
    y = T.rms_norm(x, gain, eps=what["eps"])
    y = T.matmul(y, w, w_order=what["order"])
    y = T.scale(y, f)
    y = T.int4_matmul(y, b.int4("q", [64, 64], group=what["group"]))
    T.scatter_rows(T.layer_state(state, what["layer"]), y, ids)
    z = T.contiguous(T.slice(T.permute(y, what["axis_order"]), 0, what["start"], 4))
    b.output("z", T.cast(z, what["dtype"]))
    b.output(what["out"], T.silu(T.silu(y) if what["twice"] else y))


def identity_of(rt, label="", options=None, **change):
    b = rt.new_builder(label)
    record(b, **change)
    return b.identity(**(options or {}))


def changed(a, b):
    return {part for part in PARTS if getattr(a, part) != getattr(b, part)}


def test_digests_are_bytes_and_hex_is_made_of_them(rt):
    identity = identity_of(rt)
    digests = [getattr(identity, part) for part in PARTS]
    assert all(isinstance(d, bytes) and len(d) == 32 for d in digests)
    assert identity.hex == hashlib.sha256(b"".join(digests)).hexdigest()[:16]
    assert str(identity) == identity.hex and identity.hex in repr(identity)
    assert len(set(digests)) == 3


def test_p26_26_builder_and_plan_agree(rt):
    for options in ({}, {"max_in_flight": 3}, {"fuse": False}, {"label": "named"}):
        b = rt.new_builder("here")
        record(b)
        before = b.identity(**options)
        plan = b.compile(**options)
        assert before == plan.identity == identity_of(rt, options=options)
        assert hash(before) == hash(plan.identity)
        assert before != "other" and not changed(before, plan.identity)
        plan.close()


SEMANTIC = {
    "x": "xx",
    "rows": 5,
    "eps": 2e-6,
    "axis_order": [0, 1],
    "order": "nk",
    "start": 1,
    "out": "yy",
    "scalar": "g",
    "port": "weight",
    "group": 64,
    "layer": 1,
    "dtype": accel.F32,
    "twice": True,
}


@pytest.mark.parametrize("field", SEMANTIC)
def test_p26_26_any_change_of_the_graph_changes_semantic(rt, field):
    assert "semantic" in changed(identity_of(rt), identity_of(rt, **{field: SEMANTIC[field]}))


def test_floats_are_told_apart_by_their_bits(rt):
    eps = np.float32(1e-6)
    near = float(np.nextafter(eps, np.float32(1)))
    assert changed(identity_of(rt, eps=float(eps)), identity_of(rt, eps=near)) == {"semantic"}
    same = float(eps) * (1 + 1e-12)  # the same f32
    assert identity_of(rt, eps=float(eps)) == identity_of(rt, eps=same)


def test_fields_do_not_run_into_each_other(rt):
    def two(a, b):
        builder = rt.new_builder()
        x, y = builder.input(a, accel.F32, [4]), builder.input(b, accel.F32, [4])
        builder.output("out", x + y)
        return builder.identity()

    assert two("ab", "c") != two("a", "bc")


def test_labels_lines_and_bound_values_are_outside(rt):
    first = identity_of(rt, label="one")
    assert first == identity_of(rt, label="two")
    b = rt.new_builder("three")
    exec(compile("\n" * 50 + "record(b)", "elsewhere.py", "exec"), {"record": record, "b": b})
    assert first == b.identity(label="four")


OPTIONS = {"max_in_flight": 2, "fuse": False, "pack": True, "_naive": True, "_verify": True}


def compile_options():
    """The options of compile, as the stub declares them."""
    import ast

    tree = ast.parse((Path(accel.__file__).parent / "_core.pyi").read_text())
    builder = next(c for c in tree.body if getattr(c, "name", "") == "Builder")
    compile_ = next(f for f in builder.body if getattr(f, "name", "") == "compile")
    return {a.arg for a in compile_.args.args + compile_.args.kwonlyargs} - {"self"}


def test_p26_26_every_compile_option_is_in_the_key(rt):
    pool = rt.device.new_transient_pool("p")
    values = OPTIONS | {"pool": pool}
    missing = compile_options() - set(values) - {"label", "progress"}
    assert not missing, f"add a value away from the default for {missing}"
    base = identity_of(rt)
    seen = {base}
    for option, value in values.items():
        other = identity_of(rt, options={option: value})
        # Packed planes are read by a kernel of their own.
        kernels = {"numerical"} if option == "pack" else set()
        assert changed(base, other) == {"deployment"} | kernels, option
        seen.add(other)
    assert len(seen) == len(values) + 1
    other_pool = rt.device.new_transient_pool("p")
    assert identity_of(rt, options={"pool": other_pool}) not in seen
    assert identity_of(rt, options={"label": "l", "progress": print}) == base


def test_p26_26_the_numerical_part_follows_the_kernels(rt):
    base = identity_of(rt)
    from conftest import tables

    others = [isa for isa in tables() if isa != rt.device.info.isa]
    for isa in others:
        other = identity_of(accel.Runtime(accel.open_cpu(threads=1, isa=isa)))
        assert changed(base, other) == {"numerical"}, isa
    more_threads = accel.Runtime(accel.open_cpu(threads=2))
    assert not changed(base, identity_of(more_threads)), "threads change no bit"


SCRIPT = """
import accel, sys
sys.path.insert(0, {tests!r})
from test_properties_identity import identity_of
print(identity_of(accel.Runtime(accel.open_cpu(threads=1))).hex)
"""


def test_identities_are_the_same_in_another_process(rt):
    code = SCRIPT.format(tests=str(ROOT / "tests"))
    # The same module: without the site folder where this process has none.
    python = [sys.executable, *(["-S"] if sys.flags.no_site else [])]
    result = subprocess.run([*python, "-c", code], capture_output=True, text=True)
    assert result.stdout.strip() == identity_of(rt).hex, result.stderr


def digests(tree: Path, flags: str) -> dict:
    out = tree / "digests.inc"
    command = [shutil.which("cmake"), f"-DROOT={tree}", f"-DOUT={out}", "-DCOMPILER=c 1"]
    command += [f"-DFLAGS={flags}", "-DISAS=base|,avx2|-mavx2 -mfma"]
    subprocess.run([*command, "-P", str(ROOT / "tools/kernel_digest.cmake")], check=True)
    rows = [line for line in out.read_text().splitlines() if line.startswith("{")]
    return dict(row.strip("{},").replace('"', "").split(", ") for row in rows)


def test_p26_26_a_kernel_source_or_flag_change_changes_the_digest(tmp_path):
    for folder in ("cpp/backends/cpu/kernels", "shaders/shared"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    shutil.copy(ROOT / "cpp/backends/cpu/kernel_api.h", tmp_path / "cpp/backends/cpu")
    first = digests(tmp_path, "-O3")
    assert set(first) == {"base", "avx2"} and len(set(first.values())) == 2
    assert all(len(d) == 64 for d in first.values())
    assert digests(tmp_path, "-O3") == first
    seen = [first, digests(tmp_path, "-O2")]
    for source in ("cpp/backends/cpu/kernels/rows.inl", "shaders/shared/math/exp.h"):
        path = tmp_path / source
        path.write_text(path.read_text() + " ")
        seen.append(digests(tmp_path, "-O3"))
    for isa in first:
        assert len({row[isa] for row in seen}) == 4


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("call", ["compile", "identity"])
def test_options_are_checked(rt, call):
    b = rt.new_builder()
    record(b)
    f = getattr(b, call)
    for value in (0, -2):
        with pytest.raises(accel.AttrError, match=f"max_in_flight is {value} and must be") as e:
            f(max_in_flight=value)
        assert (e.value.op, e.value.operand) == (call, "max_in_flight")
    foreign = accel.open_cpu(threads=1).new_transient_pool("far")
    with pytest.raises(accel.BindError, match="pool far is of another device and must be of") as e:
        f(pool=foreign)
    assert e.value.code == "foreign"
    closed = rt.device.new_transient_pool("gone")
    closed.close()
    with pytest.raises(accel.BindError, match="pool gone is closed and must be open") as e:
        f(pool=closed)
    assert e.value.code == "lifetime"
    for wrong in (
        lambda: f(max_in_flight=1.0),
        lambda: f(max_in_flight=True),
        lambda: f(pool=3),
        lambda: f(fuse=1),
        lambda: f(progress=3),
        lambda: f(1),
        lambda: f("a", label="b"),
        lambda: f(nothing=1),
        lambda: f("a", 1, None, True, None, True),
    ):
        with pytest.raises(TypeError, match=call):
            wrong()


def test_identity_raises_what_compile_raises(rt):
    b = rt.new_builder("bad")
    b.output("y", T.silu(b.input("x", accel.U32, [4])))
    with pytest.raises(accel.DTypeError, match="x is u32"):
        b.identity()
    with pytest.raises(accel.AttrError, match="without an output"):
        rt.new_builder("empty").identity()


# ---------------------------------------------------------------- the cache


def simple(width):
    def f(b):
        b.output("y", T.silu(b.input("x", accel.F32, [width])))

    return f


def runs(plan, width=4):
    x, y = np.ones(width, np.float32), np.zeros(width, np.float32)
    plan.submit({"x": x, "y": y}).wait()
    return y.all()


@pytest.fixture
def cache(rt):
    cache = T.PlanCache(rt)
    yield cache
    cache.close()


def test_a_hit_gives_the_kept_plan(rt, cache):
    first = cache.compile(simple(4))
    counters = rt.counters()
    assert cache.compile(simple(4), label="other", progress=print) is first
    assert rt.counters() == counters and len(cache) == 1
    second = cache.compile(simple(5))
    third = cache.compile(simple(4), max_in_flight=2)
    assert len({first, second, third}) == 3 and len(cache) == 3
    assert runs(first) and runs(second, 5) and cache.runtime is rt


def test_p26_26_forced_collisions_are_told_apart(rt):
    cache = T.PlanCache(rt, _collide=True)
    plans = [cache.compile(simple(width)) for width in (4, 5, 6)]
    assert len(cache) == 3 and len(set(plans)) == 3
    for width, plan in zip((4, 5, 6), plans, strict=True):
        assert cache.compile(simple(width)) is plan and runs(plan, width)
    cache.close()


def test_p26_26_a_closed_cached_plan_is_recompiled(rt, cache):
    plan = cache.compile(simple(4))
    plan.close()
    again = cache.compile(simple(4))
    assert again is not plan and again.identity == plan.identity
    assert runs(again) and len(cache) == 1


def test_failures_are_not_kept(rt, cache):
    def bad(b):
        b.output("y", T.silu(b.input("x", accel.U32, [4])))

    def stop(b):
        raise ZeroDivisionError

    for f, error in ((bad, accel.DTypeError), (stop, ZeroDivisionError)):
        with pytest.raises(error):
            cache.compile(f)
    with pytest.raises(ZeroDivisionError):
        cache.compile(simple(4), progress=lambda *_: 1 / 0)
    with pytest.raises(accel.AttrError, match="max_in_flight is 0"):
        cache.compile(simple(4), max_in_flight=0)
    for call in (lambda: cache.compile(3), lambda: cache.compile(simple(4), nothing=1)):
        with pytest.raises(TypeError):
            call()
    assert len(cache) == 0 and runs(cache.compile(simple(4)))


def test_a_closed_cache_refuses_and_closes_its_plans(rt):
    cache = T.PlanCache(rt)
    plan = cache.compile(simple(4))
    cache.close()
    cache.close()
    assert plan.closed and cache.closed and len(cache) == 0
    with pytest.raises(accel.BindError, match="cache is closed and must be open") as caught:
        cache.compile(simple(4))
    assert caught.value.code == "lifetime"
    with pytest.raises(accel.AttrError, match="runtime is missing"):
        T.PlanCache(None)
    with pytest.raises(TypeError, match="runtime is an int"):
        T.PlanCache(3)


def test_a_cache_keeps_its_runtime_open():
    rt = accel.Runtime(accel.open_cpu(threads=1))
    cache = T.PlanCache(rt)
    cache.compile(simple(4))
    with pytest.raises(accel.BindError, match="1 open plan"):
        rt.close()
    cache.close()
    rt.close()


@pytest.mark.parametrize("from_progress", [False, True])
def test_p26_35_re_entry_is_a_graph_error(rt, cache, from_progress):
    other = T.PlanCache(rt)
    seen = []

    def enter(*_):
        assert len(cache) == 0
        seen.append(other.compile(simple(9)))  # another cache is free
        for call in (lambda: cache.compile(simple(5)), cache.close):
            with pytest.raises(accel.GraphError, match="callback of this cache and must not") as e:
                call()
            assert type(e.value) is accel.GraphError
            seen.append(e.value.operand)

    def f(b):
        simple(4)(b)
        if not from_progress:
            enter()

    plan = cache.compile(f, progress=enter if from_progress else None)
    assert runs(plan) and {"compile", "close"} < set(seen)
    other.close()


@pytest.mark.threads
def test_p26_35_eight_threads_race_one_cache(rt):
    for _ in range(10):
        cache = T.PlanCache(rt)
        start, plans, failures = threading.Barrier(8), [], []

        def work(me, cache=cache, start=start, plans=plans, failures=failures):
            try:
                start.wait()
                for width in (4, 5):
                    plans.append((width, cache.compile(simple(width))))
                len(cache)
                x, y = np.ones(4, np.float32), np.zeros(4, np.float32)
                try:
                    cache.compile(simple(4)).submit({"x": x, "y": y}).wait()
                except accel.BindError as e:
                    assert e.code == "in_flight"
            except BaseException as e:  # noqa: BLE001
                failures.append(e)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert not failures and len(plans) == 16 and len(cache) == 2
        assert len(set(plans)) == 2, "one plan a width"
        cache.close()


@pytest.mark.threads
def test_p26_35_a_record_callback_and_a_waiting_thread_do_not_deadlock(rt, cache):
    inside, waiting = threading.Event(), threading.Event()
    done = []

    def slow(b):
        inside.set()
        waiting.wait(10)
        for _ in range(50):  # gives the interpreter away while the other waits for the cache
            threading.Event().wait(0.001)
        simple(4)(b)

    def other():
        inside.wait(10)
        waiting.set()
        done.append(cache.compile(simple(5)))

    thread = threading.Thread(target=other)
    thread.start()
    plan = cache.compile(slow)
    thread.join(30)
    assert not thread.is_alive() and runs(plan) and runs(done[0], 5)


@pytest.mark.threads
def test_p26_35_close_races_compile(rt):
    for _ in range(20):
        cache = T.PlanCache(rt)
        failures = []

        def work(cache=cache, failures=failures):
            try:
                for width in range(1, 6):
                    cache.compile(simple(width))
            except accel.BindError as e:
                if e.code != "lifetime":
                    failures.append(e)
            except BaseException as e:  # noqa: BLE001
                failures.append(e)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        cache.close()
        for t in threads:
            t.join(60)
        assert not failures and len(cache) == 0
