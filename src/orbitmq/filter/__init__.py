"""Message filters: tag and SQL92 expressions, compiled to predicates.

Everything is pure: expressions in, functions out. Which subscription is whose, its versions and the file they are
kept in belong to the broker.
"""

from orbitmq.filter.bloom import BloomFilter, bloom_filter
from orbitmq.filter.errors import FilterError, FilterEvaluationError, FilterSyntaxError
from orbitmq.filter.sql import SqlSelector, compile_sql
from orbitmq.filter.subscription import (
    SQL92,
    TAG,
    CompiledFilter,
    compile_subscription,
    is_tag_type,
    subscription_data,
)
from orbitmq.filter.tags import TagExpression, parse_tags


def prepare() -> None:
    """Load the SQL92 parser and build its grammar, which takes 120 ms the first time; in any thread."""
    from orbitmq.filter import parsing  # noqa: PLC0415 - most brokers never see such an expression

    parsing.prepare()


__all__ = [
    "SQL92",
    "TAG",
    "BloomFilter",
    "CompiledFilter",
    "FilterError",
    "FilterEvaluationError",
    "FilterSyntaxError",
    "SqlSelector",
    "TagExpression",
    "bloom_filter",
    "compile_sql",
    "compile_subscription",
    "is_tag_type",
    "parse_tags",
    "prepare",
    "subscription_data",
]
