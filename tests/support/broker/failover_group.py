"""A broker group in controller mode: brokers as processes, clients that keep what was acknowledged, and the proof.

Every acknowledged message must be at its queue offset in the store of every broker that is left at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from typing import TYPE_CHECKING, Self

from orbitmq.aio import Message, Producer, SendStatus
from orbitmq.broker import load_settings
from orbitmq.client.errors import OrbitMQError
from orbitmq.nameserver import NameServer, NameServerConfig
from orbitmq.protocol.bodies.replication import BrokerReplicasInfo, EpochEntryCache, ReplicasInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingClient, RemotingError
from orbitmq.store import LocalDisk, MessageStore
from peers.frames import ask
from peers.ports import free_port
from support.broker.process_network import ANNOUNCED, CLIENTS, CONTROLLER, NAME_SERVER
from support.cli.server_process import SMALL_FILES, ServerProcess, orbitmq
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from support.broker.process_network import ProcessNetwork

TOPIC = "orders"
SENDERS = 4


class Ledger:
    """What was acknowledged, and where it is."""

    def __init__(self) -> None:
        self.placed: dict[tuple[str, int, int], bytes] = {}
        self.refused = 0
        self.twice: list[tuple[str, int, int]] = []
        """Queue offsets that two messages were acknowledged at: two masters, of which one loses its message."""
        self.bodies = (b"%d" % number for number in itertools.count())
        self.on_acknowledged: Callable[[str, str], None] = lambda client, message_id: None
        """Told the client and the broker's id of each message."""

    def acknowledged(self, place: tuple[str, int, int], body: bytes, client: str, message_id: str) -> None:
        if self.placed.setdefault(place, body) != body:
            self.twice.append(place)
        self.on_acknowledged(client, message_id)


class Member:
    """One broker of the group: a process that is started again on the same store and port."""

    def __init__(self, home: Path, *settings: str, network: ProcessNetwork | None = None) -> None:
        home.mkdir(parents=True)
        self.home = home
        self.name = home.name
        self.port = free_port(-2, 1)
        self.announced = f"{HOST if network is None else ANNOUNCED}:{self.port}"
        """Address that the controller, clients and the other members have."""
        self._network = network
        self._settings = (*settings, f"listenPort={self.port}", f"storePathRootDir={home / 'store'}")
        self.process: ServerProcess | None = None
        self._exit = contextlib.AsyncExitStack()

    @property
    def address(self) -> str:
        """Address at which tests ask it, whatever is cut."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> str:
        """What it has logged since its last start."""
        return "" if self.process is None else self.process.errors

    async def start(self) -> None:
        if self._network is not None:
            for port in (self.port, self.port + 1):
                await self._network.relay(self.name, port)
        conf = self.home / "broker.conf"
        conf.write_text(SMALL_FILES + "\n".join(self._settings) + "\n")
        self.process = await self._exit.enter_async_context(orbitmq(self.home, "broker", "-c", conf))
        if self._network is not None:
            self._network.name(self.process.pid, self.name)
        await self.process.says(r"listens on (\S+),")

    def tell(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.tell(number)

    async def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        if self.process is not None:
            await self.process.stopped(number)
        await self.clean_up()

    async def clean_up(self) -> None:
        self.process = None
        await self._exit.aclose()
        self._exit = contextlib.AsyncExitStack()

    @contextlib.contextmanager
    def store(self) -> Iterator[MessageStore]:
        """The store, once the process has ended."""
        settings, _ = load_settings(LocalDisk(), str(self.home / "broker.conf"))
        with MessageStore.open(settings.store) as store:
            yield store


class FailoverGroup:
    """A name server in this process, and brokers that one controller decides about."""

    def __init__(
        self,
        folder: Path,
        controller: str,
        count: int,
        *settings: str,
        name: str = "g",
        network: ProcessNetwork | None = None,
    ) -> None:
        """``controller`` has the addresses of all, separated by ``;``.

        With a ``network`` members reach each other, the controller and the name server through its relays.
        """
        self.controller = controller
        self.name = name
        self._network = network
        self.shared: tuple[str, ...] = ()
        """Settings of every member."""
        self.ledger = Ledger()
        self.pause = 0.0
        """Seconds between two sends of a sender that follows the route."""
        self._folder = folder
        self._settings = settings
        self._count = count
        self._names = NameServer(NameServerConfig(listen_port=0, bind_address=HOST))
        self.members: list[Member] = []

    async def __aenter__(self) -> Self:
        await self._names.start()
        self.name_server = f"{HOST}:{self._names.port}"
        host, controller, name_server = HOST, self.controller, self.name_server
        if self._network is not None:
            host = ANNOUNCED
            await self._network.relay(NAME_SERVER, self._names.port)
            controller, name_server = self.controller.replace(HOST, host), name_server.replace(HOST, host)
        self.shared = shared = (
            *("brokerClusterName=c", f"brokerName={self.name}", f"bindAddress={HOST}"),
            *(f"brokerIP1={host}", f"brokerIP2={host}"),
            *("enableControllerMode=true", f"controllerAddr={controller}", f"namesrvAddr={name_server}"),
            *("allAckInSyncStateSet=true", "autoCreateTopicEnable=true", *self._settings),
        )
        self.members = [
            Member(self._folder / f"broker-{number}", *shared, network=self._network)
            for number in range(self._count)
        ]
        for member in self.members:
            await member.start()
        await eventually(lambda: len(self.in_sync()) == self._count)
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in self.members:
            if member.process is not None:
                with contextlib.suppress(ProcessLookupError):
                    member.tell(signal.SIGCONT)
                    member.tell(signal.SIGKILL)
            await member.clean_up()
        await self._names.stop()

    # The controller's view

    def _group(self) -> ReplicasInfo:
        body = b'["%s"]' % self.name.encode()
        addresses = self.controller.split(";")
        info = BrokerReplicasInfo()
        for address in addresses:
            # Of several one may be lost.
            with contextlib.suppress(*[OSError][: len(addresses) - 1]):
                answer = ask(address, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
                if answer.body:
                    info = BrokerReplicasInfo.decode(answer.body)
        return info.replicas_info_table.get(self.name) or ReplicasInfo()

    def in_sync(self) -> list[str]:
        """Addresses of the replicas in the sync state set that are alive."""
        return [one.broker_address or "" for one in self._group().in_sync_replicas if one.alive]

    def master_address(self) -> str:
        return self._group().master_address or ""

    def master(self) -> Member:
        """The broker that the controller names as the master."""
        address = self.master_address()
        return next(member for member in self.members if member.announced == address)

    async def master_other_than(self, old: Member) -> Member:
        """Wait until another broker is master."""
        await eventually(lambda: self.master_address() not in {"", old.announced})
        return self.master()

    def cut_off(self, member: Member, *, hears: bool = False, speaks: bool = False, alone: bool = False) -> None:
        """Cut a member off from the others and the controller; ``alone`` also from clients and name server.

        It may still hear them, or they it.
        """
        assert self._network is not None, "without a network"
        others = [CONTROLLER, *(one.name for one in self.members if one is not member)]
        others += [CLIENTS, NAME_SERVER] if alone else []
        if not speaks:
            self._network.cut((member.name, other) for other in others)
        if not hears:
            self._network.cut((other, member.name) for other in others)

    def heal(self) -> None:
        """Let everything through again."""
        assert self._network is not None, "without a network"
        self._network.heal()

    # Clients

    @contextlib.asynccontextmanager
    async def sending(self) -> AsyncIterator[None]:
        """Clients that follow the route send all the time."""
        async with Producer(self.name_server, group="p", send_msg_timeout=3) as producer:
            tasks = [asyncio.create_task(self._send(producer)) for _ in range(SENDERS)]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _send(self, producer: Producer) -> None:
        while True:
            body = next(self.ledger.bodies)
            try:
                sent = await producer.send(Message(TOPIC, body))
            except OrbitMQError:
                self.ledger.refused += 1
                await asyncio.sleep(0.02)
                continue
            if sent.status is SendStatus.SEND_OK:
                place = TOPIC, sent.queue.queue_id, sent.queue_offset
                self.ledger.acknowledged(place, body, "python", sent.offset_message_id)
            else:
                self.ledger.refused += 1
            await asyncio.sleep(self.pause)

    @contextlib.asynccontextmanager
    async def pinned_to(self, member: Member) -> AsyncIterator[None]:
        """Clients that stay with one broker, whatever the route says."""
        client = RemotingClient()
        tasks = [asyncio.create_task(self._send_to(member.address, client, number)) for number in range(SENDERS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()

    async def _send_to(self, address: str, client: RemotingClient, queue_id: int) -> None:
        while True:
            body = next(self.ledger.bodies)
            try:
                answer = await client.call(address, send_command(body, queue_id), 5)
            except RemotingError:
                self.ledger.refused += 1
                await asyncio.sleep(0.02)
                continue
            if answer.code == ResponseCode.SUCCESS:
                place = TOPIC, int(answer.ext_fields["queueId"]), int(answer.ext_fields["queueOffset"])
                self.ledger.acknowledged(place, body, "pinned", answer.ext_fields["msgId"])
            else:
                self.ledger.refused += 1
                await asyncio.sleep(0.005)

    async def acknowledges(self, count: int) -> None:
        """Wait until so many more messages were acknowledged."""
        wanted = len(self.ledger.placed) + count
        await eventually(lambda: len(self.ledger.placed) >= wanted)

    # The proof

    async def settle(self) -> None:
        """Wait until all replicas have the same, and end them."""
        await eventually(lambda: len(self.in_sync()) == len(self.members))
        await eventually(lambda: len({self.log_end(member) for member in self.members}) == 1)
        for member in [*(one for one in self.members if one is not self.master()), self.master()]:
            await member.end(signal.SIGKILL)

    def log_end(self, member: Member) -> int:
        answer = ask(member.address, RequestCode.GET_BROKER_EPOCH_CACHE)
        return EpochEntryCache.decode(answer.body).max_offset

    def check(self) -> None:
        """Nothing that was acknowledged is lost, at any replica, and their logs are the same."""
        assert not self.ledger.twice, self.ledger.twice[:5]
        logs = []
        for member in self.members:
            with member.store() as store:
                logs.append(log_bytes(store))
                for (topic, queue_id, offset), body in self.ledger.placed.items():
                    found = store.get(topic, queue_id, offset, 1)
                    assert body in b"".join(map(bytes, found.slices)), (member.home.name, queue_id, offset, body)
        size = min(map(len, logs))
        assert all(one[:size] == logs[0][:size] for one in logs), "the logs differ"


def send_command(body: bytes, queue_id: int) -> Command:
    fields = {
        "producerGroup": "pinned",
        "topic": TOPIC,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": "4",
        "queueId": str(queue_id),
        "sysFlag": "0",
        "bornTimestamp": "1700000000000",
        "flag": "0",
        "reconsumeTimes": "0",
    }
    return Command(RequestCode.SEND_MESSAGE, ext_fields=fields, body=body)


def log_bytes(store: MessageStore) -> bytes:
    log = store.log
    return b"".join(
        bytes(log.files.mapped(base).buffer[: min(log.end - base, log.file_size)]) for base in log.files.bases
    )
