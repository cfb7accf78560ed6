"""The tables of an audit: names, rules, and a sentence for each row."""

from __future__ import annotations

import dataclasses
import datetime
from typing import TYPE_CHECKING, Any

from orbitmq.spark.pipelines.audit.checks.copies import COLUMNS as DUPLICATED
from orbitmq.spark.pipelines.audit.checks.dead_letters import COLUMNS as DEAD
from orbitmq.spark.pipelines.audit.checks.groups import LAG_COLUMNS, SLOW, SLOW_COLUMNS
from orbitmq.spark.pipelines.audit.checks.latency import COLUMNS as LATENCY
from orbitmq.spark.pipelines.audit.checks.lost import COLUMNS as LOST
from orbitmq.spark.pipelines.audit.checks.lost import COMMITTED, DIFFERENT, NEVER_STORED, NOT_IN_LOG
from orbitmq.spark.pipelines.audit.checks.order import COLUMNS as ORDER
from orbitmq.spark.pipelines.audit.checks.transactions import COLUMNS as TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

Row = dict[str, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Check:
    """One check of an audit."""

    name: str
    """Of its table in the report's directory."""
    title: str
    rule: str
    """The rule in the report; parameters stand in braces."""
    columns: tuple[str, ...]
    say: Callable[[Row], str]
    is_fault: bool = True
    """True if one finding makes the audit fail."""
    sums: str | None = None
    """The column that says how many messages a row is about; otherwise it is one."""


@dataclasses.dataclass(slots=True)
class Table:
    """The findings of a check: their number, and the first rows."""

    check: Check
    count: int
    messages: int
    rows: list[Row]

    def sentences(self, most: int) -> list[str]:
        return [self.check.say(row) for row in self.rows[:most]]


def plain(row: Mapping[str, Any], zone: datetime.tzinfo | None = datetime.UTC) -> Row:
    """A row with times that know their zone: Spark's are of this machine (None), those in its files of UTC."""
    return {
        name: _zoned(value, zone) if isinstance(value, datetime.datetime) and value.tzinfo is None else value
        for name, value in row.items()
    }


def _zoned(value: datetime.datetime, zone: datetime.tzinfo | None) -> datetime.datetime:
    return value.astimezone(datetime.UTC) if zone is None else value.replace(tzinfo=zone)


# Saying


def time_text(value: datetime.datetime | None) -> str:
    """In UTC, with milliseconds."""
    if value is None:
        return "—"
    return value.astimezone(datetime.UTC).isoformat(" ", "milliseconds").removesuffix("+00:00")


def range_text(first: int | None, last: int | None) -> str:
    if first is None:
        return ""
    return f"offset {first}" if first == last else f"offsets {first}–{last}"


def _queue(row: Row) -> str:
    return f"{row['topic']}, {row['broker']} queue {row['queue_id']}"


def _say_lost(row: Row) -> str:
    if row["kind"] in {NEVER_STORED, COMMITTED}:
        what = "sent" if row["kind"] == NEVER_STORED else "committed"
        stored = f", stored as {row['msg_id']}" if row["msg_id"] else ""
        return f"{row['topic']}, {row['message_id']}: {what} at {time_text(row['after_time'])}{stored}, and nowhere"
    place = f"{_queue(row)}, {range_text(row['first_offset'], row['last_offset'])}"
    if row["kind"] == DIFFERENT:
        return f"{place}: log and archive have different messages there"
    other = "archive" if row["kind"] == NOT_IN_LOG else "log"
    held = "in neither" if not row["elsewhere"] else f"{row['elsewhere']} in the {other}"
    return f"{place}: {counted(row['messages'], 'message')} {row['kind']}, {held}"


def _say_duplicated(row: Row) -> str:
    places = ", ".join(place_text(place) for place in row["places"][:5])
    more = f" and {len(row['places']) - 5} more" if len(row["places"]) > 5 else ""
    return f"{row['topic']}, {row['message_id']}: {row['copies']} times ({row['kind']}) at {places}{more}"


def place_text(place: Mapping[str, Any]) -> str:
    return f"{place['broker']} queue {place['queue_id']} offset {place['queue_offset']}"


def _say_order(row: Row) -> str:
    key = f" of key {row['sharding_key']}" if row["sharding_key"] else ""
    return (
        f"{_queue(row)}, offset {row['queue_offset']}{key}: {row['kind']}, offset {row['after_offset']}, "
        f"by {row['behind_ms']} ms"
    )


def _say_transaction(row: Row) -> str:
    of = f"{row['topic']}, {row['message_id']} of {row['producer_group']}"
    return (
        f"{of}: {row['outcome']} for {row['age_seconds']} s, half message at {row['broker']}"
        f" queue {row['queue_id']} {range_text(row['first_offset'], row['last_offset'])},"
        f" checked {row['checks']} times"
    )


def _say_slow(row: Row) -> str:
    place = f"{row['group']} on {_queue(row)}, {range_text(row['first_offset'], row['last_offset'])}"
    if row["kind"] == SLOW:
        return f"{place}: its handler took {row['cost_ms']} ms for {row['message_id']}"
    since = "" if row["waiting_since"] is None else f", waiting since {time_text(row['waiting_since'])}"
    return f"{place}: {counted(row['messages'], 'message')} behind{since}"


def _say_dead(row: Row) -> str:
    return (
        f"{row['group']}: {row['message_id']} of {row['origin_topic']}, {row['reason']}, "
        f"at {row['broker']} offset {row['queue_offset']}"
    )


def _say_latency(row: Row) -> str:
    of = f"{row['topic']}, {row['what']}" + (f" by {row['group']}" if row["group"] else "")
    return (
        f"{of}: p50 {row['p50_ms']} ms, p90 {row['p90_ms']} ms, p99 {row['p99_ms']} ms, p99.9 {row['p999_ms']} ms, "
        f"max {row['max_ms']} ms"
    )


def _say_lag(row: Row) -> str:
    return f"{row['group']} on {_queue(row)}: {row['lag']} behind, at {row['committed']} of {row['end']}"


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


LOST_CHECK = Check(
    "lost",
    "Lost",
    "Offsets between the first and the last of a queue that are in no log, or not in what the archive says it "
    "holds; places where log and archive have different messages; and messages that a trace tells of as sent or "
    "committed and that are nowhere. What retention has taken at the beginning of a queue, and the holes of "
    "compacted topics, are not lost.",
    LOST,
    _say_lost,
    sums="messages",
)
DUPLICATED_CHECK = Check(
    "duplicated",
    "Duplicated",
    "The same message id in several places of a topic, or the same offset of a queue several times in the archive.",
    DUPLICATED,
    _say_duplicated,
)
ORDER_CHECK = Check(
    "out_of_order",
    "Out of order",
    "Messages that were born more than {tolerance_ms} ms before one of the same sharding key that stands before "
    "them in their queue, or stored so much before any that does. Delayed messages and those of transactions keep "
    "the time at which they were first sent, and do not count for the first.",
    ORDER,
    _say_order,
)
UNDECIDED_CHECK = Check(
    "undecided_transactions",
    "Stuck transactions",
    "Half messages that were neither committed nor rolled back for more than {stuck_seconds} seconds, and those "
    "that the broker no longer checks.",
    TRANSACTIONS,
    _say_transaction,
)
SLOW_CHECK = Check(
    "slow_consumers",
    "Slow consumers",
    "Groups with more than {lag_threshold} messages of a queue before them, and handlers that took longer than "
    "{slow_ms} ms, where they are traced.",
    SLOW_COLUMNS,
    _say_slow,
    is_fault=False,
)
DEAD_CHECK = Check(
    "dead_letters",
    "Dead letters",
    "Messages in the dead letter topics of consumer groups. Why is known of groups that are traced; of others, how "
    "often they have tried.",
    DEAD,
    _say_dead,
    is_fault=False,
)
LATENCY_CHECK = Check(
    "latency",
    "Latency",
    "In milliseconds: from born to stored by the clocks of producers and brokers; until consumed where consumers "
    "are traced. Delayed messages and those of transactions do not count.",
    LATENCY,
    _say_latency,
    is_fault=False,
)
LAG_CHECK = Check(
    "lag",
    "Lag",
    "What a group has committed of each queue, and how many messages come after that.",
    LAG_COLUMNS,
    _say_lag,
    is_fault=False,
)
OUTCOMES_CHECK = Check(
    "transactions",
    "Transactions",
    "How the transactions of each topic came out.",
    ("topic", "outcome", "transactions"),
    lambda row: f"{row['topic']}: {row['transactions']} {row['outcome']}",
    is_fault=False,
)
REASONS_CHECK = Check(
    "dead_letters_by_reason",
    "Dead letters by reason",
    "Dead letters counted by group, topic and reason.",
    (
        "group",
        "origin_topic",
        "reason",
        "messages",
        "least_attempts",
        "most_attempts",
        "first_offset",
        "last_offset",
    ),
    lambda row: f"{row['group']}: {row['messages']} of {row['origin_topic']}, {row['reason']}",
    is_fault=False,
)
QUEUES_CHECK = Check(
    "queues",
    "What was read",
    "Of each queue, the offsets of the first and the last message that was read, and how many of them are in logs "
    "and in the archive.",
    (
        "topic",
        "broker",
        "queue_id",
        "first_offset",
        "last_offset",
        "in_logs",
        "in_archive",
        "first_time",
        "last_time",
    ),
    lambda row: f"{_queue(row)}: {range_text(row['first_offset'], row['last_offset'])}",
    is_fault=False,
)
