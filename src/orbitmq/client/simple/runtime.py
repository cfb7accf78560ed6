"""Run-time of a simple consumer: a member of its group that pops, without assigned queues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import (
    PROP_CLIENT_VERSION,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    PROP_NAMESERVER_ADDR,
    ConsumeFromWhere,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
)
from orbitmq.protocol.versions import CURRENT_VERSION, version_name
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.protocol.bodies import ConsumeMessageDirectlyResult, MessageQueue, SubscriptionData
    from orbitmq.protocol.message.record import Record


class SimpleRuntime:
    """A simple consumer as registered with its client instance. Brokers keep the group's offsets."""

    def __init__(
        self,
        instance: ClientInstance,
        group: str,
        subscriptions: Mapping[str, SubscriptionData],
        begins: ConsumeFromWhere,
    ) -> None:
        self.group = group
        self._instance = instance
        self._subscriptions = subscriptions
        self._begins = begins
        self._started_ms = instance.clock.now_ms()

    def topics(self) -> Iterable[str]:
        return list(self._subscriptions)

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(
            self.group,
            ConsumeType.CONSUME_POP,
            MessageModel.CLUSTERING,
            self._begins,
            list(self._subscriptions.values()),
            False,
        )

    def rebalance_soon(self) -> None:
        """No queues are assigned."""

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Brokers apply resets themselves."""

    def status(self, _topic: str) -> Mapping[MessageQueue, int]:
        return {}

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        del with_stacks
        return ConsumerRunningInfo(
            properties={
                PROP_CONSUME_TYPE: ConsumeType.CONSUME_POP.value,
                PROP_CLIENT_VERSION: version_name(CURRENT_VERSION),
                PROP_CONSUMER_START_TIMESTAMP: str(self._started_ms),
                PROP_NAMESERVER_ADDR: ";".join(self._instance.config.name_servers),
            },
            subscription_set=list(self._subscriptions.values()),
        )

    async def consume_directly(self, _record: Record, _broker_name: str) -> ConsumeMessageDirectlyResult:
        raise RequestRefusedError(f"{self.group} is a simple consumer: it cannot consume a message directly")
