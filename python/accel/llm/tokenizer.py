"""Text to ids and back, built from the checkpoint's own vocabulary, merges and chat template.

Byte-level BPE only, with the pre-tokenizers listed in PRE; another model or pre-tokenizer is
refused by name. The tokenizers and jinja2 packages are imported when they are first needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from .errors import attr_error, format_error, unsupported
from .template import ChatTemplate, check_messages, guarded, need, unused_mark

# token_type values of a GGUF vocabulary.
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


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


def byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte in a byte-level vocabulary, to the byte.

    Printable Latin-1 bytes stand for themselves; the others, in order, are characters from 256 on.
    """
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    moved = [b for b in range(256) if b not in set(kept)]
    return {chr(b): b for b in kept} | {chr(256 + i): b for i, b in enumerate(moved)}


_ALPHABET = byte_alphabet()
_AS_WRITTEN = (CONTROL, USER_DEFINED, UNKNOWN)  # tokens that are not spelled in the byte alphabet


class Tokenizer:
    """`encode`, `decode` and `chat` of one checkpoint; safe to share between threads."""

    def __init__(self, path: str, metadata: dict[str, Any]):
        self._path = path
        self._read(metadata)
        self._check_alphabet()
        self._missing = bytes(b for c, b in _ALPHABET.items() if c not in self._ids)
        self._bytes: dict[int, bytes] = {}  # filled as tokens are met
        self._specials = self._finder(_AS_WRITTEN)
        self._always = self._finder((USER_DEFINED,))
        parsed = (
            t
            for t, k in zip(self._tokens, self._types, strict=True)
            if k in (CONTROL, UNKNOWN) and t
        )
        self._first_chars = {t[0] for t in parsed}
        self._model = self._build()
        token = lambda i: "" if i is None else self._tokens[i]  # noqa: E731
        self._template = ChatTemplate(
            path,
            "key 'tokenizer.chat_template'",
            metadata.get("tokenizer.chat_template"),
            {"bos_token": token(self.bos), "eos_token": token(self.eos)},
        )

    # ------------------------------------------------------------------ from the file
    def _read(self, metadata: dict[str, Any]) -> None:
        model = metadata.get("tokenizer.ggml.model")
        if model != "gpt2":
            raise unsupported(f"{self._path}: tokenizer.ggml.model is {model!r} and must be 'gpt2'")
        self._pre = metadata.get("tokenizer.ggml.pre")
        if self._pre not in PRE:
            names = " or ".join(repr(n) for n in PRE)
            what = f"tokenizer.ggml.pre is {self._pre!r}"
            raise unsupported(f"{self._path}: {what} and must be {names}")
        self._tokens = self._strings(metadata, "tokenizer.ggml.tokens")
        self._ids = {t: i for i, t in enumerate(self._tokens)}
        if len(self._ids) != len(self._tokens):
            raise format_error(self._path, "key 'tokenizer.ggml.tokens' holds a token twice")
        n = len(self._tokens)
        types = metadata.get("tokenizer.ggml.token_type", [NORMAL] * n)
        if not isinstance(types, list) or len(types) != n:
            raise format_error(self._path, f"key 'tokenizer.ggml.token_type' must hold {n} numbers")
        self._types = types
        self._merges = self._read_merges(self._strings(metadata, "tokenizer.ggml.merges"))
        self.bos = self._special(metadata, "bos")
        self.eos = self._special(metadata, "eos")
        self.stops = {i for i in (self.eos, self._special(metadata, "eot")) if i is not None}
        self.add_bos = bool(metadata.get("tokenizer.ggml.add_bos_token", False))
        if self.add_bos and self.bos is None:
            raise format_error(self._path, "the file asks for a BOS token and names none")

    def _strings(self, metadata: dict[str, Any], key: str) -> list[str]:
        value = metadata.get(key)
        if not isinstance(value, list) or not value or not isinstance(value[0], str):
            raise format_error(self._path, f"key {key!r} must be there and hold strings")
        return value

    def _read_merges(self, lines: list[str]) -> list[tuple[str, str]]:
        merges = [tuple(line.split(" ")) for line in lines]
        ids = self._ids
        for i, pair in enumerate(merges):
            known = len(pair) == 2 and pair[0] in ids and pair[1] in ids
            if not known or pair[0] + pair[1] not in ids:
                raise format_error(
                    self._path, f"merge {i} is {lines[i]!r} and must join two tokens to a third"
                )
        return merges

    def _special(self, metadata: dict[str, Any], name: str) -> int | None:
        key = f"tokenizer.ggml.{name}_token_id"
        value = metadata.get(key)
        if value is None or (type(value) is int and 0 <= value < len(self._tokens)):
            return value
        raise format_error(
            self._path, f"key {key!r} is {value!r} and must be an id below {len(self._tokens)}"
        )

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

    def _build(self):
        tokenizers = need("tokenizers")
        bpe = tokenizers.models.BPE(vocab=self._ids, merges=self._merges)
        model = tokenizers.Tokenizer(bpe)
        model.pre_tokenizer = PRE[self._pre](tokenizers.pre_tokenizers)
        self._merges = []  # the model has its own copy
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
        if isinstance(ids, (str, bytes)):
            raise TypeError(f"decode: ids is {ids!r:.60} and must be a sequence of ints")
        return b"".join(self.token_bytes(i) for i in ids).decode("utf-8", errors="replace")

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
