"""Text to ids and back, built from the checkpoint's own vocabulary, merges and chat template.

Byte-level BPE only, with the pre-tokenizers listed in PRE; another model or pre-tokenizer is
refused by name. The tokenizers and jinja2 packages are imported when they are first needed.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .alphabet import byte_alphabet
from .errors import attr_error, format_error, unsupported
from .gguf import Metadata
from .ids import ids_of
from .keys import Keys
from .template import ChatTemplate, check_messages, guarded, need, unused_mark

# token_type values of a GGUF vocabulary.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
# Keys that change neither ids nor text: scores of other models, and tokens that nothing here adds.
_HARMLESS = {
    "tokenizer.ggml.scores", "tokenizer.ggml.token_type_count", "tokenizer.huggingface.json",
    "tokenizer.chat_templates",
    *(
        f"tokenizer.ggml.{name}_token_id"
        for name in (
            "unknown", "padding", "separator", "seperator", "cls", "mask", "prefix", "suffix",
            "middle", "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep",
        )
    ),
}  # fmt: skip
_TOKENS = "tokenizer.ggml.tokens"
_NAMED_TEMPLATE = "tokenizer.chat_template."  # beside the default one


def _pre_smollm(pre):
    # Digits first, each alone: a number's digits never merge with the space before them.
    byte_level = pre.ByteLevel(add_prefix_space=False, use_regex=True)
    return pre.Sequence([pre.Digits(individual_digits=True), byte_level])


def _pre_gpt2(pre):
    return pre.ByteLevel(add_prefix_space=False, use_regex=True)


def _split(pattern: str):
    """Pieces by a pattern of the checkpoint's family, then bytes."""

    def make(pre):
        rule = need("tokenizers").Regex(pattern)
        byte_level = pre.ByteLevel(add_prefix_space=False, use_regex=False)
        return pre.Sequence([pre.Split(rule, behavior="isolated", invert=False), byte_level])

    return make


# Words with what stands before them, numbers in runs of up to `{n}`, other signs, line ends, space.
_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{n}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
PRE = {
    "smollm": _pre_smollm,
    "gpt-2": _pre_gpt2,
    "llama-bpe": _split(_WORDS.replace("{n}", "{1,3}")),
    "qwen2": _split(_WORDS.replace("{n}", "")),
}


_ALPHABET = byte_alphabet()
_AS_WRITTEN = (CONTROL, USER_DEFINED, UNKNOWN)  # tokens that are not spelled in the byte alphabet


class Tokenizer:
    """`encode`, `decode` and `chat` of one checkpoint; safe to share between threads."""

    def __init__(self, path: str, metadata: Mapping[str, Any]):
        self._path, self._metadata = path, metadata
        named = {key for key in metadata if key.startswith(_NAMED_TEMPLATE)}
        keys = Keys(path, metadata, prefix="tokenizer.", harmless=_HARMLESS | named)
        self._read(keys)
        template = keys.value("chat_template", None)
        keys.finish()
        self._check_alphabet()
        self._bytes: dict[int, bytes] = {}  # filled as tokens are met
        self._specials = self._finder(_AS_WRITTEN)
        self._always = self._finder((USER_DEFINED,))
        parsed = (
            t
            for t, k in zip(self._tokens, self._types, strict=True)
            if k in (CONTROL, UNKNOWN) and t
        )
        self._first_chars = {t[0] for t in parsed}
        token = lambda i: "" if i is None else self._tokens[i]  # noqa: E731
        self._template = ChatTemplate(
            path,
            "key 'tokenizer.chat_template'",
            template,
            {"bos_token": token(self.bos), "eos_token": token(self.eos)},
        )
        if isinstance(metadata, Metadata):  # whose lists are small while nobody asks for them
            self._tokens = metadata.packed(_TOKENS)

    # ------------------------------------------------------------------ from the file
    def _read(self, keys: Keys) -> None:
        model = keys.value("ggml.model", None)
        if model != "gpt2":
            what = f"tokenizer.ggml.model is {model!r:.60}"
            raise unsupported(f"{self._path}: {what} and must be 'gpt2'")
        self._pre = keys.value("ggml.pre", None)
        if not isinstance(self._pre, str) or self._pre not in PRE:
            names = " or ".join(repr(n) for n in PRE)
            what = f"tokenizer.ggml.pre is {self._pre!r:.60}"
            raise unsupported(f"{self._path}: {what} and must be {names}")
        self._tokens = self._strings(keys, "ggml.tokens")
        known = set(self._tokens)
        if len(known) != len(self._tokens):
            raise format_error(self._path, "key 'tokenizer.ggml.tokens' holds a token twice")
        self._missing = bytes(b for c, b in _ALPHABET.items() if c not in known)
        self._types = self._read_types(keys)
        self._check_merges(self._strings(keys, "ggml.merges"), known)
        self.bos = self._special(keys, "bos")
        self.eos = self._special(keys, "eos")
        ends = [self.eos, self._special(keys, "eot"), self._special(keys, "eom")]
        self.stops = {i for i in (*ends, *self._more_ends(keys)) if i is not None}
        self.add_bos = keys.flag("ggml.add_bos_token", False)
        if self.add_bos and self.bos is None:
            raise format_error(self._path, "the file asks for a BOS token and names none")

    def _strings(self, keys: Keys, key: str) -> list[str]:
        value = keys.value(key, None)
        if not isinstance(value, list) or set(map(type, value)) != {str}:
            name = f"tokenizer.{key}"
            raise format_error(self._path, f"key {name!r} must be there and hold strings")
        return value

    def _read_types(self, keys: Keys) -> list[int]:
        n = len(self._tokens)
        types = keys.value("ggml.token_type", [NORMAL] * n)
        right = isinstance(types, list) and len(types) == n and set(map(type, types)) == {int}
        if not right or not set(types) <= set(range(NORMAL, BYTE + 1)):
            must = f"must hold {n} numbers from {NORMAL} to {BYTE}"
            raise format_error(self._path, f"key 'tokenizer.ggml.token_type' {must}")
        return types

    def _more_ends(self, keys: Keys) -> list[int]:
        ids = keys.value("ggml.eos_token_ids", [])
        right = isinstance(ids, list) and all(type(i) is int for i in ids)
        if not right or not all(0 <= i < len(self._tokens) for i in ids):
            raise keys.bad("ggml.eos_token_ids", ids, f"a list of ids below {len(self._tokens)}")
        return ids

    def _check_merges(self, lines: list[str], known: set[str]) -> None:
        for i, line in enumerate(lines):
            left, space, right = line.partition(" ")
            if not space or left not in known or right not in known or left + right not in known:
                raise format_error(
                    self._path, f"merge {i} is {line!r} and must join two tokens to a third"
                )

    def _special(self, keys: Keys, name: str) -> int | None:
        key = f"ggml.{name}_token_id"
        value = keys.value(key, None)
        if value is None or (type(value) is int and 0 <= value < len(self._tokens)):
            return value
        raise keys.bad(key, value, f"an id below {len(self._tokens)}")

    def _check_alphabet(self) -> None:
        written = (
            t for t, k in zip(self._tokens, self._types, strict=True) if k not in _AS_WRITTEN
        )
        wrong = set("".join(written)).difference(_ALPHABET)
        if wrong:
            names = "key 'tokenizer.ggml.tokens' holds " + repr(min(wrong))
            raise format_error(self._path, names + ", which stands for no byte")

    def _bytes_of(self, i: int) -> bytes:
        token = self._tokens[i]
        if self._types[i] in _AS_WRITTEN:
            return token.encode("utf-8")
        return bytes([_ALPHABET[c] for c in token])

    def _finder(self, kinds: Sequence[int]) -> re.Pattern | None:
        """Matches the text of the tokens of these kinds, the longest first."""
        texts = [t for t, k in zip(self._tokens, self._types, strict=True) if k in kinds and t]
        if not texts:
            return None
        longest_first = sorted(texts, key=len, reverse=True)
        return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")

    # Made at the first text: ids alone need none of it. Two threads may make either twice.
    @functools.cached_property
    def _ids(self) -> dict[str, int]:
        return {t: i for i, t in enumerate(self._metadata[_TOKENS])}

    @functools.cached_property
    def _model(self):
        tokenizers = need("tokenizers")
        lines = self._metadata["tokenizer.ggml.merges"]
        merges = [tuple(line.split(" ")) for line in lines]
        model = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=self._ids, merges=merges))
        model.pre_tokenizer = PRE[self._pre](tokenizers.pre_tokenizers)
        return model

    # ------------------------------------------------------------------ members
    @property
    def vocab(self) -> int:
        return len(self._tokens)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of the text, after BOS where the checkpoint asks for it.

        With special=False the text of control tokens is text like any other.
        """
        ids = self._encode(text, special)
        return [self.bos, *ids] if self.add_bos else ids

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids, control tokens included; bytes that are not UTF-8 become U+FFFD."""
        found = ids_of("decode", "ids", ids)
        return b"".join(map(self.token_bytes, found)).decode("utf-8", errors="replace")

    def token_bytes(self, i: int) -> bytes:
        found = self._bytes.get(i)
        if found is None:
            if not 0 <= i < len(self._tokens):
                raise attr_error("decode", "ids", f"a list with {i}", f"below {len(self._tokens)}")
            found = self._bytes[i] = self._bytes_of(i)
        return found

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Ids of the checkpoint's template filled with messages, up to where the assistant speaks.

        Control tokens come from the template alone: their text inside a message is text.
        """
        check_messages(messages)
        mark = unused_mark(self._template.source, messages)
        text = self._template.render(guarded(messages, self._first_chars, mark))
        return self._encode(text, True, mark)

    # ------------------------------------------------------------------ inside
    def _encode(self, text: str, special: bool, mark: str = "") -> list[int]:
        if not isinstance(text, str):
            raise TypeError(f"encode: text is a {type(text).__name__} and must be a str")
        self._check_bytes(text)
        finder = self._specials if special else self._always
        pieces = finder.split(text) if finder else [text]
        ids: list[int] = []
        for i, piece in enumerate(pieces):
            if i % 2:  # split() with one group: every second piece is a match
                ids.append(self._ids[piece])
            elif mark and mark in piece:
                ids += self._encode(piece.replace(mark, ""), False)
            elif piece:
                ids += self._plain(piece)
        return ids

    def _plain(self, text: str) -> list[int]:
        return self._model.encode(text, add_special_tokens=False).ids

    def _check_bytes(self, text: str) -> None:
        """Refuses what the model behind would leave out without a word."""
        try:
            raw = text.encode("utf-8")
        except UnicodeEncodeError:
            lone = "text with a lone surrogate"
            raise attr_error("encode", "text", lone, "Unicode text") from None
        if len(raw.translate(None, self._missing)) != len(raw):
            byte = next(b for b in raw if b in self._missing)
            must = "text whose every byte has a token in this vocabulary"
            raise attr_error("encode", "text", f"text with byte 0x{byte:02x}", must)
