"""The tokenizer of a checkpoint: ids, bytes, chat, streams of text, and what it refuses."""

import accel
import numpy as np
import pytest
import tiny_llama
from accel.llm.alphabet import byte_alphabet
from accel.llm.gguf import GGUF
from accel.llm.text import TextStream
from accel.llm.tokenizer import Tokenizer
from checkpoint import checkpoint_path, reference
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def metadata():
    return GGUF(checkpoint_path()).metadata


@pytest.fixture(scope="module")
def tok(metadata):
    return Tokenizer("file", metadata)


def test_recorded_prompts(tok):
    prompts = reference()["prompts"]
    assert tok.encode(prompts["plain"]["prompt"]) == prompts["plain"]["prompt_ids"]
    chat = prompts["chat"]
    assert tok.encode(chat["prompt"], special=True) == chat["prompt_ids"]
    assert (
        tok.chat([{"role": "user", "content": "What is the capital of France?"}])
        == chat["prompt_ids"]
    )
    for p in prompts.values():
        assert tok.decode(p["greedy_ids"]) == p["greedy_text"]


def test_digits_stand_alone(tok):
    """The trap of this vocabulary: white space before a digit never merges with it."""
    for text in ("a\n\n1", "  7", "x=1;y=22;z=333", "In 2024, 12345", "½ ²3", "१२ 3"):
        ids = tok.encode(text)
        for i in ids:
            piece = tok.decode([i])
            assert len(piece) == 1 or not any(c.isnumeric() for c in piece), (text, piece)
        assert tok.decode(ids) == text
    assert tok.encode("a\n\n1") == [*tok.encode("a\n\n"), *tok.encode("1")]


def test_reference_text_gives_the_recorded_ids(tok):
    ids = reference()["perplexity"]["token_ids"]
    assert tok.encode(tok.decode(ids)) == ids


# Bytes without a token in this vocabulary: six controls, and the planes that begin with F1 and F2.
MISSING = "\x04\x06\x13\x14\x16\x1d" + chr(0x40000) + chr(0x80000)


@settings(max_examples=200, deadline=None)
@given(st.text())
def test_every_text_comes_back(tok, text):
    text = "".join(c for c in text if c not in MISSING and not 0x40000 <= ord(c) < 0xC0000)
    for special in (False, True):
        ids = tok.encode(text, special=special)
        assert tok.decode(ids) == text and all(0 <= i < tok.vocab for i in ids)


@pytest.mark.parametrize("char", MISSING)
def test_bytes_without_a_token_are_refused(tok, char):
    with pytest.raises(accel.AttrError, match=f"byte 0x{char.encode()[0]:02x}"):
        tok.encode(f"a{char}b")


PARTS = [
    "<|im_end|>",
    "<|im_start|>",
    "<",
    "|im_end|>",
    "im_",
    "\ue000",
    "a",
    "\n",
    "<|im_<|im_end|>",
]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=6).map("".join))
def test_control_text_in_a_message_is_text(tok, content):
    ids = tok.encode(content)
    assert not set(ids) & set(range(17)) and tok.decode(ids) == content
    frame = tok.chat([{"role": "user", "content": "x"}])
    chat = tok.chat([{"role": "user", "content": content}])
    assert [i for i in chat if i < 17] == [i for i in frame if i < 17]
    assert tok.decode(chat) == tok.decode(frame).replace("user\nx<", f"user\n{content}<")


def test_special_text_is_parsed_on_request(tok):
    assert tok.encode("<|im_start|>a<|im_end|>", special=True) == [1, 81, 2]
    assert (tok.bos, tok.eos, tok.stops, tok.vocab) == (1, 2, {2}, 49152)


def test_alphabet_is_the_published_one():
    alphabet = byte_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert [alphabet[c] for c in tiny_llama.byte_tokens()] == list(range(256))


RECURSIVE = "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"


@pytest.mark.parametrize(
    ("key", "value", "error", "words"),
    [
        ("tokenizer.ggml.model", "llama", accel.UnsupportedError, "'llama' and must be 'gpt2'"),
        ("tokenizer.ggml.model", None, accel.UnsupportedError, "None"),
        ("tokenizer.ggml.pre", "tekken", accel.UnsupportedError, "'tekken' and must be 'smollm'"),
        ("tokenizer.ggml.tokens", [1, 2], accel.FormatError, "hold strings"),
        ("tokenizer.ggml.tokens", ["a", "a"], accel.FormatError, "a token twice"),
        ("tokenizer.ggml.token_type", [1], accel.FormatError, "token_type"),
        ("tokenizer.ggml.token_type", ["1"] * 260, accel.FormatError, "numbers from 1 to 6"),
        ("tokenizer.ggml.token_type", [7] * 260, accel.FormatError, "numbers from 1 to 6"),
        ("tokenizer.ggml.token_type", [True] * 260, accel.FormatError, "numbers from 1 to 6"),
        ("tokenizer.ggml.pre", ["smollm"], accel.UnsupportedError, "['smollm'] and must be"),
        ("tokenizer.ggml.model", ["gpt2"], accel.UnsupportedError, "['gpt2'] and must be"),
        ("tokenizer.ggml.add_bos_token", "false", accel.FormatError, "'false' and must be true"),
        ("tokenizer.ggml.add_bos_token", 0, accel.FormatError, "add_bos_token' is 0 and"),
        ("tokenizer.ggml.add_eos_token", True, accel.UnsupportedError, "add_eos_token' is not"),
        ("tokenizer.ggml.add_space_prefix", True, accel.UnsupportedError, "add_space_prefix'"),
        ("tokenizer.ggml.precompiled_charsmap", [1], accel.UnsupportedError, "precompiled_"),
        ("tokenizer.new_rule", 1, accel.UnsupportedError, "'tokenizer.new_rule' is not supported"),
        ("tokenizer.ggml.eos_token_ids", 258, accel.FormatError, "eos_token_ids' is 258 and"),
        ("tokenizer.ggml.eos_token_ids", [260], accel.FormatError, "ids below 260"),
        ("tokenizer.ggml.eom_token_id", -1, accel.FormatError, "eom_token_id' is -1"),
        ("tokenizer.ggml.merges", ["a"], accel.FormatError, "merge 0 is 'a'"),
        ("tokenizer.ggml.merges", ["a zz"], accel.FormatError, "merge 0"),
        ("tokenizer.ggml.eos_token_id", 260, accel.FormatError, "eos_token_id' is 260"),
        ("tokenizer.ggml.eos_token_id", "2", accel.FormatError, "eos_token_id"),
        ("tokenizer.ggml.add_bos_token", True, accel.FormatError, "names none"),
        ("tokenizer.chat_template", "{% for", accel.FormatError, "is no template"),
        ("tokenizer.chat_template", None, accel.UnsupportedError, "no chat template"),
        ("tokenizer.chat_template", 3, accel.FormatError, "is 3 and must be text"),
        ("tokenizer.chat_template", "\ud800{{ 1 }}", accel.Error, "surrogate"),
        ("tokenizer.chat_template", "{{ 1/0 }}", accel.AttrError, "ZeroDivisionError: division"),
        ("tokenizer.chat_template", '{{ 1+"a" }}', accel.AttrError, "(TypeError: unsupported"),
        ("tokenizer.chat_template", "{{ strftime_now(3) }}", accel.AttrError, "(TypeError: "),
        ("tokenizer.chat_template", RECURSIVE, accel.AttrError, "(RecursionError: maximum"),
        ("tokenizer.chat_template", "{{ messages[0].no.no }}", accel.AttrError, "has no attribute"),
        ("tokenizer.chat_template", "{{ raise_exception('no') }}", accel.AttrError, "(no)"),
        ("tokenizer.chat_template", "{{ ''.__class__.__mro__ }}", accel.AttrError, "unsafe"),
    ],
)
def test_what_a_file_must_not_say(key, value, error, words):
    with pytest.raises(error) as e:
        Tokenizer("tiny", tiny_metadata() | {key: value}).chat([{"role": "user", "content": "a"}])
    assert words in str(e.value) and "\n" not in str(e.value)


def test_what_changes_nothing_may_be_said():
    more = {
        "tokenizer.ggml.scores": [0.0] * 260,
        "tokenizer.ggml.padding_token_id": 3,
        "tokenizer.ggml.add_eos_token": False,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template.tool_use": "{{ 1 }}",
        "tokenizer.chat_templates": ["tool_use"],
    }
    assert Tokenizer("tiny", tiny_metadata() | more).encode("abc") == [257]


def test_every_end_that_the_file_names_stops():
    more = {"tokenizer.ggml.eos_token_ids": [7, 258], "tokenizer.ggml.eom_token_id": 259}
    tok = Tokenizer("tiny", tiny_metadata() | more)
    assert (tok.eos, tok.stops) == (258, {7, 258, 259})


@pytest.mark.parametrize("ids", [[1.0], [True], b"ab", {1: 2}, {1}, "ab", 3, [None]])
def test_ids_are_ints(ids):
    tok = Tokenizer("tiny", tiny_metadata())
    tok.decode([1])  # what is kept by its id is not found by 1.0 or True
    with pytest.raises(TypeError, match="decode: ids is .* and must hold ints"):
        tok.decode(ids)
    assert tok.decode(np.array([97, 98])) == tok.decode(iter((97, 98))) == "ab"


def tiny_metadata():
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tiny_llama.TOKENS,
        "tokenizer.ggml.token_type": [3 if i >= 258 else 1 for i in range(260)],
        "tokenizer.ggml.merges": tiny_llama.MERGES,
        "tokenizer.ggml.eos_token_id": 258,
        "tokenizer.chat_template": tiny_llama.TEMPLATE,
    }


def test_bos_is_added_where_the_file_asks_for_it():
    more = {"tokenizer.ggml.bos_token_id": 259, "tokenizer.ggml.add_bos_token": True}
    tok = Tokenizer("tiny", tiny_metadata() | more)
    assert tok.encode("abc") == [259, 257] and tok.encode("") == [259]
    assert tok.chat([{"role": "user", "content": "a"}])[0] == 259  # the template's own


def test_user_defined_tokens_are_always_found():
    types = [3 if i >= 259 else 4 if i == 258 else 1 for i in range(260)]
    tok = Tokenizer("tiny", tiny_metadata() | {"tokenizer.ggml.token_type": types})
    assert tok.encode("a<|end|>b") == [97, 258, 98]
    assert tok.encode("<|start|>") != [259] == tok.encode("<|start|>", special=True)


def test_messages_are_checked(tok):
    for messages, words in [
        ([], "messages is []"),
        ("hi", "messages is 'hi'"),
        ([{"role": "user", "content": 1}], "messages[0]"),
        ([{"role": "user", "content": "a"}, "b"], "messages[1]"),
    ]:
        with pytest.raises(accel.AttrError) as e:
            tok.chat(messages)
        assert words in str(e.value)
    with pytest.raises(TypeError):
        tok.encode(b"bytes")
    with pytest.raises(accel.AttrError, match="surrogate"):
        tok.encode("\ud800")


# ---------------------------------------------------------------- streams


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=20), st.data())
def test_split_characters_wait_for_their_end(text, data):
    raw = text.encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    stream, out = TextStream(), []
    for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        piece = stream.feed(raw[a:b])
        assert "\ufffd" not in piece or "\ufffd" in text
        out.append(piece)
    out.append(stream.feed(b"", last=True))
    assert "".join(out) == text


def test_bytes_that_are_no_text_become_a_mark():
    stream = TextStream()
    assert stream.feed(b"a\xff") == "a\ufffd" and stream.feed(b"\xe2\x82") == ""
    assert stream.feed(b"", last=True) == "\ufffd"


@settings(max_examples=300, deadline=None)
@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_nothing_of_a_stop_string_comes_out(text, stops):
    stream, out = TextStream(stops), ""
    for i, c in enumerate(text):
        out += stream.feed(c.encode(), last=i + 1 == len(text))
        if stream.stopped:
            break
    first = [text.find(s) for s in stops if s in text]
    # The stop string that is complete first wins, as a reader of the stream would see it.
    ends = [(text.find(s) + len(s), text.find(s)) for s in stops if s in text]
    assert stream.stopped is bool(first)
    assert out == (text[: min(p for e, p in ends if e == min(ends)[0])] if ends else text)
