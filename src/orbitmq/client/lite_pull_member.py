"""A pull consumer at work: takes and gives up queues, keeps offsets, and answers what brokers ask of it."""

from __future__ import annotations

import asyncio
import io
import logging
import time
from typing import TYPE_CHECKING

from orbitmq.client.assigned_queues import MIB, AssignedQueues
from orbitmq.client.consume_from import start_offset
from orbitmq.client.lite_pulling import QueuePuller
from orbitmq.client.namespaces import unwrap
from orbitmq.client.offset_store import OFFSET_SECONDS, broker_address
from orbitmq.client.rebalance import Rebalancer, RebalanceRounds
from orbitmq.filter import TAG, subscription_data
from orbitmq.protocol.bodies import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    ProcessQueueInfo,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.versions import CURRENT_VERSION, version_name
from orbitmq.remoting.processing import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from orbitmq.client.assigned_queues import AssignedQueue
    from orbitmq.client.instance import ClientInstance
    from orbitmq.client.lite_pull_config import LitePullConfig
    from orbitmq.client.offset_store import OffsetStore
    from orbitmq.protocol.bodies import ConsumeMessageDirectlyResult, MessageQueue, SubscriptionData
    from orbitmq.protocol.record import Record

    ShareListener = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], object]
    """Called with a topic, all its queues and those of this member."""

log = logging.getLogger("orbitmq.client")


class PullMember:
    """One member of a group, from its start to its end. Names of topics are those that brokers know."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        config: LitePullConfig,
        offsets: OffsetStore,
        subscriptions: dict[str, SubscriptionData],
        expressions: dict[str, SubscriptionData],
        listeners: Mapping[str, ShareListener],
    ) -> None:
        """``subscriptions`` are shared out among the group; ``expressions`` filter what is assigned by hand.

        ``listeners`` are told, by topic, when this member's share of it has changed.
        """
        self.group = group
        self.offsets = offsets
        self.queues = AssignedQueues(config.limits)
        self._instance = instance
        self._config = config
        self._shared = config.shared
        self._subscriptions = subscriptions
        self._expressions = expressions
        self._listeners = listeners
        self._started_ms = now_ms()
        self._tasks: set[asyncio.Task[None]] = set()
        self._rebalancer = Rebalancer(
            instance,
            group,
            instance.client_id,
            config.allocate_message_queue_strategy,
            self._shared.message_model,
        )
        self._rounds = RebalanceRounds(self._round, config.rebalance_interval, config.rebalance_min_interval)
        self._is_sharing = False
        self._puller = QueuePuller(
            instance,
            group,
            self.queues,
            config.pulls,
            subscription_of=self._subscription_of,
            start_offset=self._start_offset,
            moved=self._moved,
            plain_topic=lambda topic: unwrap(instance.config.namespace, topic),
        )

    # Which queues

    def share_queues(self) -> None:
        """Take a share of the subscribed topics' queues from now on, and look soon whether it is the right one."""
        if not self._is_sharing:
            self._is_sharing = True
            self._rounds.start()
        self._rounds.soon()

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues and no others."""
        wanted = set(queues)
        self._leave(assigned for assigned in self.queues.all() if assigned.queue not in wanted)
        for queue in sorted(wanted):
            if queue not in self.queues:
                self._start_pulling(self.queues.add(queue))

    def subscription_changed(self, topic: str) -> None:
        """Another filter, or none of the topic at all any more: what was pulled with the old one does not count."""
        concerned = [assigned for assigned in self.queues.all() if assigned.queue.topic == topic]
        if topic in self._subscriptions:
            for assigned in concerned:
                self._stop_pulling(assigned)
                self.queues.rewind(assigned)
                self._start_pulling(assigned)
        else:
            self._leave(concerned)
        self._run(self._instance.heartbeat_all())
        self.share_queues()

    def move(self, assigned: AssignedQueue, offset: int) -> None:
        """Go on at another offset of a queue."""
        self._stop_pulling(assigned)
        self.queues.move(assigned, offset)
        self._start_pulling(assigned)

    async def _round(self) -> bool:
        is_balanced = True
        for topic in list(self._subscriptions):
            share = await self._rebalancer.share(topic)
            if share is None:
                is_balanced = False
            elif topic in self._subscriptions:
                await self._take_share(topic, share)
        return is_balanced

    async def _take_share(self, topic: str, share: Sequence[MessageQueue]) -> None:
        mine = [assigned for assigned in self.queues.all() if assigned.queue.topic == topic]
        if {assigned.queue for assigned in mine} == set(share):
            return
        self._leave(assigned for assigned in mine if assigned.queue not in share)
        for queue in share:
            if queue not in self.queues:
                self._start_pulling(self.queues.add(queue))
        # Brokers keep the newest of what the members say.
        subscription = self._subscriptions[topic]
        subscription.sub_version = max(now_ms(), subscription.sub_version + 1)
        await self._instance.heartbeat_all()
        listener = self._listeners.get(topic)
        if listener is not None:
            everything = await self._rebalancer.queues(topic) or ()
            try:
                listener(topic, everything, share)
            except Exception:
                log.exception("the listener for the queues of %s failed", topic)

    def _leave(self, leaving: Iterable[AssignedQueue]) -> None:
        """Give queues up; somebody else goes on where this member has come to."""
        gone = [self.queues.remove(assigned.queue) for assigned in leaving]
        for assigned in gone:
            self._stop_pulling(assigned)
        if gone:
            self._tell_done(gone)
            self._run(self._hand_over([assigned.queue for assigned in gone]))

    async def _hand_over(self, gone: Sequence[MessageQueue]) -> None:
        await self.offsets.persist(gone, confirmed=True)
        for queue in gone:
            # What is not ours must not be persisted again: its new owner is further by then.
            if queue not in self.queues:
                self.offsets.remove(queue)

    # Pulling

    def _start_pulling(self, assigned: AssignedQueue) -> None:
        assigned.task = self._run(self._puller.keep_pulling(assigned))

    def _stop_pulling(self, assigned: AssignedQueue) -> None:
        if assigned.task is not None:
            assigned.task.cancel()

    def _run(self, job: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _subscription_of(self, topic: str) -> SubscriptionData:
        found = self._subscriptions.get(topic) or self._expressions.get(topic)
        if found is None:
            found = self._expressions[topic] = subscription_data(topic, TAG, "*", 0)
        return found

    async def _start_offset(self, queue: MessageQueue) -> int:
        told = self.offsets.read(queue)
        return await start_offset(self._instance, self.offsets, queue, self._shared) if told is None else told

    def _moved(self, queue: MessageQueue, offset: int) -> None:
        # What was committed before must not be persisted once more: that would undo a reset.
        if self.offsets.read(queue) is not None:
            self.offsets.update(queue, offset)

    # Offsets

    def start(self) -> None:
        """Begin to commit, as far as that is wanted, and to persist what is committed."""
        if self._config.auto_commit:
            self._run(_every(self._config.auto_commit_interval, self._commit_done))
        self._run(_every(self._instance.config.persist_consumer_offset_interval, self.offsets.persist))

    async def _commit_done(self) -> None:
        self._tell_done(self.queues.all())

    def _tell_done(self, queues: Iterable[AssignedQueue]) -> None:
        if self._config.auto_commit:
            for queue, offset in self.queues.done_offsets(queues).items():
                self.offsets.update(queue, offset)

    async def persist_now(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Make these offsets, which were told before, last. Raises OrbitMQError, RemotingError."""
        if self._shared.is_broadcasting:
            await self.offsets.persist(offsets, confirmed=True)
        else:
            await asyncio.gather(*(self._commit(queue, offset) for queue, offset in offsets.items()))

    async def _commit(self, queue: MessageQueue, offset: int) -> None:
        fields = {
            "consumerGroup": self.group,
            "topic": queue.topic,
            "queueId": str(queue.queue_id),
            "commitOffset": str(offset),
            "bname": queue.broker_name,
        }
        command = Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)
        await self._instance.call(await broker_address(self._instance, queue), command, OFFSET_SECONDS)

    async def close(self) -> None:
        """Stop everything and persist what is committed."""
        await self._rounds.close()
        self.queues.interrupt()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tell_done(self.queues.all())
        await self.offsets.persist(confirmed=True)
        await self.offsets.close()

    # What brokers are told, and what they ask

    def topics(self) -> Iterable[str]:
        return {*self._subscriptions, *(assigned.queue.topic for assigned in self.queues.all())}

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_ACTIVELY,
            self._shared.message_model,
            self._shared.consume_from_where,
            list(self._subscriptions.values()),
            self._config.unit_mode,
        )

    def rebalance_soon(self) -> None:
        if self._is_sharing:
            self._rounds.soon()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Somebody has set the group's offsets. Java's pull consumers do not listen to that."""
        moved = []
        for queue, offset in offsets.items():
            assigned = self.queues.find(queue)
            if assigned is not None and queue.topic == topic:
                self.offsets.update(queue, offset)
                self.move(assigned, offset)
                moved.append(queue)
        self._run(self.offsets.persist(moved))

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        return self.offsets.table(topic)

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(
            properties={
                PROP_CONSUME_TYPE: ConsumeType.CONSUME_ACTIVELY.value,
                PROP_CLIENT_VERSION: version_name(CURRENT_VERSION),
                PROP_CONSUMER_START_TIMESTAMP: str(self._started_ms),
                PROP_NAMESERVER_ADDR: ";".join(self._instance.config.name_servers),
            },
            subscription_set=list(self._subscriptions.values()),
            mq_table={assigned.queue: self._queue_info(assigned) for assigned in self.queues.all()},
            jstack=_task_stacks() if with_stacks else None,
        )

    def _queue_info(self, assigned: AssignedQueue) -> ProcessQueueInfo:
        messages = assigned.messages
        told = self.offsets.read(assigned.queue)
        return ProcessQueueInfo(
            commit_offset=-1 if told is None else told,
            cached_msg_min_offset=messages[0].offset if messages else 0,
            cached_msg_max_offset=messages[-1].offset if messages else 0,
            cached_msg_count=len(messages),
            cached_msg_size_in_mib=assigned.cached_bytes // MIB,
        )

    async def consume_directly(self, _record: Record, _broker_name: str) -> ConsumeMessageDirectlyResult:
        raise RequestRefusedError(f"{self.group} pulls its messages: it cannot be handed one")


def now_ms() -> int:
    return round(time.time() * 1000)


def _task_stacks() -> str:
    """Where every task of the loop is, in place of Java's threads."""
    said = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(file=said)
    return said.getvalue()


async def _every(seconds: float, job: Callable[[], Coroutine[None, None, None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await job()
