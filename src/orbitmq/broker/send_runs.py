"""Sends that need nothing special, many at a time: which queues the compiled kernel may fill, and what it did.

A broker gets most of its messages in one shape. The kernel stores these straight from what a connection received;
everything here is done once for a run of them. A queue is open to it while nothing about its topic asks for a
closer look, and until any topic changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.crc import crc32
from orbitmq.protocol.header import LANGUAGES_BY_NAME
from orbitmq.protocol.names import TOPICS_CLOSED_TO_CLIENTS
from orbitmq.protocol.record import MAGIC_V1, MAGIC_V2, MAX_PROPERTIES_SIZE
from orbitmq.remoting.connection import MANY_FRAMES
from orbitmq.store.consume_queue import UNIT_SIZE, ConsumeQueue

if TYPE_CHECKING:
    from orbitmq.broker.flow import SendFlow
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.topics import TopicTable
    from orbitmq.kernel._native import SendRuns as Kernel
    from orbitmq.protocol.hot_answers import SendAnswers
    from orbitmq.remoting import Connection
    from orbitmq.store import MessageStore

_HEADER_AT = 8
_STARTS = b'{"code":310,', b"\x01\x36"
"""How the headers of sends begin, in JSON as all clients write it and in binary. What begins otherwise is left to
the general path, at no cost for requests that are no sends."""


class SendRuns:
    """Takes plain sends off what connections receive. Only where the kernel was built, and the store is for it."""

    def __init__(
        self,
        kernel: type[Kernel],
        store: MessageStore,
        topics: TopicTable,
        stats: BrokerStats,
        flow: SendFlow,
        answers: SendAnswers,
        added: bytes,
        kept_flags: int,
    ) -> None:
        """``added`` are the properties that every message gets, ``kept_flags`` what is kept of its sysFlag."""
        self._append = store.appender.runs.append
        self._queues = store.queues
        self._topics = topics
        self._count_put = stats.put
        self._flow = flow
        self._kernel = kernel(
            languages=tuple(name.encode() for name in LANGUAGES_BY_NAME),
            json_parts=answers.json_parts,
            binary_parts=answers.binary_parts,
            language=answers.language,
            version=answers.version,
            added=added,
            store_host=store.log.store_host,
            kept_flags=kept_flags,
            max_body=store.config.max_message_size,
            max_properties=MAX_PROPERTIES_SIZE,
            is_indexing=store.index is not None,
            crc32=crc32,
        )
        self._version = topics.data_version
        self._removals = store.queues.removals

    def take(self, connection: Connection, data: bytes) -> tuple[int, int]:
        """Store the plain sends that ``data`` begins with and answer them.

        Returns how many bytes they have, and how many follow until there may be another one.
        """
        if self._flow.refusal is not None:
            return 0, len(data)
        if not data.startswith(_STARTS, _HEADER_AT):
            return 0, self._until_next(data, 0)
        if self._topics.data_version is not self._version or self._queues.removals != self._removals:
            self._version, self._removals = self._topics.data_version, self._queues.removals
            self._kernel.clear_lanes()
        total = 0
        while True:
            taken = self._append(self._kernel, data, connection.state)
            if taken is None:
                return total, len(data)
            size, count, _, answers, runs, _, _, _ = taken
            if count:
                for _, topic, queue_id, _, units, _, _, stored in runs:
                    number = len(units) // UNIT_SIZE
                    self._count_put(topic, queue_id, number, stored, number)
                if answers:
                    connection.send(answers)
                    if count >= MANY_FRAMES:
                        connection.flush()
                total += size
            if size == len(data):
                return total, 0
            missing = self._kernel.missing
            if missing is None or not self._open_lane(*missing):
                # One that is special is mostly among others of its kind, and looking at each would be for nothing.
                is_send = data.startswith(_STARTS, size + _HEADER_AT)
                return total, len(data) - size if is_send else self._until_next(data, size)
            data = data[size:]

    @staticmethod
    def _until_next(data: bytes, start: int) -> int:
        """How many bytes there are from one frame to the next that looks like a send, or to the end."""
        at, size = start, len(data)
        while size - at > _HEADER_AT:
            length = int.from_bytes(data[at : at + 4], "big")
            at += 4 + length
            if length < 4 or at >= size:
                break
            if data.startswith(_STARTS, at + _HEADER_AT):
                return at - start
        return size - start

    def _open_lane(self, topic: str, queue_id: int) -> bool:
        """Let the kernel fill a queue; False if messages to it have to be looked at."""
        config = self._topics.configs.get(topic)
        if (
            config is None
            or topic in TOPICS_CLOSED_TO_CLIENTS
            or topic[0] == "%"
            or config.attributes
            or config.order
            or queue_id >= config.write_queue_nums
        ):
            return False
        known = self._queues.topics.get(topic)
        queue = None if known is None else known.queues.get(queue_id)
        if known is None or known.is_schedule or not isinstance(queue, ConsumeQueue):
            # The first message to a queue makes it, which takes more than the kernel does.
            return False
        self._kernel.add_lane(topic, known.field, queue_id, MAGIC_V2 if known.version_2 else MAGIC_V1, queue)
        return True
