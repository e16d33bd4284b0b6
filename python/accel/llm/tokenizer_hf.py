"""The tokenizer of a folder: `tokenizer.json` read by the tokenizers package, the chat template and
the special tokens of its neighbours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from .alphabet import byte_alphabet
from .dropped import Dropped
from .errors import attr_error, format_error, unsupported
from .ids import ids_of
from .safetensor import read_json
from .template import ChatTemplate, check_messages, guarded, need, unused_mark

_ALPHABET = byte_alphabet()
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")
_SPACE = "\u2581"  # stands for a space where the vocabulary is not of bytes


class FolderTokenizer:
    """`encode`, `decode` and `chat` of one folder; safe to share between threads."""

    def __init__(self, folder: Path, bos: int | None, ends: Sequence[int]):
        self._path = str(folder / "tokenizer.json")
        self._parsing = self._read()
        # The second reads control tokens as text: the switch is the object's, not the call's.
        self._plain = self._read()
        self._plain.encode_special_tokens = True
        added = self._parsing.get_added_tokens_decoder()
        self._added = {i: token.content for i, token in added.items()}
        special = [t.content for t in added.values() if t.special and t.content]
        longest_first = sorted(special, key=len, reverse=True)
        self._finder = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        self._special, self._first_chars = set(special), {t[0] for t in special}
        spec = json.loads(self._parsing.to_str())
        self._read_decoder(spec.get("decoder") or {})
        self._dropped = Dropped(self._parsing, spec)
        settings = self._settings(folder)
        self.bos = self._id(settings, "bos_token", bos)
        self.eos = self._id(settings, "eos_token", ends[0] if ends else None)
        self.stops = {i for i in (self.eos, *ends) if i is not None}
        self._template = self._read_template(folder, settings)

    def _read(self):
        tokenizers = need("tokenizers")
        try:
            text = Path(self._path).read_text(encoding="utf-8")
            model = tokenizers.Tokenizer.from_str(text)
        except Exception as e:  # the package raises nothing narrower
            raise format_error(self._path, f"the file is no tokenizer ({e})") from None
        # Of the batches that the file was trained with; a prompt is taken as it is.
        model.no_truncation()
        model.no_padding()
        for key in ("dropout", "alpha"):
            if value := getattr(model.model, key, None):
                what = f"key 'model.{key}' is {value:g} and must be 0 or null"
                raise unsupported(f"{self._path}: {what}: ids would be drawn at random")
        return model

    def _settings(self, folder: Path) -> dict:
        path = folder / "tokenizer_config.json"
        settings = read_json(path) if path.exists() else {}
        if not isinstance(settings, dict):
            raise format_error(path, "the file must hold an object")
        return settings

    def _id(self, settings: dict, key: str, given: int | None) -> int | None:
        """The token that the configuration names, else the one that the tokenizer's own does."""
        if given is not None:
            return given
        text = _text_of(settings.get(key))
        if text is None:
            return None
        if not _encodable(text):
            what = f"key {key!r} is {text!r:.60} and must be Unicode text"
            raise format_error(Path(self._path).parent / "tokenizer_config.json", what)
        return self._parsing.token_to_id(text)

    # ------------------------------------------------------------------ bytes of a token
    def _read_decoder(self, spec: dict) -> None:
        steps = spec.get("decoders") if spec.get("type") == "Sequence" else [spec]
        kinds = [step.get("type") for step in steps]
        self._byte_level = "ByteLevel" in kinds
        self._strip = any(s.get("type") == "Strip" and s.get("start") for s in steps)
        known = {"ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
        unknown = [k for k in kinds if k not in known]
        if unknown:
            what = f"decoder {unknown[0]!r} is not supported"
            raise unsupported(f"{self._path}: {what}; known are {', '.join(sorted(known))}")
        for step in steps:
            pattern = step.get("pattern") or {}
            pair = (pattern.get("String"), step.get("content"))
            if step.get("type") == "Replace" and pair != (_SPACE, " "):
                raise unsupported(f"{self._path}: decoder replaces {pair[0]!r}, which is not known")

    def token_bytes(self, i: int) -> bytes:
        if i in self._added:
            return self._added[i].encode("utf-8")
        token = self._parsing.id_to_token(i)
        if token is None:
            return b""  # a row of the vocabulary that no token has
        if self._byte_level:
            # A token outside the alphabet stands for itself.
            spelled = all(c in _ALPHABET for c in token)
            return bytes(_ALPHABET[c] for c in token) if spelled else token.encode("utf-8")
        if found := _BYTE.fullmatch(token):
            return bytes([int(found[1], 16)])
        return token.replace(_SPACE, " ").encode("utf-8")

    # ------------------------------------------------------------------ members
    @property
    def vocab(self) -> int:
        return self._parsing.get_vocab_size(with_added_tokens=True)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of the text, after BOS where the tokenizer's own rules put it.

        With special=False the text of control tokens is text like any other.
        """
        return self._encode(text, special, True)

    def _encode(self, text: str, special: bool, whole: bool) -> list[int]:
        """whole: with the tokens that the tokenizer's own rules put around a text."""
        _check_text(text)
        self._dropped.check(text, special)
        model = self._parsing if special else self._plain
        try:
            return model.encode(text, add_special_tokens=whole).ids
        except Exception as e:  # the package raises nothing narrower
            is_ = f"text that the tokenizer refuses ({e})"
            raise attr_error("encode", "text", is_, "spelled by its vocabulary") from None

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids, control tokens included; bytes that are not UTF-8 become U+FFFD."""
        found = ids_of("decode", "ids", ids)
        data = b"".join(self.token_bytes(self._checked(i)) for i in found)
        text = data.decode("utf-8", errors="replace")
        return text[1:] if self._strip and text.startswith(" ") else text

    def _checked(self, i: int) -> int:
        if not 0 <= i < 2**32 or self._parsing.id_to_token(i) is None:
            must = f"ids of the {self.vocab} tokens"
            raise attr_error("decode", "ids", f"a list with {i}", must)
        return i

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Ids of the checkpoint's template filled with messages, up to where the assistant speaks.

        Control tokens come from the template alone: their text inside a message is text.
        """
        check_messages(messages)
        text = self._template.render(messages)
        mark = unused_mark(self._template.source, messages)
        marked = self._template.render(guarded(messages, self._first_chars, mark))
        _check_text(text)
        pieces = self._finder.split(marked)
        if self._special and [p.replace(mark, "") for p in pieces] != self._finder.split(text):
            return self._by_piece(pieces, mark)
        return self._encode(text, True, False)

    def _by_piece(self, pieces: list[str], mark: str) -> list[int]:
        """For messages that spell control tokens: each stretch between the template's own ones."""
        ids: list[int] = []
        for i, piece in enumerate(pieces):
            if i % 2:  # split() with one group: every second piece is a match
                ids.append(self._parsing.token_to_id(piece))
            elif piece:
                ids += self._encode(piece.replace(mark, ""), False, False)
        return ids

    # ------------------------------------------------------------------ template
    def _read_template(self, folder: Path, settings: dict) -> ChatTemplate:
        tokens = {k: v for k in settings if (v := _text_of(settings[k])) and k.endswith("_token")}
        own = folder / "chat_template.jinja"
        if own.exists():
            source: object = own.read_text(encoding="utf-8", errors="replace")
            return ChatTemplate(str(own), "the file", source, tokens)
        source = settings.get("chat_template")
        if isinstance(source, list):  # several, by name
            dicts = (t for t in source if isinstance(t, dict))
            source = next((t.get("template") for t in dicts if t.get("name") == "default"), None)
        where = "key 'chat_template'"
        path = str(folder / "tokenizer_config.json")
        return ChatTemplate(path, where, source, {"bos_token": "", "eos_token": "", **tokens})


class NoTokenizer:
    """Of a folder without tokenizer.json: ids in, ids out; text is refused by name."""

    def __init__(self, folder: Path, bos: int | None, ends: Sequence[int]):
        self._path = str(folder)
        self.bos, self.eos = bos, ends[0] if ends else None
        self.stops = set(ends)

    def _refuse(self):
        raise unsupported(f"{self._path}: the folder has no tokenizer.json; give ids")

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        self._refuse()

    def decode(self, ids: Iterable[int]) -> str:
        self._refuse()

    def chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        self._refuse()

    def token_bytes(self, i: int) -> bytes:
        return b""


def _text_of(value: object) -> str | None:
    """A token is its text, or an object that holds it."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _encodable(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _check_text(text: str) -> None:
    if not isinstance(text, str):
        raise TypeError(f"encode: text is a {type(text).__name__} and must be a str")
    if not _encodable(text):
        raise attr_error("encode", "text", "text with a lone surrogate", "Unicode text")
