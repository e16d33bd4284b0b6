"""Pieces of text before byte pairs: the rules of GGUF vocabularies against transformers."""

import numpy as np
import pytest
import tokenizers
from accel.llm.tokenizer import PRE
from transformers.models.qwen2 import tokenization_qwen2

pytestmark = pytest.mark.peers

SIGNS = [
    *"aZé7 09\n\r\t.,!?'-_()",
    "'s",
    "'LL",
    "  ",
    "\n\n",
    "\u4e2d",
    "\u0301",
    "\U0001f600",
    "½",
]


def texts(count: int):
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield "".join(rng.choice(SIGNS, size=rng.integers(0, 24)))


def test_qwen2_pieces():
    pre = tokenizers.pre_tokenizers
    theirs = pre.Split(
        tokenizers.Regex(tokenization_qwen2.PRETOKENIZE_REGEX), behavior="isolated", invert=False
    )
    bytes_of = pre.ByteLevel(add_prefix_space=False, use_regex=False)
    want, got = pre.Sequence([theirs, bytes_of]), PRE["qwen2"](pre)
    for text in texts(3000):
        assert got.pre_tokenize_str(text) == want.pre_tokenize_str(text), text


def test_llama_pieces_hold_three_digits():
    got = PRE["llama-bpe"](tokenizers.pre_tokenizers)
    pieces = [p for p, _ in got.pre_tokenize_str("a 12345's\n\n x")]
    assert pieces == ["a", "Ġ", "123", "45", "'s", "ĊĊ", "Ġx"]
