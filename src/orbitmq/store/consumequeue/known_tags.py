"""Known tags: tags codes of queue units that records have confirmed, by topic.

A flipped bit in the tags code of a unit hides its message from consumers that filter by tags. A topic has few
different codes, so a filter that passes over a code that no record has confirmed yet compares it with its record.
A topic with very many codes is not checked: each comparison reads the log where a filter otherwise would not.
"""

from __future__ import annotations

MAX_CODES = 1024
"""Codes of one topic; a topic with more is not checked."""

MAX_TOPICS = 4096
"""Topics that are remembered; beyond them, the codes are confirmed again."""

MAX_DOUBTS = 16
"""Codes that one read compares with their records."""


class KnownTags:
    """Confirmed tags codes."""

    def __init__(self) -> None:
        self._codes: dict[str, set[int]] = {}

    def is_doubtful(self, topic: str, code: int) -> bool:
        """True if a record has to confirm the code."""
        codes = self._codes.get(topic)
        return codes is None or (code not in codes and len(codes) < MAX_CODES)

    def confirm(self, topic: str, code: int) -> None:
        """Remember a code that a record has."""
        codes = self._codes.get(topic)
        if codes is None:
            if len(self._codes) >= MAX_TOPICS:
                self._codes.clear()
            codes = self._codes[topic] = set()
        if len(codes) < MAX_CODES:
            codes.add(code)
