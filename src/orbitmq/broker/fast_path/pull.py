"""PULL fast path: answers pulls that find messages."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from orbitmq import native
from orbitmq.broker.fast_path.adapter import NOT_NOW, FastPathAdapter
from orbitmq.broker.metadata.attributes import is_plain
from orbitmq.broker.pull.request import MIN_PULL_BYTES
from orbitmq.protocol.command.header import LANGUAGES_BY_NAME
from orbitmq.protocol.names import LMQ_PREFIX
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.store.commitlog.cold_data import NEAR, WINDOW
from orbitmq.store.consumequeue.consume_queue import UNIT_SIZE, ConsumeQueue
from orbitmq.store.reader import MAX_COPIED, GetStatus

if TYPE_CHECKING:
    from orbitmq.broker.fast_path.epoch import RouteEpoch
    from orbitmq.broker.metadata.subscription_groups import GroupTable
    from orbitmq.broker.offsets.table import OffsetTable
    from orbitmq.broker.pull.processor import PullRequests
    from orbitmq.broker.stats.counters import BrokerStats
    from orbitmq.filter import CompiledFilter
    from orbitmq.native._native import PullServer
    from orbitmq.remoting import Connection
    from orbitmq.store import MessageStore

MAX_ROUTES = 200_000
"""Cached pull routes. Clients can make up new ones, and deciding again is cheap: at the limit all are cleared."""

MAX_ROUTE_KEY_BYTES = 2048
"""Bytes of the fields that make up a route key: group, topic, queue and subscription. A pull with longer ones takes
the Python path every time, so that its text is not cached."""

MAX_ROUTE_BYTES = 64 * 1024 * 1024
"""Bytes of all route keys: 200,000 routes of usual pulls, or fewer of long ones."""

MAX_CODES = 32
"""Tags of a subscription that is filtered natively: its codes are compared one by one."""


class PullFastPath(FastPathAdapter["PullServer"]):
    """Answers PULL_MESSAGE and LITE_PULL_MESSAGE requests.

    A route holds the decision about one kind of pull: one group and subscription on one queue. A pull that finds
    nothing, has to wait or needs a filter by properties falls back.
    """

    def __init__(
        self,
        epoch: RouteEpoch,
        store: MessageStore,
        pulls: PullRequests,
        groups: GroupTable,
        offsets: OffsetTable,
        stats: BrokerStats,
    ) -> None:
        self._log = store.log
        self._reader = store.reader
        self._queues = store.queues
        self._config = store.config
        self._pulls = pulls
        self._groups = groups
        self._offsets = offsets
        self._got = stats.got
        self._commit_pull = offsets.commit_pull
        super().__init__(epoch)

    def _create(self) -> PullServer:
        config, answers = self._config, self._pulls.answers
        self._route_bytes = 0
        self.is_full = False
        """True if the last ``take`` ended because its answers reached the bytes that a peer may leave unread."""
        return native.load().pull_server(
            languages=tuple(name.encode() for name in LANGUAGES_BY_NAME),
            json_parts=answers.json_parts,
            binary_parts=answers.binary_parts,
            remark=GetStatus.FOUND.value.encode(),
            language=answers.language,
            version=answers.version,
            most=config.max_transfer_count_on_message_in_memory,
            most_bytes=config.max_transfer_bytes_on_message_in_memory,
            least_bytes=MIN_PULL_BYTES,
            copied=MAX_COPIED,
            near=NEAR,
            warm=self._reader.cold.warm,
            warm_size=WINDOW,
            filtered=config.max_filter_message_size // UNIT_SIZE,
        )

    def _clear_routes(self) -> None:
        super()._clear_routes()
        self._route_bytes = 0

    def _serve(self, connection: Connection, data: bytes) -> int:
        offsets, log, reader = self._offsets, self._log, self._reader
        self.is_full = False
        if offsets.pending_resets:
            return NOT_NOW
        # Without packing of arguments and lookups by name: this is a third of what a pull costs in Python.
        size, pulled = self._native.answer(
            data,
            log.start,
            log.committed,
            self._pulls.replicas.far,
            reader.checked_from,
            log.file_size,
            log.files.buffer_at,
            reader.cold.cold_ranges,
        )
        for (group, topic, queue_id), next_offset, count, stored, commit_offset, answer in pulled:
            if commit_offset >= 0:
                offsets.commit(group, topic, queue_id, commit_offset, connection.remote_address)
            self._got(group, topic, queue_id, count, stored)
            self._commit_pull(group, topic, queue_id, next_offset, connection.remote_address)
            connection.send(answer)
        self.served += len(pulled)
        self.is_full = self._native.is_full
        return size

    def _open_route(
        self,
        connection: Connection,
        key: bytes,
        code: int,
        group: str,
        topic: str,
        queue_id: int,
        sys_flag: int,
        subscription: str | None,
        version: int,
        expression_type: str | None,
    ) -> bool:
        if len(key) > MAX_ROUTE_KEY_BYTES:
            return False
        try:
            config = self._pulls.check(connection, code, group, topic, queue_id)
            wanted = self._pulls.wanted(
                group, topic, sys_flag, subscription=subscription, version=version, expression_type=expression_type
            )
        except RequestRefusedError:
            return False
        queue = self._queues.find(topic, queue_id)
        if queue is None:
            return False
        if self._native.route_count >= MAX_ROUTES or self._route_bytes + len(key) > MAX_ROUTE_BYTES:
            self._clear_routes()
        self._route_bytes += len(key)
        is_native = wanted is None or is_by_few_tags(topic, wanted)
        if not is_native or not is_plain(config.attributes) or not isinstance(queue, ConsumeQueue):
            self._native.close_route(key)
            return False
        flags = config.topic_sys_flag, self._groups.configs[group].group_sys_flag
        suggested = self._pulls.replicas.suggested(group)
        names = group, topic, queue_id
        self._native.add_route(key, queue, queue.read, *flags, names, suggested, codes_of(wanted))
        return True


def is_by_few_tags(topic: str, wanted: CompiledFilter) -> bool:
    """True if native code can apply the filter. A light queue has the codes of records of other queues."""
    return 0 < len(wanted.codes) <= MAX_CODES and not topic.startswith(LMQ_PREFIX)


def codes_of(wanted: CompiledFilter | None) -> bytes | None:
    """The tags codes of a filter as native code compares them; None if everything is wanted."""
    return None if wanted is None else b"".join([struct.pack(">i", code) for code in wanted.codes])
