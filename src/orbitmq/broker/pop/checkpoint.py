"""Check points and acknowledgements of pops: the records by which unacknowledged messages are redelivered.

A pop writes a check point, which lists its messages and the time until which they are invisible. An acknowledgement
is a record too. Both go through the timer to one queue of the revive topic: the timer delivers the check point a
second before the messages are visible again, and the acknowledgements at that time. ``ReviveService`` reads the
queue and redelivers the messages that were not acknowledged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import orjson

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import REVIVE_TOPIC_PREFIX, TIMER_TOPIC
from orbitmq.store import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.stats.counters import BrokerStats
    from orbitmq.protocol.bodies import AckMsg, PopCheckPoint
    from orbitmq.store import Clock, MessageStore

AHEAD_MS = 1000
"""The timer delivers a check point so long before its messages are visible again."""

CK_TAG = "ck"
ACK_TAG = "ack"
BATCH_ACK_TAG = "bAck"
NO_OFFSET = -1
"""The offset in an acknowledgement of several messages, which has a list of offsets."""


class Timer(Protocol):
    """The interface of the timer that POP needs."""

    def out_time(self, deliver_ms: int) -> int | None:
        """The TIMER_OUT_MS of a message for this time; None if it is due now. Raises AppendRefusedError."""

    @property
    def is_caught_up(self) -> bool:
        """True if everything that was due two seconds ago has been delivered."""


class CheckpointWriter:
    """Appends check points and acknowledgements. Raises AppendRefusedError if nothing was written."""

    def __init__(
        self, config: BrokerConfig, store: MessageStore, timer: Timer, stats: BrokerStats, clock: Clock
    ) -> None:
        self._config = config
        self._store = store
        self._timer = timer
        self._stats = stats
        self._clock = clock
        self.end = 0
        """Consumer offsets are persisted only after the log is flushed up to here."""
        self.revive_topic = REVIVE_TOPIC_PREFIX + config.broker_cluster_name

    @property
    def queue_count(self) -> int:
        """The number of revive queues, with those of a time when ``reviveQueueNum`` was larger."""
        known = self._store.queues.queue_ids(self.revive_topic)
        return max(self._config.revive_queue_num, known[-1] + 1 if known else 0)

    def check_point(self, point: PopCheckPoint, revive_queue: int) -> None:
        """Record that messages were delivered to a group."""
        body = {
            "bm": point.bit_map,
            "bn": point.broker_name,
            "c": point.cid,
            "d": point.queue_offset_diff,
            "it": point.invisible_time,
            "n": point.num,
            "pt": point.pop_time,
            "q": point.queue_id,
            "reviveTime": point.revive_time,
            "ro": point.revive_offset,
            **({} if point.re_put_times is None else {"rp": point.re_put_times}),
            "so": point.start_offset,
            "sp": point.suspend,
            "t": point.topic,
        }
        key = (
            f"{point.topic}@{point.queue_id}@{point.start_offset}@{point.cid}@{point.pop_time}@{point.broker_name}"
        )
        self._put(orjson.dumps(body), CK_TAG, f"{key}@{CK_TAG}", revive_queue, point.revive_time - AHEAD_MS)

    def ack(self, ack: AckMsg, revive_queue: int, deliver_ms: int, offsets: Sequence[int] | None = None) -> None:
        """Record the acknowledgement of a message, or of several of one pop."""
        body: dict[str, object] = {"ao": ack.ack_offset}
        if offsets is not None:
            body["aol"] = list(offsets)
        body |= {
            "bn": ack.broker_name,
            "c": ack.consumer_group,
            "pt": ack.pop_time,
            "q": ack.queue_id,
            "so": ack.start_offset,
            "t": ack.topic,
        }
        key = (
            f"{ack.topic}@{ack.queue_id}@{ack.ack_offset}@{ack.consumer_group}@{ack.pop_time}@{ack.broker_name}"
            f"@{ACK_TAG}"
        )
        tag = ACK_TAG if offsets is None else BATCH_ACK_TAG
        self._put(orjson.dumps(body), tag, key, revive_queue, deliver_ms)

    def _put(self, body: bytes, tag: str, key: str, revive_queue: int, deliver_ms: int) -> None:
        out_ms = self._timer.out_time(deliver_ms)
        if "\x02" in key:
            raise ProtocolError("a name with 0x02 in it cannot be a property of a message")
        topic, queue_id = self.revive_topic, revive_queue
        own = f"TIMER_DELIVER_MS\x01{deliver_ms}\x02UNIQ_KEY\x01{key}\x02TAGS\x01{tag}\x02"
        if out_ms is not None:
            # In RocketMQ's order, so that the records are byte-identical.
            own = f"REAL_TOPIC\x01{topic}\x02{own}TIMER_OUT_MS\x01{out_ms}\x02REAL_QID\x01{queue_id}\x02"
            topic, queue_id = TIMER_TOPIC, 0
        appended = self._store.append(
            StoredMessage(
                topic, queue_id, body, own.encode("utf-8", "replace"), born_timestamp=self._clock.now_ms(),
                born_host=self._store.log.store_host,
            )
        )  # fmt: skip
        self.end = appended.offset + appended.size
        self._stats.put_by_broker(topic, queue_id, 1, appended.size)
