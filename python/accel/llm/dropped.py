"""Characters that a `tokenizer.json` would leave out of a text without a word."""

from __future__ import annotations

import re

from .alphabet import byte_alphabet
from .errors import attr_error

_ALPHABET = byte_alphabet()


class Dropped:
    """BPE without an unknown token drops what no token of its vocabulary spells; such a text is
    refused. `spec` is the tokenizer's own file as an object."""

    def __init__(self, tokenizer, spec: dict):
        model = spec["model"]
        self._vocab = tokenizer.get_vocab(with_added_tokens=False)
        self._off = model.get("type") != "BPE" or model.get("unk_token") is not None
        self._prefix = model.get("continuing_subword_prefix") or ""
        self._suffix = model.get("end_of_word_suffix") or ""
        self._fallback, self._whole = model.get("byte_fallback"), model.get("ignore_merges")
        self._normalizer, self._pre = tokenizer.normalizer, tokenizer.pre_tokenizer
        missing = bytes(b for c, b in _ALPHABET.items() if c not in self._vocab)
        # Bytes that need a look at the pieces; None: every text does.
        self._missing = missing if "ByteLevel" in _kinds(spec.get("pre_tokenizer")) else None
        added = tokenizer.get_added_tokens_decoder().values()
        self._parsed = _finder(t.content for t in added)
        self._always = _finder(t.content for t in added if not t.special)

    def check(self, text: str, special: bool) -> None:
        if self._off:
            return
        finder = self._parsed if special else self._always
        # split() with one group: every second piece is an added token, which needs no spelling
        for piece in finder.split(text)[::2] if finder else [text]:
            found = self._first(piece)
            if found in _ALPHABET and self._missing is not None:
                must = "text whose every byte has a token in this vocabulary"
                is_ = f"text with byte 0x{_ALPHABET[found]:02x}"
                raise attr_error("encode", "text", is_, must)
            if found:
                must = "text whose every character has a token in this vocabulary"
                raise attr_error("encode", "text", f"text with {found!r}", must)

    def _first(self, text: str) -> str | None:
        """The first character, as the model sees it, that has no token."""
        if self._normalizer is not None:
            text = self._normalizer.normalize_str(text)
        if self._missing is not None:
            raw = text.encode("utf-8")
            if len(raw.translate(None, self._missing)) == len(raw):
                return None
        pieces = [text]
        if self._pre is not None:
            pieces = [piece for piece, _ in self._pre.pre_tokenize_str(text)]
        for piece in pieces:
            if self._whole and piece in self._vocab:
                continue
            for i, c in enumerate(piece):
                if not self._spelled(c, i == 0, i + 1 == len(piece)):
                    return c
        return None

    def _spelled(self, c: str, first: bool, last: bool) -> bool:
        token = ("" if first else self._prefix) + c + (self._suffix if last else "")
        if token in self._vocab:
            return True
        raw = token.encode("utf-8")
        return bool(self._fallback) and all(f"<0x{b:02X}>" in self._vocab for b in raw)


def _kinds(spec: dict | None) -> set:
    """The types of a pre-tokenizer, those inside a sequence too."""
    spec = spec or {}
    return {spec.get("type")}.union(*map(_kinds, spec.get("pretokenizers") or []))


def _finder(texts) -> re.Pattern | None:
    longest_first = sorted(filter(None, texts), key=len, reverse=True)
    if not longest_first:
        return None
    return re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
