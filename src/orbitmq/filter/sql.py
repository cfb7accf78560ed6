"""SQL92 expressions, compiled once and asked of every message."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING

from orbitmq.filter.errors import FilterEvaluationError, FilterSyntaxError
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.properties import find
from orbitmq.protocol.properties import parse as parse_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.filter.predicates import Predicate, Slots

MAX_LENGTH = 65_536
"""Characters of an expression; how many words and levels they may make is limited too."""

_KEPT = 128
"""Compiled expressions, and wrong ones, that are kept. RocketMQ keeps 100. A pull may bring its expression with
it, so without this every such pull would compile."""

_SOUGHT = 4
"""Up to so many properties are sought one by one; for more it is faster to read the whole string."""


@dataclasses.dataclass(frozen=True, slots=True)
class SqlSelector:
    """A compiled expression."""

    expression: str
    names: tuple[str, ...]
    """The properties it asks for."""
    _keys: tuple[bytes, ...] = dataclasses.field(repr=False)
    _predicate: Predicate = dataclasses.field(repr=False)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """True, false or unknown. Raises ``FilterEvaluationError`` where a comparison has no result."""
        get = properties.get
        return self._predicate([get(name) for name in self.names])

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a message with these properties is wanted; never raises."""
        try:
            return self.evaluate(properties) is True
        except FilterEvaluationError:
            return False

    def matches_raw(self, properties: bytes) -> bool:
        """Whether a message with this properties string is wanted; never raises."""
        if len(self._keys) > _SOUGHT:
            return self.matches(parse_properties(properties))
        values = []
        for key in self._keys:
            value = find(properties, key)
            values.append(None if value is None else decode_utf8(value))
        try:
            return self._predicate(values) is True
        except FilterEvaluationError:
            return False


def compile_sql(expression: str) -> SqlSelector:
    """The selector of an expression. Raises ``FilterSyntaxError``, which says where it is wrong."""
    if len(expression) > MAX_LENGTH:
        # Said here, so that what is too long is not kept either.
        raise FilterSyntaxError(f"the expression is longer than {MAX_LENGTH} characters", 1, 1)
    compiled = _compiled(expression)
    if isinstance(compiled, SqlSelector):
        return compiled
    raise FilterSyntaxError(*compiled)


@functools.lru_cache(maxsize=_KEPT)
def _compiled(expression: str) -> SqlSelector | tuple[str, int, int]:
    # Here and not above: they take longer to load than all the rest, and few subscriptions need them.
    from orbitmq.filter.parsing import parse  # noqa: PLC0415
    from orbitmq.filter.predicates import predicate  # noqa: PLC0415

    try:
        tree = parse(expression)
    except FilterSyntaxError as error:
        # Not the error itself: it would hold on to the frames it was raised in, and raising it again adds to them.
        return error.reason, error.line, error.column
    slots: Slots = {}
    function = predicate(tree, slots)
    names = tuple(slots)
    return SqlSelector(expression, names, tuple([name.encode() for name in names]), function)
