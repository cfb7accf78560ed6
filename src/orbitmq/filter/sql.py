"""SQL92 selectors: expressions compiled once and evaluated for every message."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.filter.compiled_cache import CompiledCache
from orbitmq.filter.errors import FilterEvaluationError, FilterSyntaxError
from orbitmq.protocol.java import decode_utf8
from orbitmq.protocol.message.properties import find
from orbitmq.protocol.message.properties import parse as parse_properties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.filter.predicates import Predicate, Slots

MAX_LENGTH = 65_536
"""Characters of an expression; its tokens and levels have limits too."""

_MAX_SEARCHED = 4
"""Up to this many properties are searched one by one; for more, parsing the whole string is faster."""


@dataclasses.dataclass(frozen=True, slots=True)
class SqlSelector:
    """A compiled expression."""

    expression: str
    names: tuple[str, ...]
    """Names of the properties that it reads."""
    _keys: tuple[bytes, ...] = dataclasses.field(repr=False)
    _predicate: Predicate = dataclasses.field(repr=False)

    def evaluate(self, properties: Mapping[str, str]) -> bool | None:
        """True, false or unknown. Raises ``FilterEvaluationError`` where a comparison has no result."""
        get = properties.get
        return self._predicate([get(name) for name in self.names])

    def matches(self, properties: Mapping[str, str]) -> bool:
        """A message with these properties matches; never raises."""
        try:
            return self.evaluate(properties) is True
        except FilterEvaluationError:
            return False

    def matches_raw(self, properties: bytes) -> bool:
        """A message with this properties string matches; never raises."""
        if len(self._keys) > _MAX_SEARCHED:
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
    """The selector of an expression. Raises ``FilterSyntaxError`` with the position."""
    if len(expression) > MAX_LENGTH:
        # Checked here, so that expressions that are too long are not cached.
        raise FilterSyntaxError(f"the expression is longer than {MAX_LENGTH} characters", 1, 1)
    compiled = _cache.get(None, expression)
    if compiled is None:
        compiled = _compiled(expression)
        _cache.put(None, expression, compiled)
    if isinstance(compiled, SqlSelector):
        return compiled
    raise FilterSyntaxError(*compiled)


_cache: CompiledCache[SqlSelector | tuple[str, int, int]] = CompiledCache()
"""Compiled expressions, and the errors of invalid ones: their clients send them again."""


def _compiled(expression: str) -> SqlSelector | tuple[str, int, int]:
    # Imported here: they take longer to load than everything else, and few subscriptions need them.
    from orbitmq.filter.parsing import parse  # noqa: PLC0415
    from orbitmq.filter.predicates import predicate  # noqa: PLC0415

    try:
        tree = parse(expression)
    except FilterSyntaxError as error:
        # Not the exception itself: it references the frames it was raised in, and each raise adds to them.
        return error.reason, error.line, error.column
    slots: Slots = {}
    function = predicate(tree, slots)
    names = tuple(slots)
    return SqlSelector(expression, names, tuple([name.encode() for name in names]), function)
