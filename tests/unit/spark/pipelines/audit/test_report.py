"""The audit without Spark: what is requested, what has to be there, and how findings are reported and rendered."""

from __future__ import annotations

import datetime
import re
from typing import Any

import pytest

from orbitmq.client.trace.encoding import ConsumeBegun, ConsumeEnded, ConsumeOutcome, MessageKind, TransactionEnded
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.audit import tables
from orbitmq.spark.pipelines.audit.checks.lost import NEVER_STORED, NOT_IN_ARCHIVE, complete_since
from orbitmq.spark.pipelines.audit.plan import AuditPlan, make_plan
from orbitmq.spark.pipelines.audit.queue_stats import QueueStats, with_holes
from orbitmq.spark.pipelines.audit.report import MAX_ROWS, Report, page
from orbitmq.spark.pipelines.audit.request import AuditRequest, milliseconds_of
from orbitmq.spark.pipelines.audit.summary import MAX_SENTENCES, summary_of
from orbitmq.spark.pipelines.audit.tables import Check, Table
from orbitmq.spark.pipelines.audit.traces import FIELDS, records_of
from orbitmq.spark.topic_source.offset_bounds import CLOCK_SLACK_MS

QUEUE = MessageQueue("orders", "broker-a", 0)
OTHER = MessageQueue("orders", "broker-a", 1)
NOON = datetime.datetime(2026, 11, 16, 12, tzinfo=datetime.UTC)


def lost_row(**more: Any) -> dict[str, Any]:
    row = dict.fromkeys(tables.LOST_CHECK.columns)
    return row | {
        "kind": NOT_IN_ARCHIVE, "topic": "orders", "broker": "broker-a", "queue_id": 0, "first_offset": 3,
        "last_offset": 5, "messages": 3, "elsewhere": 3, "before_time": NOON, **more,
    }  # fmt: skip


def report_of(lost: list[dict[str, Any]] | None = None, **more: Any) -> Report:
    rows = lost or []
    measures = (
        tables.LATENCY_CHECK, tables.LAG_CHECK, tables.OUTCOMES_CHECK, tables.REASONS_CHECK, tables.QUEUES_CHECK,
    )  # fmt: skip
    return Report(
        title="Audit of orders",
        facts={"messages in logs": 12345},
        settings={"tolerance_ms": 1000, "stuck_seconds": 300, "lag_threshold": 10, "slow_ms": 500},
        faults=[
            Table(tables.LOST_CHECK, len(rows), sum(row["messages"] for row in rows), rows),
            *(empty(check) for check in (tables.DUPLICATED_CHECK, tables.ORDER_CHECK, tables.UNDECIDED_CHECK)),
        ],
        warnings=[empty(tables.SLOW_CHECK), empty(tables.DEAD_CHECK)],
        measures={check.name: empty(check) for check in measures} | more,
    )


def queue_rows(first: int, last: int, first_ms: int) -> QueueStats:
    """A queue of which all offsets from the first to the last were read from a log."""
    first_us, count = first_ms * 1000, last - first + 1
    return QueueStats(first, last, first_us, first_us, count, 0, (first, last), (None, None), 0, 0, 0)


def empty(check: Check) -> Table:
    return Table(check, 0, 0, [])


# What is requested


def test_an_audit_of_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match="nothing to audit"):
        AuditRequest()


def test_a_time_before_its_beginning_is_refused() -> None:
    with pytest.raises(OptionError, match="swap since and until"):
        AuditRequest(nameserver="127.0.0.1:9876", since_ms=2, until_ms=1)


def test_a_negative_tolerance_is_refused() -> None:
    with pytest.raises(OptionError, match="tolerance_ms cannot be less than 0"):
        AuditRequest(nameserver="127.0.0.1:9876", tolerance_ms=-1)


def test_a_directory_that_is_no_store_is_refused_by_name(tmp_path: Any) -> None:
    with pytest.raises(OptionError, match="nowhere cannot be read"):
        make_plan(AuditRequest(stores=(str(tmp_path / "nowhere"),)))


def test_times_are_milliseconds_or_datetimes() -> None:
    assert milliseconds_of(NOON) == round(NOON.timestamp() * 1000)
    assert milliseconds_of(17) == 17
    assert milliseconds_of(None) is None


# Since when all messages have to be there


def plan_of(**more: Any) -> AuditPlan:
    window = {name: more.pop(name) for name in ("since_ms", "until_ms") if name in more}
    return AuditPlan(AuditRequest(nameserver="127.0.0.1:9876", **window), **more)


def test_a_topic_that_begins_with_its_first_message_is_complete() -> None:
    plan = plan_of(begins={QUEUE: 0, OTHER: 0}, messages={QUEUE: (0, 5), OTHER: (0, 0)})
    assert complete_since(plan, {QUEUE: queue_rows(0, 4, 1000)}) == {"orders": 0}


def test_a_topic_is_complete_since_the_latest_beginning_of_a_queue() -> None:
    plan = plan_of(begins={QUEUE: 7, OTHER: 9}, messages={QUEUE: (7, 20), OTHER: (9, 20)})
    read = {QUEUE: queue_rows(7, 19, 1000), OTHER: queue_rows(9, 19, 5000)}
    assert complete_since(plan, read) == {"orders": 5000 + CLOCK_SLACK_MS}


def test_a_topic_with_a_fully_expired_queue_has_no_known_start() -> None:
    plan = plan_of(begins={QUEUE: 0, OTHER: 9}, messages={QUEUE: (0, 5), OTHER: (9, 9)})
    assert complete_since(plan, {QUEUE: queue_rows(0, 4, 1000)}) == {}


def test_an_archive_that_reaches_up_to_the_log_makes_a_topic_complete() -> None:
    plan = plan_of(begins={QUEUE: 7}, messages={QUEUE: (7, 20)}, archived={QUEUE: (0, 10)})
    assert complete_since(plan, {QUEUE: queue_rows(0, 19, 1000)}) == {"orders": 0}


def test_an_archive_that_ends_before_the_log_begins_does_not() -> None:
    plan = plan_of(begins={QUEUE: 7}, messages={QUEUE: (7, 20)}, archived={QUEUE: (0, 5)})
    assert complete_since(plan, {QUEUE: queue_rows(0, 19, 1000)}) == {"orders": 1000 + CLOCK_SLACK_MS}


def test_what_was_stored_before_the_time_that_is_requested_has_not_expired() -> None:
    plan = plan_of(begins={QUEUE: 3}, messages={QUEUE: (7, 20)}, since_ms=900)
    assert complete_since(plan, {QUEUE: queue_rows(7, 19, 1000)}) == {"orders": 0}


# Holes


@pytest.mark.parametrize(
    ("counts", "span", "has_hole"),
    [
        ((5, 0, 4), (0, 5), False),
        ((5, 3, 7), None, False),
        ((4, 0, 4), (0, 5), True),
        ((5, 1, 5), (0, 6), True),
        ((5, 0, 4), (0, 6), True),
        ((0, None, None), (3, 3), False),
        ((0, None, None), (3, 4), True),
        ((7, 0, 6), (2, 5), False),
    ],
)
def test_a_queue_has_a_hole_if_its_offsets_are_fewer_than_its_span(
    counts: tuple[int, int | None, int | None], span: tuple[int, int] | None, has_hole: bool
) -> None:
    spans = {} if span is None else {QUEUE: span}
    assert with_holes({QUEUE: counts}, spans) == ({QUEUE} if has_hole else set())


# Traces


def test_records_of_a_trace_become_rows() -> None:
    begun = ConsumeBegun(5, "r", "billing", "CALL", "ID", 0, "42")
    ended = ConsumeEnded("CALL", "ID", 12, False, None, ConsumeOutcome.EXCEPTION, 17, "billing")
    decided = TransactionEnded(
        9,
        "r",
        "shop",
        "orders",
        "ID",
        None,
        None,
        "h:1",
        MessageKind.TRANSACTION_END,
        "ID",
        "COMMIT_MESSAGE",
        False,
    )
    body = "".join(record.encode() for record in (begun, ended, decided)) + "nonsense"
    first, second, third = (dict(zip(FIELDS, row, strict=True)) for row in records_of(body.encode()))
    assert (first["what"], first["at_ms"], first["group"], first["keys"]) == ("begun", 5, "billing", "42")
    assert (second["what"], second["cost_ms"], second["outcome"]) == ("ended", 12, "EXCEPTION")
    assert (third["what"], third["topic"], third["outcome"]) == ("transaction", "orders", "COMMIT_MESSAGE")


def test_a_body_that_is_no_trace_has_no_rows() -> None:
    assert records_of(b"\xff\x00hello") == []
    assert records_of(None) == []


# Saying


def test_a_hole_is_reported_with_its_offsets() -> None:
    reason = tables.LOST_CHECK.say(lost_row())
    assert reason == "orders, broker-a queue 0, offsets 3–5: 3 messages not in the archive, 3 in the log"
    reason = tables.LOST_CHECK.say(lost_row(last_offset=3, messages=1, elsewhere=0))
    assert reason == "orders, broker-a queue 0, offset 3: 1 message not in the archive, in neither"


def test_a_message_that_is_nowhere_is_reported_by_its_id() -> None:
    row = dict.fromkeys(tables.LOST_CHECK.columns) | {
        "kind": NEVER_STORED, "topic": "orders", "message_id": "ID", "after_time": NOON,
    }  # fmt: skip
    assert tables.LOST_CHECK.say(row) == "orders, ID: sent at 2026-11-16 12:00:00.000, and nowhere"


def test_times_of_this_machine_and_of_files_are_reported_in_utc() -> None:
    local = NOON.astimezone().replace(tzinfo=None)
    assert tables.plain({"time": local}, None)["time"] == NOON
    assert tables.plain({"time": NOON.replace(tzinfo=None)})["time"] == NOON


def test_a_summary_says_the_first_findings_and_how_many_more_there_are() -> None:
    rows = [lost_row(first_offset=number, last_offset=number, messages=1) for number in range(MAX_SENTENCES + 5)]
    summary = summary_of(report_of(rows), None)
    assert not summary.is_good
    assert summary.facts["lost"] == MAX_SENTENCES + 5
    assert len(summary.facts["findings"]) == MAX_SENTENCES + 1
    assert summary.facts["findings"][-1] == "lost: … and 5 more"
    assert summary.facts["messages_in_logs"] == 12345


def test_a_summary_of_nothing_is_good() -> None:
    summary = summary_of(report_of(), None)
    assert summary.is_good
    assert summary.title == "Audit of orders: nothing is wrong"
    assert "findings" not in summary.facts


# The page


def test_a_page_shows_what_was_found_and_by_which_rule() -> None:
    text = page(report_of([lost_row()]))
    assert "Something is wrong: lost" in text
    assert "not in the archive" in text
    assert "more than 1000 ms before" in text
    assert "<time>2026-11-16 12:00:00.000</time>" in text
    assert text.count("None found.") == 5


def test_names_cannot_break_a_page() -> None:
    text = page(report_of([lost_row(topic="<script>alert(1)</script>")]))
    assert "<script>" not in text
    assert "&lt;script&gt;" in text


def test_a_page_shows_the_first_rows_and_says_where_all_are() -> None:
    rows = [lost_row(first_offset=number) for number in range(MAX_ROWS + 1)]
    text = page(report_of(rows))
    assert text.count("<tr><td") == MAX_ROWS
    assert "… and 1 row more, in lost." in text


def test_a_page_has_pictures_and_needs_nothing_from_elsewhere() -> None:
    latency = dict.fromkeys(tables.LATENCY_CHECK.columns, 5) | {
        "what": "born to stored", "topic": "orders", "group": None, "max_ms": 70000,
    }  # fmt: skip
    lag = dict.fromkeys(tables.LAG_CHECK.columns) | {"group": "$billing_{1}$", "topic": "orders", "lag": 4}
    report = report_of(
        latency=Table(tables.LATENCY_CHECK, 1, 1, [latency]), lag=Table(tables.LAG_CHECK, 1, 1, [lag])
    )
    report.buckets = [
        {"topic": topic, "at": at, "width": 1000, "messages": 3} for at in (0, 5000) for topic in ("a", "b")
    ]
    text = page(report)
    assert text.count("<svg role=") == 3
    assert "$billing_{1}$ · orders" in text
    assert "mathdefault" not in text
    assert not re.search(r"""(?:src|href)=["'](?!#)""", text)
    assert "@import" not in text
