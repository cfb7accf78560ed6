"""A subscription's expression, of whatever type, as the checks a broker makes."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.filter.errors import FilterError
from orbitmq.filter.sql import compile_sql
from orbitmq.filter.tags import parse_tags
from orbitmq.protocol.bodies.clients import SubscriptionData

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.filter.tags import CodeCheck

TAG = "TAG"
SQL92 = "SQL92"


@dataclasses.dataclass(frozen=True, slots=True)
class CompiledFilter:
    """The checks of one subscription."""

    expression_type: str
    expression: str
    matches_all: bool
    """Nothing needs to be checked."""
    matches_code: CodeCheck | None
    """May a record with this tags code be wanted? ``None`` if the code does not tell, as with SQL92."""
    matches_properties: Callable[[bytes], bool]
    """Is a record with this properties string wanted? Never raises. With tags it is exact where ``matches_code`` is
    not, a check that RocketMQ's broker leaves to the client."""


def is_tag_type(expression_type: str | None) -> bool:
    """Whether a subscription is by tag, which is also what no type means."""
    return expression_type in {None, "", TAG}


def compile_subscription(expression_type: str | None, expression: str) -> CompiledFilter:
    """The filter of a subscription. Raises ``FilterError``; a ``FilterSyntaxError`` says where the fault is."""
    if is_tag_type(expression_type):
        tags = parse_tags(expression)
        return CompiledFilter(TAG, tags.expression, tags.matches_all, tags.code_check(), tags.properties_check())
    if expression_type == SQL92:
        check = compile_sql(expression).matches_raw
        return CompiledFilter(SQL92, expression, matches_all=False, matches_code=None, matches_properties=check)
    raise FilterError(f"there is no expression type {expression_type!r}: use TAG or SQL92")


def subscription_data(topic: str, expression_type: str | None, expression: str, version: int) -> SubscriptionData:
    """A subscription as a client announces it. Whether a SQL92 expression is right, the broker says."""
    if is_tag_type(expression_type):
        tags = parse_tags(expression)
        return SubscriptionData(
            topic=topic,
            sub_string=tags.expression,
            tags_set=list(tags.tags),
            code_set=list(tags.codes),
            sub_version=version,
            expression_type=TAG,
        )
    if not expression:
        raise FilterError(f"a subscription of type {expression_type} needs an expression")
    return SubscriptionData(
        topic=topic, sub_string=expression, sub_version=version, expression_type=expression_type or TAG
    )
