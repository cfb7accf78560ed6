"""Pulls that find messages: which of them the kernel may answer, and what it gave."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.pull import LEAST_PULL_BYTES
from orbitmq.protocol.header import LANGUAGES_BY_NAME
from orbitmq.remoting.processing import RequestRefusedError
from orbitmq.store.cold_log import NEAR, WINDOW
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.reading import COPIED_MOST, GetStatus

if TYPE_CHECKING:
    from orbitmq.broker.clients import Clients
    from orbitmq.broker.groups import GroupTable
    from orbitmq.broker.offsets import OffsetTable
    from orbitmq.broker.pull import PullRequests
    from orbitmq.broker.stats import BrokerStats
    from orbitmq.broker.topics import TopicTable
    from orbitmq.kernel._native import PullRuns as Kernel
    from orbitmq.remoting import Connection
    from orbitmq.store import MessageStore

MOST_LANES = 200_000
"""Kinds of pulls that are remembered. Anybody may make up others, and what is decided again costs little."""


class PullRuns:
    """Takes pulls off what connections receive.

    What was decided about a kind of pull, which is one group's from one queue, holds until topics, groups,
    subscriptions or settings change.
    """

    def __init__(
        self,
        kernel: type[Kernel],
        store: MessageStore,
        pulls: PullRequests,
        topics: TopicTable,
        groups: GroupTable,
        offsets: OffsetTable,
        clients: Clients,
        stats: BrokerStats,
    ) -> None:
        self._kernel_type = kernel
        self._log = store.log
        self._reader = store.reader
        self._queues = store.queues
        self._config = store.config
        self._pulls = pulls
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._clients = clients
        self._got = stats.got
        self._commit_pull = offsets.commit_pull
        self.renew()

    def renew(self) -> None:
        """Go by the settings as they are now."""
        config, answers = self._config, self._pulls.answers
        self._kernel = self._kernel_type(
            languages=tuple(name.encode() for name in LANGUAGES_BY_NAME),
            json_parts=answers.json_parts,
            binary_parts=answers.binary_parts,
            remark=GetStatus.FOUND.value.encode(),
            language=answers.language,
            version=answers.version,
            most=config.max_transfer_count_on_message_in_memory,
            most_bytes=config.max_transfer_bytes_on_message_in_memory,
            least_bytes=LEAST_PULL_BYTES,
            copied=COPIED_MOST,
            near=NEAR,
            warm=self._reader.cold.warm,
            warm_size=WINDOW,
        )
        self._decided_by = self._all_that_decides()

    def _all_that_decides(self) -> tuple[object, object, int, int]:
        return (
            self._topics.data_version,
            self._groups.data_version,
            self._clients.revision,
            self._queues.removals,
        )

    def take(self, connection: Connection, data: bytes) -> int:
        """Answer the pulls that ``data`` begins with; returns how many bytes they have."""
        if self._offsets.pending_resets:
            return 0
        topics, groups, clients, removals = self._decided_by
        if (
            self._topics.data_version is not topics
            or self._groups.data_version is not groups
            or self._clients.revision != clients
            or self._queues.removals != removals
        ):
            self._decided_by = self._all_that_decides()
            self._kernel.clear_lanes()
        log, reader = self._log, self._reader
        first = log.start
        total = 0
        while True:
            size, pulled = self._kernel.take(
                *(data, first, log.committed, reader.memory_window, reader.checked_from),
                *(log.file_size, log.files.buffer_at, reader.cold.gap),
            )
            for place, next_offset, count, stored, commit_offset, answer in pulled:
                if commit_offset >= 0:
                    self._offsets.commit(*place, commit_offset)
                self._got(*place, count, stored)
                self._commit_pull(*place, next_offset)
                connection.send(answer)
            total += size
            missing = self._kernel.missing
            if missing is None or not self._open_lane(connection, *missing):
                return total
            data = data[size:]

    def _open_lane(
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
        """Let pulls of a kind be answered; False if each of them has to be looked at."""
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
        if self._kernel.lane_count >= MOST_LANES:
            self._kernel.clear_lanes()
        if wanted is not None or config.attributes or not isinstance(queue, ConsumeQueue):
            self._kernel.close_lane(key)
            return False
        flags = config.topic_sys_flag, self._groups.configs[group].group_sys_flag
        self._kernel.add_lane(key, queue, queue.read, *flags, (group, topic, queue_id))
        return True
