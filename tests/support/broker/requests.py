"""Requests of producers and consumers, with defaults for what a test does not care about."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Any

from orbitmq.protocol.codes import RequestCode, ResponseCode, SerializeType
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.flags import ONEWAY, PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.protocol.message.properties import encode, parse
from orbitmq.protocol.message.record import iter_records
from orbitmq.protocol.versions import CURRENT_VERSION
from peers.ports import endpoint
from support.broker.broker_harness import BrokerPeer, running_broker
from support.broker.client_registry_harness import consumer, heartbeat, subscription
from support.nameserver_harness import as_text

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from orbitmq.broker import Broker
    from orbitmq.protocol.bodies import SubscriptionData
    from orbitmq.protocol.message.record import Record

TOPIC = "TopicTest"
PRODUCERS = "PG_test"
CONSUMERS = "CG_test"
BORN = 1_699_999_999_000
HOLD_MS = 15_000
"""How long Java's clients let a pull wait."""

SEND_NAMES = {
    "producerGroup": "a",
    "topic": "b",
    "defaultTopic": "c",
    "defaultTopicQueueNums": "d",
    "queueId": "e",
    "sysFlag": "f",
    "bornTimestamp": "g",
    "flag": "h",
    "properties": "i",
    "reconsumeTimes": "j",
    "unitMode": "k",
    "maxReconsumeTimes": "l",
    "batch": "m",
    "bname": "n",
}
"""The fields of a send by their long names and by the letters of the second version."""

_opaques = itertools.count(1_000_000)


def send_request(
    body: bytes | None = b"hello",
    topic: str = TOPIC,
    properties: Mapping[str, str] | str | None = None,
    *,
    code: int = RequestCode.SEND_MESSAGE_V2,
    oneway: bool = False,
    binary: bool = False,
    version: int = CURRENT_VERSION,
    **fields: object,
) -> Command:
    """A send as clients make it; ``fields`` are named as in the first version."""
    given: dict[str, object] = {
        "producerGroup": PRODUCERS,
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": BORN,
        "flag": 0,
        "properties": properties if isinstance(properties, str) else encode(properties or {}).decode(),
        "reconsumeTimes": 0,
        "unitMode": False,
        "batch": code == RequestCode.SEND_BATCH_MESSAGE,
        **fields,
    }
    if code != RequestCode.SEND_MESSAGE:
        given = {SEND_NAMES[name]: value for name, value in given.items()}
    return _command(code, as_text(given), body, oneway=oneway, binary=binary, version=version)


def pull_request(
    offset: int = 0,
    topic: str = TOPIC,
    group: str = CONSUMERS,
    *,
    code: int = RequestCode.PULL_MESSAGE,
    queue_id: int = 0,
    most: int = 32,
    hold_ms: int = 0,
    sys_flag: int = PULL_SUBSCRIPTION,
    tags: str | None = "*",
    binary: bool = False,
    **fields: object,
) -> Command:
    """A pull that carries its subscription, as those of clients other than Java's do. It waits if ``hold_ms``."""
    given: dict[str, object] = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": queue_id,
        "queueOffset": offset,
        "maxMsgNums": most,
        "sysFlag": sys_flag | (PULL_SUSPEND if hold_ms else 0),
        "commitOffset": 0,
        "suspendTimeoutMillis": hold_ms,
        "subscription": tags,
        "subVersion": 0,
        **fields,
    }
    return _command(code, as_text(given), None, binary=binary)


def _command(
    code: int,
    fields: dict[str, str],
    body: bytes | None,
    *,
    oneway: bool = False,
    binary: bool = False,
    version: int = CURRENT_VERSION,
) -> Command:
    return Command(
        code,
        next(_opaques),
        ext_fields=fields,
        body=body,
        flag=ONEWAY if oneway else 0,
        version=version,
        serialize_type=SerializeType.ROCKETMQ if binary else SerializeType.JSON,
    )


class Talker(BrokerPeer):
    """A client that sends and pulls."""

    async def says(self, request: Command) -> Command:
        """The answer to a request."""
        return await self.answer_to(self.posts(request))

    def posts(self, request: Command) -> int:
        """Send a request; its opaque, by which the answer is fetched later."""
        self.send(request.encode())
        return request.opaque

    async def sends(self, *args: Any, **given: Any) -> Command:
        """The answer to a send, whatever it is."""
        return await self.says(send_request(*args, **given))

    async def stores(self, *args: Any, **given: Any) -> Command:
        """The answer to a send that has to be taken."""
        answer = await self.sends(*args, **given)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def pulls(self, *args: Any, **given: Any) -> Command:
        return await self.says(pull_request(*args, **given))

    async def sends_back(self, offset: int, group: str = CONSUMERS, level: int = 0, **given: Any) -> Command:
        version = given.pop("version", CURRENT_VERSION)
        fields = as_text({"offset": offset, "group": group, "delayLevel": level, **given})
        return await self.says(_command(RequestCode.CONSUMER_SEND_MSG_BACK, fields, None, version=version))

    async def subscribes(self, *given: SubscriptionData, group: str = CONSUMERS, **more: Any) -> None:
        """Send the heartbeat of a consumer; by default of the whole test topic."""
        data = consumer(group, *(given or (subscription(TOPIC),)), **more)
        answer = await self.asks(RequestCode.HEART_BEAT, heartbeat("client@1", data).encode())
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def pass_time(self) -> None:
        """Whatever the broker was sent before is answered, unless it waits for something."""
        await self.asks(RequestCode.GET_MAX_OFFSET, topic=TOPIC, queueId=0)


@contextlib.asynccontextmanager
async def talking_to(broker: Broker, *, vip: bool = False) -> AsyncIterator[Talker]:
    """A client of a broker, which leaves at the end."""
    async with Talker.of(broker, vip=vip) as client:
        assert isinstance(client, Talker)
        yield client


@contextlib.asynccontextmanager
async def talking_at(address: str) -> AsyncIterator[Talker]:
    """A client of whatever listens there, which leaves at the end."""
    client = Talker(*await asyncio.open_connection(*endpoint(address), limit=1 << 26))
    try:
        yield client
    finally:
        await client.leave()


@contextlib.asynccontextmanager
async def talk(*args: Any, **settings: Any) -> AsyncIterator[tuple[Broker, Talker]]:
    """A broker with a client; ``settings`` have Java's keys."""
    async with running_broker(*args, **settings) as broker, talking_to(broker) as client:
        yield broker, client


def stored(broker: Broker, topic: str = TOPIC, queue_id: int = 0) -> list[Record]:
    """All records of a queue, as they lie in the log."""
    found: list[Record] = []
    while (result := broker.store.get(topic, queue_id, len(found))).slices:
        found += [record for piece in result.slices for record in iter_records(bytes(piece))]
    return found


def pulled(answer: Command) -> list[Record]:
    """The messages in the answer to a pull."""
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    return list(iter_records(answer.body or b""))


def bodies(answer: Command) -> list[bytes]:
    return [record.body for record in pulled(answer)]


def properties_of(record: Record) -> dict[str, str]:
    return parse(record.properties)
