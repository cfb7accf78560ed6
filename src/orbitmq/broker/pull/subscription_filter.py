"""Subscription expressions in pulls and pops: checked against the limits, compiled and cached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.filter import CompiledFilter, FilterError, compile_subscription, is_tag_type
from orbitmq.filter.compiled_cache import CompiledCache
from orbitmq.platform.limit_counts import Limit, count_refusal

if TYPE_CHECKING:
    from orbitmq.broker.config.broker_config import BrokerConfig

_cache: CompiledCache[CompiledFilter] = CompiledCache()


class SubscriptionTooLongError(FilterError):
    """An expression over a limit of this broker; the text names the limit and its setting."""


def check_length(config: BrokerConfig, expression_type: str | None, expression: str) -> None:
    """Raise SubscriptionTooLongError for an expression that is over a limit."""
    if len(expression) > config.max_subscription_length:
        count_refusal(Limit.SUBSCRIPTION_LENGTH)
        raise SubscriptionTooLongError(
            f"the subscription expression has {len(expression)} characters, at most "
            f"{config.max_subscription_length} are allowed (maxSubscriptionLength)"
        )
    if is_tag_type(expression_type):
        tags = expression.count("||") + 1
        if tags > config.max_subscription_tags:
            count_refusal(Limit.SUBSCRIPTION_TAGS)
            raise SubscriptionTooLongError(
                f"the subscription expression has {tags} tags, at most {config.max_subscription_tags} are allowed "
                "(maxSubscriptionTags)"
            )


def compile_carried(config: BrokerConfig, expression_type: str | None, expression: str) -> CompiledFilter:
    """The compiled filter of an expression. Raises FilterError."""
    found = _cache.get(expression_type, expression)
    if found is None:
        check_length(config, expression_type, expression)
        found = compile_subscription(expression_type, expression)
        _cache.put(expression_type, expression, found)
    return found
