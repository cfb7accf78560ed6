"""Subscriptions by tag: ``*``, ``TagA``, ``TagA || TagB``.

A consume queue unit holds the hash of the tag, so that a broker tells messages apart without reading them. Two tags
may share a hash; the client looks at the tag itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from orbitmq.filter.errors import FilterSyntaxError
from orbitmq.filter.numbers import BLANKS
from orbitmq.protocol.java import decode_utf8, string_hash
from orbitmq.protocol.message.properties import find

ALL = "*"
"""All messages, with or without a tag. Only if it is the whole expression: in ``* || a`` it is a tag."""

CodeCheck = Callable[[int], bool]

_LOW = 0xFFFFFFFF


@dataclasses.dataclass(frozen=True, slots=True)
class TagExpression:
    """A parsed tag expression."""

    expression: str
    """The original text; ``*`` if it was empty."""
    tags: tuple[str, ...]
    """Each tag once, in the order written; none for ``*``."""
    codes: tuple[int, ...]
    """Their distinct hashes: two tags may have the same."""

    @property
    def matches_all(self) -> bool:
        return self.expression == ALL

    def matches_tag(self, tag: str | None) -> bool:
        """The exact check of the client. A message without a tag matches only ``*``."""
        return self.expression == ALL or tag in self.tags

    def code_check(self) -> CodeCheck:
        """The check of the broker, by tags code: a record with this code may match.

        A code has 64 bits of which a hash has 32; the rest is its sign, or in the schedule topic anything.
        """
        if self.matches_all:
            return _anything
        if len(self.codes) == 1:
            wanted = self.codes[0] & _LOW
            return lambda code: code & _LOW == wanted
        codes = frozenset([code & _LOW for code in self.codes])
        return lambda code: code & _LOW in codes

    def properties_check(self) -> Callable[[bytes], bool]:
        """The exact check on the properties string of a record."""
        if self.matches_all:
            return _anything
        tags = frozenset(self.tags)

        def check(properties: bytes) -> bool:
            tag = find(properties, b"TAGS")
            return tag is not None and decode_utf8(tag) in tags

        return check


def parse_tags(expression: str) -> TagExpression:
    """Read a tag expression: tags between ``||``, trimmed, empty ones left out.

    Blanks alone name no tag and match nothing. Only bars with nothing between them are wrong.
    """
    if expression in {"", ALL}:
        return TagExpression(ALL, (), ())
    parts = expression.split("||")
    if not any(parts):
        raise FilterSyntaxError("the expression has no tag", 1, 1)
    # dict.fromkeys: each once, in order.
    tags = tuple(dict.fromkeys([tag for part in parts if (tag := part.strip(BLANKS))]))
    return TagExpression(expression, tags, tuple(dict.fromkeys(map(string_hash, tags))))


def _anything(_: object) -> bool:
    return True
