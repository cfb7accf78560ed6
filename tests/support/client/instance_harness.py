"""Producers and consumers as their client instance knows them, which write down what they are asked."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from orbitmq.client.config import ClientConfig, name_server_list
from orbitmq.client.instance.instance import ClientInstance
from orbitmq.protocol.bodies import (
    CMResult,
    ConsumeMessageDirectlyResult,
    ConsumerData,
    ConsumerRunningInfo,
    MessageQueue,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from orbitmq.protocol.message.record import Record


class Producing:
    def __init__(self, group: str = "g", *topics: str) -> None:
        self.group = group
        self._topics = topics

    def topics(self) -> Iterable[str]:
        return self._topics


class Consuming(Producing):
    """A consumer that writes down what it is asked."""

    def __init__(self, group: str = "g", *topics: str) -> None:
        super().__init__(group, *topics)
        self.rebalances = 0
        self.resets: list[tuple[str, Mapping[MessageQueue, int]]] = []
        self.consumed: list[tuple[Record, str]] = []

    def heartbeat(self) -> ConsumerData:
        return ConsumerData(self.group)

    def rebalance_soon(self) -> None:
        self.rebalances += 1

    def reset_offsets(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        self.resets.append((topic, offsets))

    def status(self, topic: str) -> Mapping[MessageQueue, int]:
        return {MessageQueue(topic, "broker-a", 1): 17}

    def running_info(self, *, with_stacks: bool) -> ConsumerRunningInfo:
        return ConsumerRunningInfo(jstack="stacks" if with_stacks else None)

    async def consume_directly(self, record: Record, broker_name: str) -> ConsumeMessageDirectlyResult:
        self.consumed.append((record, broker_name))
        return ConsumeMessageDirectlyResult(consume_result=CMResult.CR_SUCCESS)


@contextlib.asynccontextmanager
async def instance_of(name_servers: str, client_id: str = "ip@1", **options: Any) -> AsyncIterator[ClientInstance]:
    instance = ClientInstance.acquire(
        ClientConfig(name_servers=name_server_list(name_servers), **options), client_id
    )
    try:
        yield instance
    finally:
        await instance.release()
