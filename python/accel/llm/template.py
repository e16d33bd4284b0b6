"""Chat templates: the checkpoint's own text, filled with messages, in a sandbox."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence

from .errors import attr_error, format_error, unsupported

# Private-use characters: one that the text lacks marks where it must not be parsed.
_MARKS = [chr(c) for c in range(0xE000, 0xE100)]


def need(module: str):
    """An optional package that text needs, imported when it is first used."""
    try:
        return __import__(module, fromlist=["_"])
    except ImportError as e:
        raise ImportError(f"accel.llm needs {module}: pip install {module}") from e


class ChatTemplate:
    """`source` is the template's text or None; `where` names what holds it."""

    def __init__(self, path: str, where: str, source: object, tokens: Mapping[str, str]):
        self._path, self._where, self.source = path, where, source
        self._tokens = dict(tokens)
        self._compiled = None

    def render(self, messages: Sequence[dict[str, str]]) -> str:
        jinja2 = need("jinja2")
        if self._compiled is None:
            self._compiled = self._compile(jinja2)
        try:
            return self._compiled.render(
                messages=messages, add_generation_prompt=True, **self._tokens
            )
        except Exception as e:  # its code is the checkpoint's: it may divide by zero, or recurse
            kind = "" if isinstance(e, jinja2.TemplateError) else f"{type(e).__name__}: "
            why = " ".join(f"{kind}{e}".split())
            raise attr_error(
                "chat", "messages", f"refused by the template ({why})", "what it takes"
            ) from e

    def _compile(self, jinja2):
        if self.source is None:
            raise unsupported(f"{self._path}: the checkpoint has no chat template")
        if not isinstance(self.source, str):
            what = f"{self._where} is {self.source!r:.60} and must be text"
            raise format_error(self._path, what)
        sandbox = need("jinja2.sandbox")

        def raise_exception(message):
            raise jinja2.TemplateError(message)

        env = sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        env.globals["raise_exception"] = raise_exception
        env.globals["strftime_now"] = lambda form: time.strftime(form)
        env.filters["tojson"] = _tojson
        try:
            return env.from_string(self.source)
        except Exception as e:  # also text that Python cannot compile
            why = " ".join(str(e).split())
            raise format_error(self._path, f"{self._where} is no template ({why})") from e


def _tojson(value, indent=None) -> str:
    """Without the escapes of a web page, which the filter of that name would make."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def check_messages(messages: Sequence[dict[str, str]]) -> None:
    if isinstance(messages, (str, dict)) or not messages:
        raise attr_error("chat", "messages", repr(messages), "a list of role and content")
    for i, m in enumerate(messages):
        texts = isinstance(m, dict) and all(isinstance(m.get(k), str) for k in ("role", "content"))
        if not texts:
            raise attr_error("chat", f"messages[{i}]", repr(m), "a dict with role and content")


def unused_mark(source: object, messages: Sequence[dict[str, str]]) -> str:
    texts = [v for m in messages for v in m.values() if isinstance(v, str)]
    text = "".join([source if isinstance(source, str) else "", *texts])
    for mark in _MARKS:
        if mark not in text:
            return mark
    raise attr_error("chat", "messages", "text with every private-use mark", "ordinary text")


def guarded(messages, first_chars: set[str], mark: str) -> list[dict]:
    """Splits whatever could begin a control token, so that none is found in a message's text."""

    def split(text: str) -> str:
        return "".join(c + mark if c in first_chars else c for c in text)

    return [
        {k: split(v) if isinstance(v, str) else v for k, v in message.items()}
        for message in messages
    ]
