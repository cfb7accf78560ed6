"""Sender of a replay: it encodes rows as messages, and sends them when they are due."""

from __future__ import annotations

import concurrent.futures
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest

from orbitmq.client.errors import InvalidMessageError, SendError
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.protocol.message.batch import iter_batch
from orbitmq.protocol.message.properties import parse
from orbitmq.spark.pipelines.replay.pacer import Lateness, Pacing
from orbitmq.spark.pipelines.replay.properties import ReplayEncoder
from orbitmq.spark.pipelines.replay.sender import MAX_AT_ONCE, START_SECONDS, PacedSending, common_start, part_of
from orbitmq.spark.sink.chunker import Chunker
from orbitmq.spark.sink.message_ids import Origin
from orbitmq.spark.sink.options import SinkOptions

if TYPE_CHECKING:
    from orbitmq.spark.sink.chunker import Chunk

OPTIONS = SinkOptions(name_servers=("127.0.0.1:1",), keep_queue=True)
QUEUES = [MessageQueue("copy", "broker-a", number) for number in range(2)]
AT_ONCE = Pacing(None, None, 0)
_MAP = pa.map_(pa.string(), pa.string())


def batch(count: int, properties: dict[str, str] | None = None, lives: int = 0) -> pa.RecordBatch:
    numbers = range(count)
    return pa.RecordBatch.from_pydict(
        {
            "topic": ["copy"] * count,
            "broker": ["broker-a"] * count,
            "queue_id": pa.array([number % 2 for number in numbers], pa.int32()),
            "body": pa.array([f"b{number}".encode() for number in numbers], pa.binary()),
            "properties": pa.array([list((properties or {}).items())] * count, _MAP),
            "source_topic": ["orders"] * count,
            "source_broker": ["broker-x"] * count,
            "source_queue": pa.array([number % 2 for number in numbers], pa.int32()),
            "source_offset": list(numbers),
            "source_life": pa.array([lives] * count, pa.int32()),
            "source_id": [f"U{number}" for number in numbers],
            "born_ms": [1000 + number for number in numbers],
            "stored_ms": [2000 + number for number in numbers],
        }
    )


def encoder() -> ReplayEncoder:
    return ReplayEncoder(OPTIONS, "r")


def chunker() -> Chunker:
    return Chunker(Origin("r"), OPTIONS, lambda topic: QUEUES)


def messages_of(chunk: Chunk) -> list[tuple[str, dict[str, str]]]:
    items = iter_batch(memoryview(chunk.body))
    return [(bytes(body).decode(), parse(bytes(properties))) for _, body, properties in items]


class Writing:
    """Takes chunks as a connection does, and answers at once."""

    def __init__(self, fails_after: int | None = None) -> None:
        self.chunks: list[Chunk] = []
        self.times: list[float] = []
        self._fails_after = fails_after

    def begin(self, chunk: Chunk) -> concurrent.futures.Future[bool]:
        future: concurrent.futures.Future[bool] = concurrent.futures.Future()
        if self._fails_after is not None and len(self.chunks) >= self._fails_after:
            future.set_exception(SendError("the broker is away"))
            return future
        self.chunks.append(chunk)
        self.times.append(time.monotonic())
        future.set_result(False)
        return future

    @property
    def bodies(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for chunk in self.chunks:
            assert chunk.queue is not None
            found.setdefault(chunk.queue.queue_id, []).extend(body for body, _ in messages_of(chunk))
        return found


def test_a_replayed_message_names_its_original_and_keeps_its_properties() -> None:
    kept = {"TAGS": "paid", "KEYS": "a  b", "__SHARDINGKEY": "s", "colour": "red"}
    rows = encoder().rows(batch(3, {**kept, "UNIQ_KEY": "old", "DELAY": "3"}), 0)
    chunks = list(chunker().chunks(rows))
    assert [(chunk.queue, chunk.rows) for chunk in chunks] == [(QUEUES[0], 2), (QUEUES[1], 1)]
    body, properties = messages_of(chunks[0])[1]
    assert body == "b2"
    unique = properties.pop("UNIQ_KEY")
    assert unique != "old"
    assert properties == {
        **kept,
        "REPLAY_ID": "r",
        "REPLAY_TOPIC": "orders",
        "REPLAY_BROKER": "broker-x",
        "REPLAY_QUEUE": "0",
        "REPLAY_OFFSET": "2",
        "REPLAY_MSG_ID": "U2",
        "REPLAY_BORN": "1002",
        "REPLAY_STORED": "2002",
    }


def test_a_replay_of_a_replay_tells_of_the_last_one_only() -> None:
    rows = encoder().rows(batch(1, {"REPLAY_ID": "first", "REPLAY_OFFSET": "77", "x": "y"}, lives=2), 0)
    text = rows.properties[0].as_py().decode()
    assert text.count("REPLAY_ID") == text.count("REPLAY_OFFSET") == 1
    properties = parse(text)
    assert (properties["REPLAY_ID"], properties["REPLAY_OFFSET"], properties["x"]) == ("r", "0", "y")
    assert properties["REPLAY_LIFE"] == "2"


def test_properties_that_leave_no_room_are_named() -> None:
    with pytest.raises(InvalidMessageError, match="the message at offset 0 of queue 0 of 'orders' has 32784 bytes"):
        encoder().rows(batch(1, {"x": "y" * 32_600}), 0)


def test_a_part_of_rows_is_the_same_rows() -> None:
    rows = encoder().rows(batch(10, {"x": "y"}), 100)
    whole, cut = Writing(), Writing()
    for chunk in chunker().chunks(rows):
        whole.begin(chunk)
    cutting = chunker()
    for begin, end in ((0, 3), (3, 4), (4, 10)):
        for chunk in cutting.chunks(part_of(rows, begin, end)):
            cut.begin(chunk)
    assert whole.bodies == cut.bodies == {0: ["b0", "b2", "b4", "b6", "b8"], 1: ["b1", "b3", "b5", "b7", "b9"]}
    assert part_of(rows, 3, 4).first == 103


def test_all_is_due_at_once_without_a_rate_or_a_pace() -> None:
    count = MAX_AT_ONCE + 10
    writing = Writing()
    sending = PacedSending(writing.begin, AT_ONCE, time.monotonic())
    sending.send(encoder().rows(batch(count), 0), np.zeros(count, np.int64), chunker())
    sending.finish()
    assert sending.number == count
    assert writing.bodies == {half: [f"b{number}" for number in range(half, count, 2)] for half in (0, 1)}
    reported = sending.statistics(3).to_pylist()[0]
    assert (reported["sender"], reported["sent"], sum(reported["lateness"])) == (3, count, 0)


def test_a_rate_spreads_messages_evenly() -> None:
    assert Pacing(10.0, None, 0).due(20, np.zeros(3, np.int64)).tolist() == [2.0, 2.1, 2.2]
    writing, start = Writing(), time.monotonic()
    sending = PacedSending(writing.begin, Pacing(200.0, None, 0), start)
    sending.send(encoder().rows(batch(21), 0), np.zeros(21, np.int64), chunker())
    sending.finish()
    # Never before they are due; how much later is the machine's affair.
    assert writing.times[-1] - start >= 20 / 200
    assert sum(map(len, writing.bodies.values())) == 21
    assert sum(sending.statistics(0).to_pylist()[0]["lateness"]) == 21


def test_a_pace_keeps_the_times_between_messages() -> None:
    times = np.array([5_000_000, 5_500_000, 7_000_000])
    assert Pacing(None, 2.0, 5_000_000).due(0, times).tolist() == [0.0, 0.25, 1.0]


def test_all_senders_begin_when_the_last_one_is_ready() -> None:
    now, here = time.time(), time.monotonic()
    pacing = Pacing(1.0, None, 0)
    starts = [common_start([now - 5, now + 2, now - 9], pacing) for _ in range(2)]
    assert starts[0] == pytest.approx(starts[1], abs=0.01)
    assert starts[0] >= here + 2 + START_SECONDS - 0.1
    assert common_start([now], AT_ONCE) <= time.monotonic() + 0.1


def test_a_message_that_cannot_be_written_ends_the_sending() -> None:
    sending = PacedSending(Writing(fails_after=1).begin, AT_ONCE, time.monotonic())
    sending.send(encoder().rows(batch(10), 0), np.zeros(10, np.int64), chunker())
    with pytest.raises(SendError, match="the broker is away"):
        sending.finish()
    sending.abandon()
    assert sending.statistics(0).to_pylist()[0]["sent"] == 5


def test_a_sending_that_is_stopped_sends_no_more() -> None:
    writing = Writing()
    sending = PacedSending(writing.begin, AT_ONCE, time.monotonic())
    sending.stop(SendError("stopped"))
    with pytest.raises(SendError, match="stopped"):
        sending.send(encoder().rows(batch(1), 0), np.zeros(1, np.int64), chunker())
    assert not writing.chunks


def test_lateness_is_counted_to_a_twentieth() -> None:
    late = Lateness()
    late.add(np.array([0.010] * 98 + [1.0] * 2))
    late.add(np.array([-5.0]))
    other = Lateness()
    other.merge(Lateness(late.counts.tolist()))
    assert other.percentile_ms(0.5) == pytest.approx(10, rel=0.06)
    assert other.percentile_ms(0.99) == pytest.approx(1000, rel=0.06)
    assert Lateness().percentile_ms(0.99) is None


def test_arrow_of_any_kind_of_count_is_taken() -> None:
    empty: Any = batch(0)
    assert len(encoder().rows(empty, 0)) == 0
