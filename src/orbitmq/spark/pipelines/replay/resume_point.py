"""The resume point of a replay, read from its target topics: each message names the one that it repeats."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.pipelines.replay.counter import LIFE_BITS
from orbitmq.spark.pipelines.replay.properties import (
    REPLAY_BROKER,
    REPLAY_ID,
    REPLAY_LIFE,
    REPLAY_OFFSET,
    REPLAY_QUEUE,
    REPLAY_TOPIC,
)
from orbitmq.spark.pipelines.spark_job import PipelineError
from orbitmq.spark.topic_source.offsets import described

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from orbitmq.client.query.queue_offsets import Bounds
    from orbitmq.spark.pipelines.replay.state import ReplayState


def written(
    spark: SparkSession, nameserver: str, state: ReplayState, bounds: Mapping[MessageQueue, Bounds]
) -> dict[MessageQueue, int]:
    """By source queue the position of the last message that was written. ``bounds`` are those of the target now.

    Raises PipelineError if that cannot be known any more.
    """
    ranges = to_read(state, bounds)
    if not ranges:
        return {}
    options = {
        "nameserver": nameserver,
        "columns": "properties",
        "assign": json.dumps(_nested(dict.fromkeys(ranges), as_lists=True)),
        "startingOffsets": json.dumps(_nested({queue: start for queue, (start, _) in ranges.items()})),
        "endingOffsets": json.dumps(_nested({queue: end for queue, (_, end) in ranges.items()})),
    }
    messages = spark.read.format("orbitmq").options(**options).load()
    rows = (
        messages.where(f"properties['{REPLAY_ID}'] = '{state.name}'")
        .selectExpr(
            f"properties['{REPLAY_TOPIC}'] AS topic",
            f"properties['{REPLAY_BROKER}'] AS broker",
            f"int(properties['{REPLAY_QUEUE}']) AS queue",
            f"shiftleft(bigint(coalesce(properties['{REPLAY_LIFE}'], '0')), {LIFE_BITS})"
            f" + bigint(properties['{REPLAY_OFFSET}']) AS position",
        )
        .groupBy("topic", "broker", "queue")
        .agg({"position": "max"})
        .collect()
    )
    return {MessageQueue(row[0], row[1], row[2]): row[3] for row in rows}


def to_read(state: ReplayState, bounds: Mapping[MessageQueue, Bounds]) -> dict[MessageQueue, tuple[int, int]]:
    """The ranges of the target queues since the start of the replay."""
    found = {}
    for queue, now in bounds.items():
        start = state.ends.get(queue, 0)
        if now.max < start:
            raise PipelineError(
                f"{described([queue])} was longer when the replay {state.name!r} began, {start} messages, and is "
                f"now {now.max} long: it was recreated, and what was written cannot be found; begin another replay"
            )
        if start < now.min and queue in set(state.routes.values()):
            raise PipelineError(
                f"{described([queue])} has nothing before {now.min} any more, and the replay {state.name!r} began "
                f"at {start}: what was written cannot be found; begin another replay"
            )
        if max(start, now.min) < now.max:
            found[queue] = (max(start, now.min), now.max)
    return found


def _nested(values: Mapping[MessageQueue, Any], *, as_lists: bool = False) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for queue, value in sorted(values.items(), key=lambda item: item[0]):
        brokers = found.setdefault(queue.topic, {})
        if as_lists:
            brokers.setdefault(queue.broker_name, []).append(queue.queue_id)
        else:
            brokers.setdefault(queue.broker_name, {})[str(queue.queue_id)] = value
    return found
