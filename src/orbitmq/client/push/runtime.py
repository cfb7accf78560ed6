"""Run-time of a push consumer: a member of its group, from start to close."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from typing import TYPE_CHECKING, Any

from orbitmq.client.consumer.offset_store import LocalOffsets, RemoteOffsets
from orbitmq.client.consumer.rebalance import RebalanceLoop, Rebalancer
from orbitmq.client.consumer.received_message import PulledMessage
from orbitmq.client.consumer.reset import reset_to_time
from orbitmq.client.consumer.result import result_of
from orbitmq.client.consumer.running_info import Rates, running_info
from orbitmq.client.consumer.send_back import SendBack
from orbitmq.client.consumer.tracing import consume_tracing
from orbitmq.client.errors import OrbitMQError
from orbitmq.client.health import is_connected, queue_lag
from orbitmq.client.instance.instance import ClientInstance
from orbitmq.client.push.assigned_queues import PushQueues
from orbitmq.client.push.concurrent import ConcurrentConsumption
from orbitmq.client.push.group_peers import GroupPeers
from orbitmq.client.push.orderly import OrderlyConsumption, QueueLocks
from orbitmq.client.push.pull_loop import PullLoop
from orbitmq.filter import is_tag_type
from orbitmq.protocol.bodies import (
    CheckClientRequestBody,
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
)
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orbitmq.client.config import ClientConfig
    from orbitmq.client.consumer.hooks import ConsumeHook
    from orbitmq.client.consumer.subscription import Subscription, Subscriptions
    from orbitmq.client.push.assigned_queues import Consumption
    from orbitmq.client.push.config import ConsumerConfig
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.message.record import Record

log = logging.getLogger("orbitmq.client")

COMPARE_SECONDS = 2.0
"""Interval of the check for new members, with whose subscriptions the own ones are compared."""


class PushRuntime:
    """State of a running push consumer. Created on the loop that it runs on."""

    def __init__(
        self,
        client_config: ClientConfig,
        config: ConsumerConfig,
        group: str,
        subscriptions: Subscriptions,
        hooks: Sequence[ConsumeHook] = (),
    ) -> None:
        self.group = group
        self._tracing = consume_tracing(client_config, group)
        all_hooks = [*hooks, *([] if self._tracing is None else [self._tracing])]
        self._config = config
        self._subscriptions = subscriptions
        name = client_config.instance_name if config.is_broadcasting else client_config.own_instance_name
        self.client_id = client_config.client_id(name)
        self._instance = instance = ClientInstance.acquire(client_config, self.client_id)
        self._offsets = (
            LocalOffsets(config.local_offset_store_dir, self.client_id, group)
            if config.is_broadcasting
            else RemoteOffsets(instance, group)
        )
        send_back = SendBack(instance, group, config)
        locks = QueueLocks(instance, group) if config.orderly and not config.is_broadcasting else None
        self.consumption: Consumption = (
            OrderlyConsumption(group, config, subscriptions, send_back, locks, all_hooks, clock=instance.clock)
            if config.orderly
            else ConcurrentConsumption(group, config, subscriptions, send_back, all_hooks, clock=instance.clock)
        )
        self.unpaused = asyncio.Event()
        self.unpaused.set()
        pulling = PullLoop(
            instance, group, config, subscriptions, self.unpaused, self.consumption.deliver, self._moved, self._beat
        )
        self._rounds = RebalanceLoop(self._round, config.rebalance_interval, config.rebalance_min_interval)
        self.queues = PushQueues(
            instance,
            config,
            self._offsets,
            self.consumption,
            pulling,
            locks,
            self.rebalance_soon,
            self._handed_over,
        )
        self._peers = GroupPeers(instance, group, self.client_id)
        self._compared: list[str] = []
        """The members whose subscriptions were compared last."""
        self._rebalancer = Rebalancer(
            instance, group, self.client_id, config.allocate_message_queue_strategy, config.message_model
        )
        self._rates = Rates(instance.clock)
        self._started_ms = instance.clock.now_ms()
        self._tasks: list[asyncio.Task[None]] = []
        self._beating: asyncio.Task[None] | None = None

    # Starting and ending

    async def start(self) -> None:
        """Join the group and run the first rebalance. Raises OrbitMQError after stopping everything."""
        try:
            if self._tracing is not None:
                await self._tracing.dispatcher.start()
            if isinstance(self._offsets, LocalOffsets):
                self._load(self._offsets)
            self._instance.add_consumer(self)
            await self._find_topics()
            for subscription in self._subscriptions:
                await self._check(subscription)
            await self._instance.heartbeat_all()
            # Synchronously: messages sent after the start are consumed.
            is_balanced = await self._round()
        except BaseException:
            await self.abandon()
            raise
        self._rounds.start(at_once=not is_balanced)
        works = [self._persist_for_ever(), self._rates.sample_for_ever(self._subscriptions)]
        if not self._config.is_broadcasting:
            works.append(self._compare_for_ever())
        for work in works:
            self._tasks.append(asyncio.create_task(work))

    async def close(self) -> None:
        """Wait for running handlers, persist the offsets and leave the group."""
        await self._stop_tasks()
        await self.queues.stop_pulling()
        await self.consumption.close(self._config.await_termination_when_shutdown)
        if self._tracing is not None:
            await self._tracing.dispatcher.close()
        await self.queues.close()
        await self._instance.remove_consumer(self)
        await self._offsets.close()
        await self._instance.release()

    async def abandon(self) -> None:
        """Stop at once without notifying brokers, as if the process had been killed."""
        await self._stop_tasks()
        await self.queues.abandon()
        await self.consumption.close(0)
        if self._tracing is not None:
            await self._tracing.dispatcher.abandon()
        if self._instance.consumers.get(self.group) is self:
            del self._instance.consumers[self.group]
        await self._offsets.close()
        await self._instance.release()

    async def _stop_tasks(self) -> None:
        await self._rounds.close()
        tasks = [*self._tasks, *([] if self._beating is None else [self._beating])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _load(self, offsets: LocalOffsets) -> None:
        from orbitmq.platform.errors import StoreError  # noqa: PLC0415 - only for broadcasting

        try:
            offsets.load()
        except StoreError as error:
            raise OrbitMQError(f"could not read the local offsets: {error}") from error

    async def _find_topics(self) -> None:
        for topic in self._subscriptions.topics():
            # Missing topics are looked up again in every round.
            with contextlib.suppress(OrbitMQError, RemotingError):
                await self._instance.refresh(topic)

    async def _check(self, subscription: Subscription) -> None:
        """Have a broker validate the filter. Raises BrokerError if it is invalid."""
        address = self._instance.any_address(subscription.topic)
        if is_tag_type(subscription.data.expression_type) or address is None:
            return
        body = CheckClientRequestBody(
            client_id=self.client_id,
            group=self.group,
            subscription_data=subscription.data,
            namespace=self._instance.config.namespace or None,
        )
        command = Command(RequestCode.CHECK_CLIENT_CONFIG, body=body.encode(), language=LanguageCode.PYTHON)
        try:
            await self._instance.call(address, command)
        except RemotingError as error:
            raise OrbitMQError(f"could not validate the filter of {subscription.name!r}: {error}") from error

    # Rebalance and offsets

    async def subscription_changed(self, subscription: Subscription | None) -> None:
        """Apply a new or removed subscription. Raises BrokerError for an invalid filter."""
        if subscription is not None:
            await self._find_topics()
            await self._check(subscription)
        await self._instance.heartbeat_all()
        self.rebalance_soon()

    async def _round(self) -> bool:
        """One rebalance round over all topics. Returns whether it is complete."""
        is_complete, has_changed = True, False
        for topic in self._subscriptions.topics():
            share = await self._rebalancer.share(topic)
            if share is None:
                is_complete = False
                continue
            changed, complete = await self.queues.update(topic, share)
            is_complete = is_complete and complete
            if changed:
                has_changed = True
                self._subscriptions.renew(topic)
                await self._notify_listener(topic)
        if self.queues.keep_only(self._subscriptions.topics()) or has_changed:
            self.queues.fit_windows()
            await self._instance.heartbeat_all()
        return is_complete

    async def _handed_over(self, topic: str, queues: Sequence[MessageQueue]) -> None:
        """Wait for other members that still hold queues. Orderly queues have locks for that."""
        config = self._config
        has_locks = config.is_broadcasting or config.orderly
        if has_locks or all(member == self.client_id for member in self._rebalancer.members):
            return
        if config.handover_timeout:
            await self._peers.released(topic, queues, config.handover_timeout)

    async def _compare_for_ever(self) -> None:
        """Compare the subscriptions of the group whenever its members have changed."""
        while True:
            await asyncio.sleep(min(COMPARE_SECONDS, self._config.rebalance_interval))
            members = self._rebalancer.members
            if members != self._compared:
                try:
                    await self._peers.compare_subscriptions(members, self._subscriptions.data_set())
                except Exception:
                    log.exception("subscription: comparing those of %s failed, will retry", self.group)
                else:
                    self._compared = members

    async def _notify_listener(self, topic: str) -> None:
        listener = self._config.message_queue_listener
        if listener is not None:
            try:
                listener(topic, await self._rebalancer.queues(topic) or [], self.queues.of_topic(topic))
            except Exception:
                log.exception("rebalance: message_queue_listener failed")

    async def _persist_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._instance.config.persist_consumer_offset_interval)
            try:
                await self.queues.persist()
            except Exception:
                log.exception("offsets: persisting those of %s failed, will retry", self.group)

    def _moved(self, *moved: Any) -> None:
        self.queues.moved(*moved)

    def _beat(self) -> None:
        """Send a heartbeat with the subscriptions in the background."""
        if self._beating is None or self._beating.done():
            self._beating = asyncio.create_task(self._instance.heartbeat_all())

    # Interface to the client instance and to brokers

    def topics(self) -> Iterable[str]:
        return self._subscriptions.topics()

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            group_name=self.group,
            consume_type=ConsumeType.CONSUME_PASSIVELY,
            message_model=self._config.message_model,
            consume_from_where=self._config.consume_from_where,
            subscription_data_set=self._subscriptions.data_set(),
            unit_mode=self._config.unit_mode,
        )

    def rebalance_soon(self) -> None:
        self._rounds.soon()

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.queues.reset({queue: offset for queue, offset in offsets.items() if queue.topic == topic})

    async def reset_to_time(self, topic: str, timestamp_ms: int) -> dict[MessageQueue, int]:
        """Reset the group at the brokers."""
        return await reset_to_time(self._instance, self.group, topic, timestamp_ms)

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        self.queues.update_offsets()
        return self._offsets.table(topic)

    @property
    def is_connected(self) -> bool:
        return is_connected(self._instance)

    async def lag(self) -> dict[MessageQueue, int]:
        """Messages of each assigned queue that are not consumed yet. Raises OrbitMQError."""
        self.queues.update_offsets()
        assigned = [queue.queue for queue in self.queues.process_queues]
        own = [queue for queue in assigned if queue.topic != self._subscriptions.retry_topic]
        return await queue_lag(self._instance, self.group, own, self._offsets.read)

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        return running_info(
            self._subscriptions,
            self.queues.process_queues,
            self._rates,
            name_servers=self._instance.config.name_servers,
            thread_count=self.consumption.thread_count,
            orderly=self._config.orderly,
            started_ms=self._started_ms,
            with_stacks=with_stacks,
        )

    async def consume_directly(self, record: Record, broker_name: str) -> ConsumeMessageDirectlyResult:
        subscriptions = self._subscriptions
        message = PulledMessage.of_record(record, broker_name, subscriptions.application_topic(record.topic))
        topic = subscriptions.origin(message)
        message.topic = subscriptions.application_topic(topic)
        answer = ConsumeMessageDirectlyResult(order=self._config.orderly, auto_commit=True)
        clock = self._instance.clock
        began = clock.monotonic()
        subscription = subscriptions.get(topic)
        try:
            if subscription is None:
                raise LookupError(f"the topic {message.topic} is not subscribed here")
            subscription = subscription.route(message)
            argument: Any = [message] if subscription.takes_list else message
            result = result_of(await self._call_handler(subscription, argument))
            answer.consume_result = CMResult.CR_SUCCESS if result.succeeded else CMResult.CR_LATER
        except Exception as error:
            answer.consume_result, answer.remark = CMResult.CR_THROW_EXCEPTION, repr(error)
        answer.spent_time_mills = round((clock.monotonic() - began) * 1000)
        return answer

    async def _call_handler(self, subscription: Subscription, argument: object) -> object:
        if not subscription.runs_on_loop:
            return await self.consumption.threads.call(subscription.handler, argument)
        returned = subscription.handler(argument)
        return await returned if inspect.isawaitable(returned) else returned
