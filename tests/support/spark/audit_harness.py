"""Harness of the audit tests: messages with ids and times of one's choice, archives with holes, a browser."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from orbitmq import Message, Producer
from orbitmq.client.query.range_reader import QueueRange
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.message.record import iter_records
from orbitmq.protocol.names import AUTO_CREATE_TOPIC, TRACE_TOPIC, TRANSACTION_OP_TOPIC
from orbitmq.spark.cluster import Cluster
from orbitmq.spark.pipelines.archive.directory import Archive, ArchivedFile, Segment
from support.broker.requests import send_request
from support.spark.stream_faults import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from pyspark.sql import DataFrame

    from orbitmq.client.trace.encoding import TraceRecord

HOUR_MS = 3_600_000
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_BROWSER_SECONDS = 60


def now_ms() -> int:
    return time.time_ns() // 1_000_000


class Planter:
    """Sends to one queue of a topic, message after message."""

    def __init__(self, nameserver: str, topic: str) -> None:
        self.nameserver = nameserver
        self.topic = topic
        self._cluster = Cluster.of(nameserver)
        (self._broker, self._address), *_ = self._brokers()

    def _brokers(self) -> list[tuple[str, str]]:
        instance = self._cluster.instance
        queues = self._cluster.queues(AUTO_CREATE_TOPIC)
        names = sorted({queue.broker_name for queue in queues})
        return [(name, instance.address(AUTO_CREATE_TOPIC, name, 0, only_this=False) or "") for name in names]

    @property
    def queue(self) -> MessageQueue:
        return MessageQueue(self.topic, self._broker, 0)

    def send(self, unique_id: str, *, born_ms: int | None = None, body: str = "body", **properties: str) -> int:
        """Store a message with an id of one's own; returns its offset."""
        given = {"UNIQ_KEY": unique_id, "WAIT": "true", **properties}
        request = send_request(
            body.encode(), self.topic, given, bornTimestamp=now_ms() if born_ms is None else born_ms
        )
        answer = self._cluster.run(self._cluster.instance.call(self._address, request, 10.0))
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return int(answer.ext_fields["queueOffset"])

    def tell(self, *records: TraceRecord) -> None:
        """Write traces, as clients would."""
        body = "".join(record.encode() for record in records)
        with Producer(self.nameserver, group="tells") as producer:
            producer.send(Message(TRACE_TOPIC, body))

    def commit(self, group: str, offset: int) -> None:
        self._cluster.commit(group, {self.queue: offset})

    def wait_until_noted(self, halves: Iterable[int]) -> None:
        """Wait until the broker has written down that these half messages are ended."""
        wanted = set(halves)
        wait_for(lambda: wanted <= self._noted(), "all transactions noted")

    def _noted(self) -> set[int]:
        found: set[int] = set()
        for queue, ends in self._cluster.bounds([TRANSACTION_OP_TOPIC])[TRANSACTION_OP_TOPIC].items():
            for chunk in self._cluster.read(QueueRange(queue, ends.min, ends.max)):
                for record in iter_records(chunk.body):
                    found.update(int(text) for text in record.body.decode().split(",") if text)
        return found


def archive_of(frame: DataFrame, folder: Path, rows: Callable[[int], int] = lambda _: 1) -> Archive:
    """An archive that says it holds all of a topic, with each offset as often as ``rows`` says."""
    table = frame.orderBy("broker", "queue_id", "queue_offset").toArrow()
    ranges: dict[MessageQueue, tuple[int, int]] = {}
    kept: list[int] = []
    places = table.select(["topic", "broker", "queue_id", "queue_offset"]).to_pylist()
    for number, place in enumerate(places):
        queue = MessageQueue(place["topic"], place["broker"], place["queue_id"])
        ranges[queue] = (0, place["queue_offset"] + 1)
        kept += [number] * rows(place["queue_offset"])
    topic = places[0]["topic"]
    path = f"topic={topic}/day=2026-01-01/segment-00000000-0.parquet"
    file = folder / path
    file.parent.mkdir(parents=True)
    pq.write_table(table.take(kept).drop_columns(["topic"]), file)
    archive = Archive(str(folder))
    archive.make()
    archive.add(Segment(0, ranges, (ArchivedFile(path, topic, "2026-01-01", len(kept), file.stat().st_size),)))
    return archive


def damaged_copy(store: Path, target: Path, *bodies: str) -> Path:
    """A copy of a store in which the records with these bodies fail their checksums."""
    shutil.copytree(store, target, ignore=shutil.ignore_patterns("lock", "abort"))
    (file,) = sorted((target / "commitlog").iterdir())[:1]
    data = bytearray(file.read_bytes())
    for body in bodies:
        data[data.index(body.encode())] ^= 1
    file.write_bytes(data)
    return target


def rows_of(spark: Any, report: Path, table: str) -> list[dict[str, Any]]:
    """A table of a report."""
    return [row.asDict(recursive=True) for row in spark.read.parquet(str(report / table)).collect()]


def browse(page: Path, home: Path, *options: str) -> str:
    """The output of a headless browser for a page."""
    assert BROWSER is not None
    profile = home / "profile"
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={profile}", *options, page.as_uri()]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        timeout=_BROWSER_SECONDS,
        env={**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_CACHE_HOME": str(home)},
    )
    return done.stdout
