"""Rows that say when they are to arrive: the broker keeps them until then, and not a moment less."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from orbitmq.spark.sink import sender as sink_sending
from orbitmq.spark.sink.connection import close_connections
from orbitmq.spark.sink.message_ids import Origin
from orbitmq.testing import LocalCluster
from support.spark.sink_harness import TOPIC, batch_of, bodies, writer_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.testing import ThreadCluster

HOUR = 3600
ORIGIN = Origin("write", None, 5)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadCluster]:
    monkeypatch.setattr(sink_sending, "SETTLING_SECONDS", 0.0)
    with LocalCluster() as running:
        yield running
        close_connections()


def write(cluster: ThreadCluster, batch: pa.RecordBatch) -> int:
    return writer_for(cluster.name_server, batch).write_as(ORIGIN, [batch]).rows


def arrived(cluster: ThreadCluster) -> dict[bytes, int]:
    """The visible messages with their arrival times, in milliseconds by the broker's clock."""
    return {message.body: message.store_timestamp for message in cluster.messages(TOPIC)}


def test_rows_with_delay_seconds_arrive_after_so_many(cluster: ThreadCluster) -> None:
    began = time.time_ns() // 1_000_000  # the broker's clock begins with that of the machine
    batch = batch_of(body=bodies(5), delay_seconds=[None, 0, HOUR, 3 * HOUR, 3 * HOUR + 1])
    assert write(cluster, batch) == 5
    assert arrived(cluster).keys() == {b"row 0", b"row 1"}
    cluster.advance(HOUR - 600)
    assert len(arrived(cluster)) == 2
    cluster.advance(700)
    assert arrived(cluster).keys() == {b"row 0", b"row 1", b"row 2"}
    assert arrived(cluster)[b"row 2"] >= began + HOUR * 1000
    cluster.advance(HOUR)
    assert len(arrived(cluster)) == 3
    cluster.advance(HOUR)
    assert arrived(cluster)[b"row 3"] >= began + 3 * HOUR * 1000
    assert arrived(cluster)[b"row 4"] >= began + (3 * HOUR + 1) * 1000


def test_parts_of_seconds_count(cluster: ThreadCluster) -> None:
    began = time.time_ns() // 1_000_000
    write(cluster, batch_of(body=bodies(2), delay_seconds=pa.array([600.25, 1200.75], pa.float64())))
    assert arrived(cluster) == {}
    cluster.advance(900)
    assert [row for row, at in arrived(cluster).items() if at >= began + 600_250] == [b"row 0"]
    cluster.advance(900)
    assert arrived(cluster)[b"row 1"] >= began + 1_200_750


def test_rows_with_deliver_at_arrive_then_or_at_once_if_that_is_over(cluster: ThreadCluster) -> None:
    now = datetime.datetime.now(datetime.UTC)
    moments = [None, now - datetime.timedelta(days=1), now + datetime.timedelta(hours=1, microseconds=1)]
    moments += [now + datetime.timedelta(hours=2)]
    assert write(cluster, batch_of(body=bodies(4), deliver_at=moments)) == 4
    assert arrived(cluster).keys() == {b"row 0", b"row 1"}
    for number in (2, 3):
        cluster.advance(HOUR - 600)
        assert len(arrived(cluster)) == number
        cluster.advance(650)
        due = moments[number]
        assert due is not None
        assert arrived(cluster)[b"row %d" % number] >= due.timestamp() * 1000


def test_a_row_that_waits_survives_its_broker(cluster: ThreadCluster) -> None:
    write(cluster, batch_of(body=bodies(2), delay_seconds=[HOUR, HOUR], tags=["paid", None]))
    cluster.restart("broker-a")
    assert arrived(cluster) == {}
    cluster.advance(HOUR + 5)
    found = {message.body: message.tags for message in cluster.messages(TOPIC)}
    assert found == {b"row 0": "paid", b"row 1": None}
