"""Patterns of topic names that come from settings: regular expressions whose match time is linear.

Settings arrive over the network and the pattern is matched on the event loop, so a backtracking engine is not an
option: ``(a+)+b`` would hold the broker for years. RE2 matches in time linear in the name, and the size of its
program, which bounds the factor, is limited here.
"""

from __future__ import annotations

import functools

from orbitmq.platform.settings import ConfigError

MAX_PATTERN_LENGTH = 4096
"""Characters."""
MAX_PROGRAM_SIZE = 1000
"""Instructions of the compiled pattern. A match takes at most this many steps for each character of the name."""

_MAX_MEMORY = 1 << 18
"""Bytes that RE2 may use for a compiled pattern and the automaton that it caches."""


class TopicPattern:
    """A compiled pattern. It must match the whole topic name."""

    __slots__ = ("_compiled", "cost")

    def __init__(self, text: str) -> None:
        """Compile the pattern. Raises ConfigError with a reason that begins with "is"."""
        import re2  # noqa: PLC0415 - only brokers with an archive need it

        if len(text) > MAX_PATTERN_LENGTH:
            raise ConfigError(f"is {len(text)} characters long; at most {MAX_PATTERN_LENGTH} are allowed")
        options = re2.Options()
        options.max_mem = _MAX_MEMORY
        options.log_errors = False
        try:
            self._compiled = re2.compile(text.encode(), options)
        except (re2.error, UnicodeEncodeError) as error:
            raise ConfigError(f"is no regular expression: {_reason(error)}") from None
        size = self._compiled.programsize
        if size > MAX_PROGRAM_SIZE:
            raise ConfigError(
                f"is too complex: {size} steps for a character, at most {MAX_PROGRAM_SIZE} are allowed"
            )
        self.cost = 1 + size // 4
        """Maximum cost of one match, in units of the check of one open queue."""

    def matches(self, topic: str) -> bool:
        # Directory names may be undecodable; such a topic matches as if with question marks.
        return self._compiled.fullmatch(topic.encode("utf-8", "replace")) is not None


@functools.lru_cache(maxsize=8)
def topic_pattern(text: str) -> TopicPattern:
    """The compiled pattern of a text, cached. Raises ConfigError."""
    return TopicPattern(text)


def _reason(error: Exception) -> str:
    """RE2 gives its reason as bytes."""
    first = error.args[0] if error.args else ""
    if isinstance(error, UnicodeEncodeError):
        return "it is not text"
    return first.decode("utf-8", "replace") if isinstance(first, bytes) else str(first)
