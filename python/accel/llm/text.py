"""The text of a stream of tokens: whole characters only, and nothing of a stop string."""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class TextStream:
    """Bytes of tokens in, text out.

    Bytes of a split character wait for its end, and text that may be the beginning of a stop string
    waits until it is none. What was given out never changes.
    """

    def __init__(self, stop: Sequence[str] = ()):
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._stop = tuple(stop)
        self._held = ""
        self.stopped = False  # a stop string has been met

    def feed(self, data: bytes, last: bool = False) -> str:
        """The text that is now certain; with last=True all that waits, up to a stop string."""
        text = self._held + self._decoder.decode(data, last)
        found = [at for at in map(text.find, self._stop) if at >= 0]
        if found:
            self.stopped, self._held = True, ""
            return text[: min(found)]
        keep = 0 if last else self._possible(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def _possible(self, text: str) -> int:
        """How many characters at the end may begin a stop string."""
        longest = max(map(len, self._stop), default=0) - 1
        for n in range(min(longest, len(text)), 0, -1):
            if any(s.startswith(text[-n:]) for s in self._stop):
                return n
        return 0
