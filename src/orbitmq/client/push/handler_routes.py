"""Handler routes: several handlers of one topic, on one subscription that covers all their filters.

A consumer group has one filter per topic. With several handlers it is the union of theirs, and each message goes to
the handler whose own filter it matches: to the one for its tag, else to the first one whose SQL92 expression is
true, else to the one without a filter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.client.errors import InvalidMessageError
from orbitmq.filter import SQL92, TAG, compile_subscription, is_tag_type
from orbitmq.filter.tags import ALL

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from orbitmq.protocol.bodies import SubscriptionData


def combined_filter(filters: Sequence[SubscriptionData]) -> tuple[str, str]:
    """Type and expression of the union of these filters. Raises InvalidMessageError if they have no union."""
    _check_disjoint(filters)
    if any(_is_all(one) for one in filters):
        return TAG, ALL
    if all(is_tag_type(one.expression_type) for one in filters):
        return TAG, " || ".join(tag for one in filters for tag in one.tags_set)
    return SQL92, " OR ".join(f"({_as_sql(one)})" for one in filters)


def accepts(data: SubscriptionData) -> Callable[[bytes], bool]:
    """The check of a filter on the stored properties of a message. Raises FilterError."""
    return compile_subscription(data.expression_type, data.sub_string).matches_properties


def route_order(data: SubscriptionData) -> int:
    """Handlers by tag come first, then by SQL92 in the order of registration, then the one without a filter."""
    if not is_tag_type(data.expression_type):
        return 1
    return 2 if _is_all(data) else 0


def _check_disjoint(filters: Sequence[SubscriptionData]) -> None:
    seen: set[str] = set()
    for one in filters:
        own = set(one.tags_set) if is_tag_type(one.expression_type) and not _is_all(one) else {one.sub_string}
        if is_tag_type(one.expression_type) and not own:
            raise InvalidMessageError(f"a handler of {one.topic!r} has a filter without a tag: {one.sub_string!r}")
        if both := seen & own:
            filter_text = min(both)
            what = "all messages" if filter_text == ALL else f"{filter_text!r}"
            raise InvalidMessageError(
                f"the topic {one.topic!r} has a handler for {what} already: a message goes to one handler of a "
                "group; give them different tags, or consume in another group"
            )
        seen |= own


def _is_all(data: SubscriptionData) -> bool:
    return is_tag_type(data.expression_type) and data.sub_string == ALL


def _as_sql(data: SubscriptionData) -> str:
    if not is_tag_type(data.expression_type):
        return data.sub_string
    for tag in data.tags_set:
        if "'" in tag:
            raise InvalidMessageError(
                f"the tag {tag!r} cannot be combined with a SQL92 handler of {data.topic!r}: it has a quote"
            )
    tags = ", ".join(f"'{tag}'" for tag in data.tags_set)
    return f"TAGS IS NOT NULL AND TAGS IN ({tags})"
