"""What calls of accel.llm refuse: class, operand and both values in the text."""

from types import SimpleNamespace

import numpy as np
import pytest
import tiny_llama
from accel import llm
from accel import tensor as T
from test_host_refusals import ATTR, check, table


def loaded(e, **options):
    return llm.load(e.path, **options)


MODELS = table(
    "llm",
    ("kv", lambda e: loaded(e, kv="bf16"), ATTR, "attr", "kv", "'bf16'|'f16' or 'f32'"),
    ("context 0", lambda e: loaded(e, context=0), ATTR, "attr", "context", "0|positive"),
    ("context", lambda e: loaded(e, context=65), ATTR, "attr", "context", "65|64"),
    (
        "activations",
        lambda e: loaded(e, activations="i8"),
        ATTR,
        "attr",
        "activations",
        "'i8'|'int8', 'f16', 'bf16'",
    ),
    (
        "activations without a quantized weight",
        lambda e: loaded(e, activations="int8"),
        ATTR,
        "attr",
        "activations",
        "'int8'|None|no quantized weight",
    ),
    ("empty text", lambda e: e.model.generate("", 4), ATTR, "attr", "prompt", "empty"),
    ("empty ids", lambda e: e.model.generate([], 4), ATTR, "attr", "prompt", "empty"),
    ("long prompt", lambda e: e.model.generate([1] * 65, 4), ATTR, "attr", "prompt", "65|64"),
    ("id", lambda e: e.model.generate([3, 260], 4), ATTR, "attr", "prompt[1]", "260|below 260"),
    ("max_tokens", lambda e: e.model.generate([1], 0), ATTR, "attr", "max_tokens", "0|at least 1"),
    ("seed", lambda e: e.model.generate([1], 1, seed=-1), ATTR, "attr", "seed", "-1"),
    ("empty stop", lambda e: e.model.generate([1], 1, stop=""), ATTR, "attr", "stop", "''"),
    (
        "top_k of the vocabulary",
        lambda e: e.model.generate([1], 1, sampling=T.SamplingOptions(1, top_k=261, exact=True)),
        ATTR,
        "attr",
        "top_k",
        "261|260",
    ),
    (
        "top_k without exact",
        lambda e: e.model.generate([1], 1, sampling=T.SamplingOptions(1, top_k=129)),
        ATTR,
        "attr",
        "top_k",
        "129|128",
    ),
    ("logits of nothing", lambda e: e.model.logits([]), ATTR, "attr", "ids", "empty"),
    ("logits of an id", lambda e: e.model.logits([260]), ATTR, "attr", "ids[0]", "below 260"),
    ("long logits", lambda e: e.model.logits([1] * 65), ATTR, "attr", "ids", "65|64"),
    ("window", lambda e: e.model.perplexity([1, 2, 3], 1), ATTR, "attr", "window", "1|2"),
    ("wide window", lambda e: e.model.perplexity([1, 2, 3], 65), ATTR, "attr", "window", "65|64"),
    (
        "perplexity of an id",
        lambda e: e.model.perplexity([1, 260], 2),
        ATTR,
        "attr",
        "ids[1]",
        "below 260",
    ),
    (
        "decode",
        lambda e: e.model.tokenizer.decode([260]),
        ATTR,
        "attr",
        "ids",
        "with 260|below 260",
    ),
)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    shape = tiny_llama.Shape()
    path = tmp_path_factory.mktemp("small") / "t.gguf"
    rng = np.random.default_rng(0)
    tiny_llama.write(path, shape, tiny_llama.random_weights(shape, {"*": "F32"}, True, rng))
    with llm.load(path) as model:
        yield SimpleNamespace(path=path, model=model)


@pytest.mark.parametrize("row", MODELS, ids=[row.name for row in MODELS])
def test_models_refuse_with_operand_and_values(small, row):
    check(row, small)
    assert len(list(small.model.generate([1], 1))) == 1, "and nothing has changed"


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda e: loaded(e, kv=None), "kv is None"),
        (lambda e: loaded(e, context=2.0), "context is 2.0"),
        (lambda e: loaded(e, context=True), "context is True"),
        (lambda e: loaded(e, progress=3), "progress is 3"),
        (lambda e: e.model.tokenizer.decode("a"), "ids is 'a'"),
        (lambda e: e.model.logits([1], all=1), "all is 1"),
        *[
            (lambda e, call=call, ids=ids: call(e.model, ids), "must hold ints")
            for call in (
                lambda m, ids: m.logits(ids),
                lambda m, ids: m.generate(ids, 1),
                lambda m, ids: m.perplexity(ids, 2),
            )
            for ids in ([True, 1], b"ab", bytearray(b"ab"), {1, 2}, {1: 2}, {1: 2}.keys(), [1.0])
        ],
    ],
)
def test_wrong_types_are_type_errors(small, call, word):
    with pytest.raises(TypeError, match=word):
        call(small)


def test_rows_are_told_apart():
    names = [row.name for row in MODELS]
    assert len(names) == len(set(names))
