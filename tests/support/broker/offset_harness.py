"""The offsets of a broker on a store behind a real server, and captured requests of real tools."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from orbitmq.broker.offsets.lag import ConsumeStatsRequests
from orbitmq.broker.offsets.processor import OffsetRequests
from orbitmq.broker.offsets.reset import OffsetResets
from orbitmq.broker.offsets.table import OffsetTable
from orbitmq.broker.query.processor import QueryRequests
from orbitmq.broker.runtime import Metadata
from orbitmq.broker.stats.counters import BrokerStats
from orbitmq.protocol.bodies import SubscriptionGroupConfig, TopicConfig
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.store import StoredMessage
from support.broker.client_registry_harness import TOPIC, client_broker
from support.broker.runtimes import runtime_of
from support.nameserver_harness import as_text
from support.store.stores import open_small
from support.wire_captures import captured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from orbitmq.remoting import Handler
    from support.broker.client_registry_harness import Client, ClientBroker
    from support.wire_captures import Captured

ROOT = "/messages"
QUERIES = "java_json_18_query_view"

_opaques = itertools.count(1)


class OffsetBroker:
    """Store and offsets with their processors. ``tool`` is a connected client."""

    tool: Client

    def __init__(self, broker: ClientBroker, **settings: Any) -> None:
        self.broker = broker
        self.clock, self.config, self.writer = broker.clock, broker.config, broker.writer
        self.topics, self.groups, self.clients = broker.topics, broker.groups, broker.clients
        sizes = {"mapped_file_size_commit_log": 1 << 20, "max_index_num": 10_000}
        self.store = open_small(ROOT, clock=self.clock, disk=broker.disk, **{**sizes, **settings})
        self.offsets = OffsetTable(self.writer, self.clock)
        self.stats = BrokerStats(self.clock, self.config.broker_cluster_name)

    @property
    def handlers(self) -> dict[int, Handler]:
        runtime = runtime_of(self.store, self.writer, self.stats, config=self.config)
        metadata = Metadata(self.topics, self.groups, self.offsets, self.broker.filters)
        return {
            **OffsetRequests(runtime, metadata, self.clients).handlers,
            **OffsetResets(runtime, metadata, self.clients).handlers,
            **ConsumeStatsRequests(runtime, metadata, self.clients).handlers,
            **QueryRequests(self.store, self.clients, self.broker.filters).handlers,
        }

    def add_topic(self, topic: str = TOPIC, queues: int = 4, **more: Any) -> None:
        self.topics.update(TopicConfig(topic, queues, queues, **more))

    def add_group(self, *groups: str) -> None:
        self.groups.update(*[SubscriptionGroupConfig(group) for group in groups])

    async def ask(self, code: int, **fields: object) -> Command:
        """The answer to a request; field values are written as text, those that are None are left out."""
        return await self.tool.answer(Command(code, next(_opaques), ext_fields=as_text(fields)).encode())

    async def body(self, code: int, **fields: object) -> bytes:
        """The body of a successful answer."""
        answer = await self.ask(code, **fields)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert answer.body is not None
        return answer.body


@contextlib.asynccontextmanager
async def offset_broker(store: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[OffsetBroker]:
    """Such a part of a broker, with settings for it and for its store."""
    made: list[OffsetBroker] = []

    def add(broker: ClientBroker) -> dict[int, Handler]:
        made.append(OffsetBroker(broker, **(store or {})))
        return made[0].handlers

    async with client_broker(add, **{"broker_name": "broker-w", **settings}) as broker, broker.client() as tool:
        made[0].tool = tool
        yield made[0]
        made[0].store.close()


def exchanges(scenario: str, *codes: int) -> Iterator[tuple[Captured, Captured]]:
    """The requests with these codes and the answers that a real broker gave."""
    requests: dict[tuple[int, bool, int], Captured] = {}
    for frame in captured(scenario):
        key = frame.connection, frame.to_server, frame.header["opaque"]
        if not frame.is_response:
            requests[key] = frame
            continue
        request = requests.pop((key[0], not key[1], key[2]), None)
        if request is not None and request.code in codes:
            yield request, frame


def take_over_captured_messages(broker: OffsetBroker) -> None:
    """Make topic and messages of the scenario ``java_json_18_query_view``, at the places that they had there."""
    broker.add_topic("T_query")
    both = next(answer for request, answer in exchanges(QUERIES, 12) if request.ext_fields["key"] == "qkey1")
    assert len(both.frame[2]) == both.body_size > 0
    start = 79080
    smallest = broker.store.append(StoredMessage("Before", 0, b"")).size
    broker.store.append(StoredMessage("Before", 0, b"x" * (start - 2 * smallest)))
    broker.store.append_raw(both.frame[2], start)
    broker.store.catch_up()
