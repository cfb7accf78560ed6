"""Run-time of a lite pull consumer: assignment, offsets, and requests from brokers."""

from __future__ import annotations

import asyncio
import io
import logging
from typing import TYPE_CHECKING

from orbitmq.client.consumer.offset_store import OFFSET_SECONDS, broker_address
from orbitmq.client.consumer.rebalance import RebalanceLoop, Rebalancer
from orbitmq.client.consumer.start_offset import start_offset
from orbitmq.client.lite_pull.assigned_queues import MIB, AssignedQueues
from orbitmq.client.lite_pull.pull_loop import QueuePuller
from orbitmq.client.namespace import unwrap
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
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.versions import CURRENT_VERSION, version_name
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from orbitmq.client.consumer.offset_store import OffsetStore
    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.client.lite_pull.assigned_queues import AssignedQueue
    from orbitmq.client.lite_pull.config import LitePullConfig
    from orbitmq.protocol.bodies import ConsumeMessageDirectlyResult, MessageQueue, SubscriptionData
    from orbitmq.protocol.message.record import Record

    ShareListener = Callable[[str, Sequence[MessageQueue], Sequence[MessageQueue]], object]
    """Called with a topic, all its queues and those of this member."""

log = logging.getLogger("orbitmq.client")


class LitePullRuntime:
    """One member of a group, from start to close. Topics have the namespace."""

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
        """``subscriptions`` are topics shared by the group; ``expressions`` filter queues assigned by hand.

        ``listeners`` are called, by topic, when this member's share has changed.
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
        self._started_ms = instance.clock.now_ms()
        self._tasks: set[asyncio.Task[None]] = set()
        self._rebalancer = Rebalancer(
            instance,
            group,
            instance.client_id,
            config.allocate_message_queue_strategy,
            self._shared.message_model,
        )
        self._rounds = RebalanceLoop(self._round, config.rebalance_interval, config.rebalance_min_interval)
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

    # Assignment

    def share_queues(self) -> None:
        """Start rebalancing, or schedule a round."""
        if not self._is_sharing:
            self._is_sharing = True
            self._rounds.start()
        self._rounds.soon()

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Assign exactly these queues."""
        wanted = set(queues)
        self._release(assigned for assigned in self.queues.all() if assigned.queue not in wanted)
        for queue in sorted(wanted):
            if queue not in self.queues:
                self._start_pulling(self.queues.add(queue))

    def subscription_changed(self, topic: str) -> None:
        """Apply a new filter or a removed subscription. Messages pulled with the old filter are dropped."""
        affected = [assigned for assigned in self.queues.all() if assigned.queue.topic == topic]
        if topic in self._subscriptions:
            for assigned in affected:
                self._stop_pulling(assigned)
                self.queues.rewind(assigned)
                self._start_pulling(assigned)
        else:
            self._release(affected)
        self._run(self._instance.heartbeat_all())
        self.share_queues()

    def move(self, assigned: AssignedQueue, offset: int) -> None:
        """Seek to another offset of a queue."""
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
                await self._apply_share(topic, share)
        return is_balanced

    async def _apply_share(self, topic: str, share: Sequence[MessageQueue]) -> None:
        mine = [assigned for assigned in self.queues.all() if assigned.queue.topic == topic]
        if {assigned.queue for assigned in mine} == set(share):
            return
        self._release(assigned for assigned in mine if assigned.queue not in share)
        for queue in share:
            if queue not in self.queues:
                self._start_pulling(self.queues.add(queue))
        # Brokers keep the newest subscription of the members.
        subscription = self._subscriptions[topic]
        subscription.sub_version = max(self._instance.clock.now_ms(), subscription.sub_version + 1)
        await self._instance.heartbeat_all()
        listener = self._listeners.get(topic)
        if listener is not None:
            everything = await self._rebalancer.queues(topic) or ()
            try:
                listener(topic, everything, share)
            except Exception:
                log.exception("rebalance: listener for %s failed", topic)

    def _release(self, leaving: Iterable[AssignedQueue]) -> None:
        """Release queues; the next owner continues at the committed offsets."""
        released = [self.queues.remove(assigned.queue) for assigned in leaving]
        for assigned in released:
            self._stop_pulling(assigned)
        if released:
            self._update_done_offsets(released)
            self._run(self._hand_over([assigned.queue for assigned in released]))

    async def _hand_over(self, released: Sequence[MessageQueue]) -> None:
        await self.offsets.persist(released, confirmed=True)
        for queue in released:
            # A later persist would overwrite the new owner's offset.
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
        known = self.offsets.read(queue)
        return await start_offset(self._instance, self.offsets, queue, self._shared) if known is None else known

    def _moved(self, queue: MessageQueue, offset: int) -> None:
        # Persisting the old offset again would undo a reset.
        if self.offsets.read(queue) is not None:
            self.offsets.update(queue, offset)

    # Offsets

    def start(self) -> None:
        """Start the periodic auto commit and persisting."""
        if self._config.auto_commit:
            self._run(_every(self._config.auto_commit_interval, self._commit_done))
        self._run(_every(self._instance.config.persist_consumer_offset_interval, self.offsets.persist))

    async def _commit_done(self) -> None:
        self._update_done_offsets(self.queues.all())

    def _update_done_offsets(self, queues: Iterable[AssignedQueue]) -> None:
        if self._config.auto_commit:
            for queue, offset in self.queues.done_offsets(queues).items():
                self.offsets.update(queue, offset)

    async def persist_now(self, offsets: Mapping[MessageQueue, int]) -> None:
        """Persist these offsets now. Raises OrbitMQError, RemotingError."""
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
        """Stop all tasks and persist the committed offsets."""
        await self._rounds.close()
        self.queues.interrupt()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._update_done_offsets(self.queues.all())
        await self.offsets.persist(confirmed=True)
        await self.offsets.close()

    # Interface to the client instance and to brokers

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
        """Apply a reset of the group's offsets, which Java's pull consumers ignore."""
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
        committed = self.offsets.read(assigned.queue)
        return ProcessQueueInfo(
            commit_offset=-1 if committed is None else committed,
            cached_msg_min_offset=messages[0].offset if messages else 0,
            cached_msg_max_offset=messages[-1].offset if messages else 0,
            cached_msg_count=len(messages),
            cached_msg_size_in_mib=assigned.cached_bytes // MIB,
        )

    async def consume_directly(self, _record: Record, _broker_name: str) -> ConsumeMessageDirectlyResult:
        raise RequestRefusedError(f"{self.group} is a pull consumer: it cannot consume a message directly")


def _task_stacks() -> str:
    """Stacks of all tasks of the loop, instead of Java's threads."""
    text = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(file=text)
    return text.getvalue()


async def _every(seconds: float, job: Callable[[], Coroutine[None, None, None]]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await job()
