"""Mistakes in SQL that are found before Spark starts, and queries that are left to Spark."""

from __future__ import annotations

import pytest

from orbitmq.spark.pipelines.sql.errors import QueryError
from orbitmq.spark.pipelines.sql.precheck import check_query
from orbitmq.spark.pipelines.sql.topics import UnknownTopicError

TOPICS = {"orders", "order-events", "payments"}


def topic_of(name: str) -> str:
    if name.lower() not in TOPICS:
        raise UnknownTopicError(f"there is no topic {name!r}")
    return name.lower()


@pytest.mark.parametrize(
    ("query", "sentence", "place"),
    [
        ("selct * from orders", "a query cannot begin with 'selct': did you mean SELECT?", (1, 1)),
        ("hello", "a query cannot begin with 'hello'", (1, 1)),
        ("select * form orders", "there is no FROM: did you mean FROM for 'form'?", (1, 10)),
        ("select count(* from orders", "'(' is never closed", (1, 13)),
        ("select 1) from orders", "')' closes nothing", (1, 9)),
        ("select 'a from orders", "' is never closed", (1, 8)),
        ("select *\nfrom ordrs", "there is no topic 'ordrs'", (2, 6)),
        ("select * from orders join `paymnts` on true", "there is no topic 'paymnts'", (1, 27)),
        ("select * from orders wher tags = 'a'", "'wher' is not a clause: did you mean WHERE?", (1, 22)),
        ("select tags, count(*) from orders gruop by tags", "'gruop' BY is not a clause", (1, 35)),
    ],
)
def test_a_mistake_is_found_with_its_place(query: str, sentence: str, place: tuple[int, int]) -> None:
    with pytest.raises(QueryError) as raised:
        check_query(query, topic_of)
    assert sentence in str(raised.value)
    assert raised.value.place == place


@pytest.mark.parametrize(
    "query",
    [
        "select * from orders",
        "SELECT o.body FROM Orders o JOIN `order-events` e ON o.msg_id = e.msg_id WHERE o.tags = 'x -- y'",
        "with recent as (select * from orders), more(a) as (select 1) select * from recent, more",
        "select extract(year from store_timestamp), trim(both 'x' from tags) from orders",
        "select substring(tags from 2), (select max(queue_offset) from payments) from orders",
        "select * from parquet.`/data/rows`",
        "select * from range(5)",
        "select * from values (1), (2) as t(a)",
        "select a from (select 1 as a) t where a is distinct from 2",
        "select * from orders w where w.tags = 'a' -- a comment with ' and (",
        "select * from orders lateral view explode(keys) k as one",
        "select tags, rank() over (partition by tags order by queue_offset) from orders order by 1",
        "select 1 as form",
        "describe orders",
        "show tables",
        "(select 1) union (select 2)",
        "explain select * from nowhere",
        "select * from orders tablesample (10 percent)",
        "select * from orders o left semi join payments using (unique_id)",
        "-- nothing",
    ],
)
def test_a_query_that_may_be_right_is_left_to_spark(query: str) -> None:
    check_query(query, topic_of)
