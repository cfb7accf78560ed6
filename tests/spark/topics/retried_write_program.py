"""A driver whose tasks are tried again: one of them fails once, when a part of its rows has been written."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq import LitePullConsumer, NoRouteError
from orbitmq.spark import session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from orbitmq import MessageQueue

FAILS_AFTER = 0.75
"""The part of its rows that the task has handed on when it fails; Spark keeps some of them on the way."""
PATIENCE = 30.0


def queues_of(reader: LitePullConsumer, topic: str) -> set[MessageQueue]:
    """None until the first message of the topic."""
    try:
        return reader.fetch_message_queues(topic)
    except NoRouteError:
        return set()


def wait_for_rows(nameserver: str, topic: str, before: int) -> None:
    """Until some row of the first task is in the topic."""
    deadline = time.monotonic() + PATIENCE
    with LitePullConsumer(
        nameserver, group="watching", auto_commit=False, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
    ) as reader:
        while not (queues := queues_of(reader, topic)):
            assert time.monotonic() < deadline, "the topic was not made"
            time.sleep(0.05)
        reader.assign(queues)
        while not any(int(message.body) < before for message in reader.poll(0.2)):
            assert time.monotonic() < deadline, "nothing was written"


def failing_once(
    nameserver: str, topic: str, count: int, folder: str
) -> Callable[[Iterable[int]], Iterator[tuple[str]]]:
    def rows(numbers: Iterable[int]) -> Iterator[tuple[str]]:
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        failed = Path(folder) / f"failed-{task.partitionId()}"
        for place, number in enumerate(numbers):
            if place == count // 2 * FAILS_AFTER and task.partitionId() == 0 and not failed.exists():
                wait_for_rows(nameserver, topic, count // 2)
                failed.touch()
                raise RuntimeError("this task fails once")
            # Long, or all of them would wait in the buffers between Spark's processes until the task ends.
            yield (f"{number:0800d}",)

    return rows


if __name__ == "__main__":
    nameserver, topic, count, folder, idempotent = sys.argv[1:]
    spark = session("retried", "local[2,4]", **{"spark.sql.execution.arrow.maxRecordsPerBatch": "125"})
    numbers = spark.sparkContext.parallelize(range(int(count)), 2)
    frame = spark.createDataFrame(
        numbers.mapPartitions(failing_once(nameserver, topic, int(count), folder)), "body string"
    )
    options = {"nameserver": nameserver, "topic": topic, "idempotent": idempotent}
    frame.write.format("orbitmq").options(**options).mode("append").save()
    json.dump({"failed": sorted(path.name for path in Path(folder).glob("failed-*"))}, sys.stdout)
    spark.stop()
