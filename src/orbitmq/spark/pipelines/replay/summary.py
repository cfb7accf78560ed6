"""The summary of a replay: messages, rate, and a comparison with the requested rate."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from orbitmq.spark.pipelines.progress import Summary
from orbitmq.spark.pipelines.replay.pacer import Lateness

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.spark.pipelines.replay.counter import Counted
    from orbitmq.spark.pipelines.replay.plan import Plan
    from orbitmq.spark.pipelines.replay.request import ReplayRequest
    from orbitmq.spark.pipelines.replay.state import ReplayState

ENOUGH = 0.95
"""The share of the requested rate below which the summary reports that senders fell behind."""


def summary_of(
    request: ReplayRequest, state: ReplayState, made: Plan | None, statistics: Sequence[Sequence[Any]]
) -> Summary:
    """The summary of a finished run. ``statistics`` are the rows of its senders (see ``sender.STATISTICS``)."""
    sent = sum(row[1] for row in statistics)
    facts: dict[str, Any] = {
        "replay": state.name,
        "messages": sent,
        "sent_before": state.messages - sent,
        "topics": _by_topic({} if made is None else made.rows),
        "into": sorted({queue.topic for queue in state.routes.values()}),
        "bytes": sum(row[2] for row in statistics),
    }
    if made is not None:
        seconds = max(row[4] for row in statistics) - min(row[3] for row in statistics if row[3] is not None)
        facts |= {"senders": len(statistics), "seconds": round(seconds, 3)}
        facts |= _speed(request, made, sent, seconds, statistics)
    return Summary(f"Replayed from {request.archive}", facts)


def _speed(
    request: ReplayRequest, made: Plan, sent: int, seconds: float, statistics: Sequence[Sequence[Any]]
) -> dict[str, Any]:
    # Between n messages there are n - 1 times.
    rate = (sent - 1) / seconds if sent > 1 and seconds > 0 else None
    facts: dict[str, Any] = {}
    behind: float | None = None
    if request.rate is not None:
        facts["asked_rate"] = request.rate
        behind = None if rate is None else rate / request.rate
    facts["reached_rate"] = None if rate is None else round(rate, 1)
    if request.pace is not None:
        pace = made.span_seconds / seconds if seconds > 0 and made.span_seconds > 0 else None
        facts |= {"asked_pace": request.pace, "reached_pace": None if pace is None else round(pace, 3)}
        behind = None if pace is None else pace / request.pace
    if request.rate is None and request.pace is None:
        return facts
    lateness = Lateness()
    for row in statistics:
        lateness.merge(Lateness(row[5]))
    late = lateness.percentile_ms(0.99)
    facts["late_ms_p99"] = None if late is None else round(late, 1)
    facts["kept_up"] = behind is None or behind >= ENOUGH
    if not facts["kept_up"]:
        facts["behind"] = (
            f"the senders reached {behind:.0%} of the requested rate: give them more cores or more --senders, or "
            "check whether the brokers are at their limit"
        )
    return facts


def finished_before(state: ReplayState) -> Summary:
    assert state.finished_ms is not None
    at = datetime.datetime.fromtimestamp(state.finished_ms / 1000, datetime.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return Summary(
        f"The replay {state.name} was finished already, at {at}: --again sends all of it once more",
        {"replay": state.name, "messages": 0, "sent_before": state.messages},
    )


def planned_summary(
    request: ReplayRequest,
    name: str,
    counted: Mapping[MessageQueue, Counted],
    routes: Mapping[MessageQueue, MessageQueue],
    *,
    is_begun: bool,
) -> Summary:
    """The summary of a dry run."""
    messages = sum(of.rows for of in counted.values())
    first = min(of.first_us for of in counted.values())
    last = max(of.last_us for of in counted.values())
    seconds = None
    if request.rate is not None:
        seconds = round(messages / request.rate, 3)
    elif request.pace is not None:
        seconds = round((last - first) / 1e6 / request.pace, 3)
    facts = {
        "replay": name,
        "messages": messages,
        "topics": _by_topic({queue: of.rows for queue, of in counted.items()}),
        "queues": len(counted),
        "stored_from": _time(first),
        "stored_until": _time(last),
        "into": sorted({queue.topic for queue in routes.values()}),
        "into_queues": len(set(routes.values())),
        "seconds": seconds,
    }
    if is_begun:
        facts["begun"] = "yes: a run would go on, and leave out what was sent before"
    return Summary(f"A replay from {request.archive} would send", facts)


def _by_topic(rows: Mapping[MessageQueue, int]) -> dict[str, int]:
    found: dict[str, int] = {}
    for queue, count in sorted(rows.items()):
        found[queue.topic] = found.get(queue.topic, 0) + count
    return found


def _time(us: int) -> str:
    return datetime.datetime.fromtimestamp(us / 1e6, datetime.UTC).isoformat(timespec="milliseconds")
