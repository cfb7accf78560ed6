"""Brokers that answer sends as a test wants them to, known to a real name server."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from orbitmq.nameserver import NameServer, NameServerConfig
from orbitmq.protocol.bodies import TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.message.flags import ONEWAY
from orbitmq.testing import MemoryDisk
from support.nameserver_harness import RegisterRequest
from support.remoting_harness import HOST, RawPeer, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler, RemotingServer

TOPIC = "orders"
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
SILENCE = -1
"""In the place of a code: no answer at all."""
HANG_UP = -2


class PeerBroker:
    """A scripted broker: ``codes`` are its next answers, then it stores everything."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.codes: list[int] = []
        self.always: int | None = None
        self.sends: list[Command] = []
        self.senders: list[Connection] = []
        """The connection of each of ``sends``."""
        self.others: list[Command] = []
        self.held: list[tuple[Connection, Header, bytes]] = []
        """Answers that wait for ``let_go``, while ``holds``."""
        self.holds = False
        self.hangs = False
        """Requests other than sends get no answer."""
        self.server: RemotingServer

    @property
    def address(self) -> str:
        return f"{HOST}:{self.server.ports[0]}"

    @property
    def bodies(self) -> list[bytes]:
        return [send.body or b"" for send in self.sends]

    @property
    def handlers(self) -> dict[int, Handler]:
        others = (RequestCode.HEART_BEAT, RequestCode.UNREGISTER_CLIENT, RequestCode.GET_MAX_OFFSET)
        return {**dict.fromkeys(SENDS, self._send), **dict.fromkeys(others, self._other)}

    def _other(self, _: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        request = Command.of((serialize_type, b"", body), header)
        self.others.append(request)
        if self.hangs:
            return None
        fields = {"offset": "0"} if request.code == RequestCode.GET_MAX_OFFSET else {}
        return request.response(ResponseCode.SUCCESS, ext_fields=fields).encode()

    def _send(self, connection: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        request = Command.of((serialize_type, b"", body), header)
        self.sends.append(request)
        self.senders.append(connection)
        code = self.always if self.always is not None else self.codes.pop(0) if self.codes else 0
        if code == HANG_UP:
            connection.abort()
            return b""
        if code == SILENCE:
            return b"" if header[2] & ONEWAY else None
        answer = self._answer(request, code).encode()
        if self.holds:
            self.held.append((connection, header, answer))
            return None
        return answer

    def let_go(self) -> None:
        self.holds = False
        held, self.held = self.held, []
        for connection, header, answer in held:
            connection.answer(header, answer)

    def _answer(self, request: Command, code: int) -> Command:
        fields = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        if code in {0, 10, 11, 12}:
            place = len(self.sends) - 1
            fields |= {"msgId": f"{place:032X}", "queueId": request.ext_fields["e"], "queueOffset": str(place)}
            return request.response(code, ext_fields=fields)
        return request.response(code, ext_fields=fields, remark="not now")


@contextlib.asynccontextmanager
async def running_names() -> AsyncIterator[NameServer]:
    """A name server on a free port."""
    paths: dict[str, Any] = {"kv_config_path": "/ns/kvConfig.json", "config_store_path": "/ns/namesrv.properties"}
    server = NameServer(NameServerConfig(listen_port=0, bind_address=HOST, **paths), disk=MemoryDisk())
    await server.start()
    try:
        yield server
    finally:
        await server.stop(grace=0)


async def register(peer: RawPeer, name: str, address: str, *topics: TopicConfig, counter: int = 1) -> None:
    """Tell a name server of a broker, for as long as the peer stays."""
    # A broker that names one topic only is taken for one that tells of a change.
    registration = RegisterRequest(name=name, address=address, topics=(*topics, name), counter=counter)
    answer = await peer.ask(registration.request().encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark


@contextlib.asynccontextmanager
async def peer_brokers(*brokers: str, topic: str = TOPIC, queues: int = 2) -> AsyncIterator[Peers]:
    """A name server and such brokers, which serve a topic. Their names are ``broker-a`` and so on by default."""
    async with contextlib.AsyncExitStack() as stack:
        names = await stack.enter_async_context(running_names())
        peers = Peers(names)
        for name in brokers or ("broker-a", "broker-b"):
            broker = PeerBroker(name)
            broker.server = await stack.enter_async_context(serving(broker.handlers))
            peers.brokers.append(broker)
            peers.links[name] = await stack.enter_async_context(RawPeer.connected(names._server))
            await peers.serve(name, queues, topic)
        yield peers


class Peers:
    """What a producer of a test talks to."""

    def __init__(self, names: NameServer) -> None:
        self.names = names
        self.brokers: list[PeerBroker] = []
        self.links: dict[str, RawPeer] = {}
        """The brokers' connections to the name server."""
        self._counter = 0

    async def serve(self, name: str, queues: int, topic: str = TOPIC, address: str = "") -> None:
        """Let a broker tell the name server of its queues, or of another address."""
        self._counter += 1
        address = address or self.broker(name).address
        await register(self.links[name], name, address, TopicConfig(topic, queues, queues), counter=self._counter)

    def broker(self, name: str) -> PeerBroker:
        return next(broker for broker in self.brokers if broker.name == name)

    @property
    def name_server(self) -> str:
        return f"{HOST}:{self.names.port}"

    @property
    def sends(self) -> int:
        return sum(len(broker.sends) for broker in self.brokers)
