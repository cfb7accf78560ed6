"""Lists in pages: search, sort and cut, the same for the REST interface and for tables."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from orbitmq.admin.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

T = TypeVar("T")

MAX_PAGE_SIZE = 500


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Which part of a list is wanted. ``page`` counts from 1."""

    page: int = 1
    size: int = 50
    search: str = ""
    sort: str = ""
    descending: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list. ``total`` counts all that match the search."""

    rows: list[T]
    total: int
    page: int
    size: int


def page_of(
    items: Iterable[T], query: Query, *, text: Callable[[T], str], sorts: Mapping[str, Callable[[T], Any]]
) -> Page[T]:
    """The wanted part. ``text`` is what a search looks into; ``sorts`` has the sort keys by name.

    Raises InvalidRequestError.
    """
    if query.page < 1 or not 1 <= query.size <= MAX_PAGE_SIZE:
        raise InvalidRequestError(
            f"a page has a number from 1 and 1 to {MAX_PAGE_SIZE} rows, not {query.page} and {query.size}"
        )
    wanted = query.search.strip().lower()
    found = [item for item in items if wanted in text(item).lower()] if wanted else list(items)
    if query.sort:
        if query.sort not in sorts:
            raise InvalidRequestError(f"sort by one of {', '.join(sorts)}, not {query.sort!r}")
        found.sort(key=sorts[query.sort], reverse=query.descending)
    start = (query.page - 1) * query.size
    return Page(found[start : start + query.size], len(found), query.page, query.size)
