"""Compiled subscriptions: the checks of a tag or SQL92 expression that a broker makes."""

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
    """The filter of one subscription."""

    expression_type: str
    expression: str
    matches_all: bool
    """All messages match."""
    matches_code: CodeCheck | None
    """A record with this tags code may match. ``None`` if the code is not enough, as for SQL92."""
    codes: tuple[int, ...]
    """The tags codes that ``matches_code`` accepts; empty if it accepts all of them or is ``None``."""
    matches_properties: Callable[[bytes], bool]
    """A record with this properties string matches. Never raises. For tags it is exact, unlike ``matches_code``;
    RocketMQ's broker leaves this check to the client."""


def is_tag_type(expression_type: str | None) -> bool:
    """The expression type is by tag, which is also the default."""
    return expression_type in {None, "", TAG}


def compile_subscription(expression_type: str | None, expression: str) -> CompiledFilter:
    """The filter of a subscription. Raises ``FilterError``; a ``FilterSyntaxError`` has the position."""
    if is_tag_type(expression_type):
        tags = parse_tags(expression)
        return CompiledFilter(
            TAG, tags.expression, tags.matches_all, tags.code_check(), tags.codes, tags.properties_check()
        )
    if expression_type == SQL92:
        check = compile_sql(expression).matches_raw
        return CompiledFilter(
            SQL92, expression, matches_all=False, matches_code=None, codes=(), matches_properties=check
        )
    raise FilterError(f"unknown expression type {expression_type!r}: use TAG or SQL92")


def subscription_data(topic: str, expression_type: str | None, expression: str, version: int) -> SubscriptionData:
    """The subscription in a client's heartbeat. The broker validates SQL92 expressions."""
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
