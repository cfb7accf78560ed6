"""Real name servers and brokers inside a test's own process, up in a few milliseconds.

In a coroutine they run on its loop::

    async with LocalCluster() as cluster:
        producer = aio.Producer(cluster.name_server, group="orders")
        ...
        assert [message.body for message in cluster.messages("orders")] == [b"42"]

In plain code they run in a thread of their own, and the same verbs wait for what they ask (``ThreadCluster``)::

    with LocalCluster(brokers=2) as cluster:
        producer = Producer(cluster.name_server, group="orders")
"""

from __future__ import annotations

import asyncio
import importlib
import os
import shutil
import string
import tempfile
from typing import TYPE_CHECKING, Any, Literal, Self

from orbitmq.store import LocalDisk
from orbitmq.testing import cluster_views
from orbitmq.testing.cluster_nodes import BrokerNode, NameServerNode
from orbitmq.testing.simulation.disk import MemoryDisk
from orbitmq.testing.simulation.loop_clock import LoopClock
from orbitmq.testing.simulation.switched_disk import SwitchedDisk

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Mapping

    from orbitmq.broker import Broker
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.testing.cluster_thread import ThreadCluster
    from orbitmq.testing.controlled_node import ControlledNode
    from orbitmq.testing.replica_link import ReplicaLink
    from orbitmq.testing.simulation.loop_clock import MovableClock

MAX_SERVERS = len(string.ascii_lowercase)
"""Of each kind: their names end with a letter."""

MAX_REPLICAS = 10

SEED_STEP = 1_000_003
"""Between the seeds of the disks of a broker's replicas."""

PATIENCE = 10.0
"""Default seconds that a group has to consume everything."""


class LocalCluster:
    """Name servers ``name-server-a``, … and brokers ``broker-a``, … on free ports of this machine.

    ``settings`` are a broker's, by the keys of ``broker.conf``. Messages lie in memory (``disk="memory"``), in a
    ``directory``, which is kept, or with ``disk="local"`` and no directory in a temporary one, which is removed.

    With ``replicas=2`` each broker has a slave, ``broker-a-1``, which copies its log: ``cut`` and ``stall`` disturb
    that. ``brokerRole`` among the settings is that of the masters.

    With ``failover=True`` and three replicas or more a controller in the first name server decides which of them is
    the master (``master``); sends wait for the replicas in sync, two at least.

    Time runs as usual and is moved ahead by ``advance``; with ``clock=ManualClock()`` it stands still otherwise.
    ``seed`` decides what is left after a power cut.
    """

    def __init__(
        self,
        name_servers: int = 1,
        brokers: int = 1,
        replicas: int = 1,
        *,
        failover: bool = False,
        settings: Mapping[str, str] | None = None,
        directory: str | os.PathLike[str] | None = None,
        disk: Literal["memory", "local"] | None = None,
        clock: MovableClock | None = None,
        seed: int = 0,
    ) -> None:
        if not 1 <= replicas <= MAX_REPLICAS:
            raise ValueError(f"a broker of a local cluster has 1 to {MAX_REPLICAS} replicas, not {replicas}")
        for count, what in ((name_servers, "name servers"), (brokers, "brokers")):
            if not 0 <= count <= MAX_SERVERS:
                raise ValueError(f"a local cluster has up to {MAX_SERVERS} {what}, not {count}")
        if directory is not None and disk == "memory":
            raise ValueError("a directory is not in memory: leave out disk or directory")
        self._name_server_count = name_servers
        self._broker_count = brokers
        if failover and (name_servers == 0 or replicas == 1):
            raise ValueError("failover needs a name server, for the controller, and two replicas or more")
        self._replicas = replicas
        self._has_failover = failover
        self._settings = dict(settings or {})
        if replicas > 1:
            self._settings.setdefault("totalReplicas", str(replicas))
        self._directory = None if directory is None else os.path.abspath(directory)
        self._in_memory = disk != "local" and directory is None
        self._clock = clock
        self._seed = seed
        self._temporary: str | None = None
        self._name_servers: dict[str, NameServerNode] = {}
        self._brokers: dict[str, BrokerNode] = {}
        self._controlled: list[ControlledNode] = []
        """Those whose role a controller decides: all or none."""
        self._thread: ThreadCluster | None = None
        self._is_started = False

    # Where it is

    @property
    def name_server(self) -> str:
        """The addresses for clients: ``host:port``, several separated by semicolons."""
        return ";".join(node.address for node in self._name_servers.values())

    @property
    def names(self) -> list[str]:
        """All servers, running or not, name servers first."""
        return [*self._name_servers, *self._brokers]

    @property
    def clock(self) -> MovableClock:
        """The brokers' time."""
        assert self._clock is not None, "not started"
        return self._clock

    def address(self, name: str) -> str:
        """``host:port`` of a server, which it keeps."""
        return self._named(name).address

    def broker(self, name: str = "broker-a") -> Broker:
        """A broker that runs, for what has no verb here."""
        broker = self._broker_named(name).broker
        if broker is None:
            raise ValueError(f"{name} does not run: start it first")
        return broker

    def disk(self, name: str = "broker-a") -> MemoryDisk | LocalDisk:
        """The disk of a broker. One in memory fails on request (``MemoryDisk.fail``)."""
        return self._broker_named(name).disk.inner

    # Starting and stopping

    async def start(self, name: str | None = None) -> None:
        """Start everything, or one server that was stopped or killed: it has its old port and finds its disk.

        Raises ConfigError, StoreError, RemotingError.
        """
        if name is not None:
            await self._start_one(name)
            return
        if self._is_started:
            raise RuntimeError("a local cluster starts once; restart() its servers, or make another one")
        self._is_started = True
        if self._clock is None:
            self._clock = LoopClock(asyncio.get_running_loop().time)
        try:
            self._make_nodes()
            for server in self._name_servers.values():
                await server.start()
            await _all(broker.start(self.name_server) for broker in self._brokers.values())
            if self._has_failover:
                await self._until_elected()
        except BaseException:
            await self.stop()
            raise

    def _make_nodes(self) -> None:
        root = "/cluster"
        if not self._in_memory:
            if self._directory is None:
                self._temporary = tempfile.mkdtemp(prefix=f"orbitmq-{os.getpid()}-")
            root = self._directory or self._temporary or ""
        for letter in string.ascii_lowercase[: self._name_server_count]:
            name = f"name-server-{letter}"
            self._name_servers[name] = NameServerNode(
                *(name, f"{root}/{name}", self._new_disk(name)),
                has_controller=self._has_failover and letter == "a",
            )
        if self._has_failover:
            self._make_replicas(root)
            return
        for letter in string.ascii_lowercase[: self._broker_count]:
            name = f"broker-{letter}"
            self._brokers[name] = BrokerNode(
                name, f"{root}/{name}", self._new_disk(name), self._settings, self.clock
            )
        for master in list(self._brokers.values()):
            for broker_id in range(1, self._replicas):
                name = f"{master.name}-{broker_id}"
                disk = self._new_disk(name, broker_id)
                self._brokers[name] = BrokerNode(
                    *(name, f"{root}/{name}", disk, self._settings, self.clock), master=master, broker_id=broker_id
                )

    def _make_replicas(self, root: str) -> None:
        # Most clusters have no controller, and start faster without the code for one.
        from orbitmq.testing.controlled_node import ControlledNode  # noqa: PLC0415

        controller = next(iter(self._name_servers.values()))
        for letter in string.ascii_lowercase[: self._broker_count]:
            for number in range(self._replicas):
                group = f"broker-{letter}"
                name = f"{group}-{number}" if number else group
                disk = self._new_disk(name, number)
                node = ControlledNode(
                    *(name, group, f"{root}/{name}", disk, self._settings, self.clock),
                    lambda: controller.controller_address,
                )
                self._brokers[name] = node
                self._controlled.append(node)

    def _new_disk(self, name: str, broker_id: int = 0) -> SwitchedDisk:
        if not self._in_memory:
            return SwitchedDisk(LocalDisk())
        # Each has its own, so that the power of one fails without the others.
        letter = name.removesuffix(f"-{broker_id}")[-1]
        seed = self._seed * MAX_SERVERS + string.ascii_lowercase.index(letter) + broker_id * SEED_STEP
        return SwitchedDisk(MemoryDisk(seed, clock=self.clock, check_reservations=False))

    def master(self, group: str = "broker-a") -> str:
        """The server that is the master of a broker name now. Raises ValueError while there is none."""
        for name, node in self._brokers.items():
            if node.group == group and node.broker is not None and node.is_master:
                return name
        raise ValueError(f"{group} has no master at this moment")

    async def wait_until_in_sync(self, timeout: float = PATIENCE) -> None:  # noqa: ASYNC109
        """With failover, wait until each broker name has a master and all its replicas that run are in sync.

        Raises TimeoutError.
        """
        async with asyncio.timeout(timeout):
            await self._until_elected()

    async def _until_elected(self) -> None:
        groups = {node.group for node in self._controlled}
        while not all(map(self._is_in_sync, groups)):  # noqa: ASYNC110
            await asyncio.sleep(cluster_views.LOOK_SECONDS)

    def _is_in_sync(self, group: str) -> bool:
        running = [node for node in self._controlled if node.group == group and node.is_running]
        masters = [node for node in running if node.in_sync]
        return not running or (len(masters) == 1 and masters[0].in_sync == len(running))

    async def _start_one(self, name: str) -> None:
        if name in self._name_servers:
            server = self._name_servers[name]
            await server.start()
            await _all(broker.meet(server.address) for broker in self._brokers.values())
        else:
            await self._broker_named(name).start(self.name_server)

    async def stop(self, name: str | None = None) -> None:
        """Stop everything and remove what is temporary; or stop one server, which may be started again."""
        if name is not None:
            await self._named(name).stop()
            return
        try:
            try:
                await _all(broker.stop() for broker in self._brokers.values())
                await _all(broker.close_link() for broker in self._brokers.values())
            finally:
                await _all(server.stop() for server in self._name_servers.values())
        finally:
            for one in self.names:
                self._named(one).close()
            if self._temporary is not None:
                shutil.rmtree(self._temporary, ignore_errors=True)
                self._temporary = None

    async def restart(self, name: str | None = None) -> None:
        """Stop a server, or all brokers, in an orderly way and start it again."""
        for one in self._or_all_brokers(name):
            await self.stop(one)
            await self.start(one)

    async def kill(self, name: str | None = None) -> None:
        """Cut the power of a server, or of all brokers: connections break, nothing is sent or saved any more.

        What the disk had not synced is lost, torn or there, as the seed decides; so under ASYNC_FLUSH are messages
        of the last half second. A store in a directory keeps all that was written: there it is as ``kill -9``.
        ``start`` starts it again.
        """
        await _all(self._named(one).kill() for one in self._or_all_brokers(name))

    def pause(self, name: str = "broker-a") -> None:
        """Let a broker hang until ``resume``: it reads nothing, from clients, slaves or its master, and nobody is
        disconnected. Its timers go on."""
        self._hold(name, is_held=True)

    def resume(self, name: str = "broker-a") -> None:
        """End ``pause``. What was sent to the broker meanwhile is processed."""
        self._hold(name, is_held=False)

    def _hold(self, name: str, *, is_held: bool) -> None:
        self.broker(name)
        node = self._broker_named(name)
        node.hold(is_held=is_held)
        for one in self._brokers.values():
            is_its = one is node or (node.broker_id == 0 and one.group == node.group)
            if one.link is not None and is_its:
                (one.link.stall if is_held else one.link.heal)()

    # Replication

    def cut(self, one: str, other: str) -> None:
        """Cut the HA connection between a slave and its master, until ``heal``; clients reach both."""
        self._link(one, other).cut()

    def stall(self, one: str, other: str) -> None:
        """Let nothing through between a slave and its master, without closing their connection, until ``heal``."""
        self._link(one, other).stall()

    def heal(self, one: str, other: str) -> None:
        """End ``cut`` and ``stall``."""
        self._link(one, other).heal()

    def _link(self, one: str, other: str) -> ReplicaLink:
        if self._has_failover:
            raise ValueError("with failover only whole servers fail here: pause or kill one")
        nodes = sorted((self._broker_named(one), self._broker_named(other)), key=lambda node: node.broker_id)
        link = nodes[1].link
        if link is None or nodes[0].name != nodes[1].group:
            raise ValueError(f"{one} and {other} are not a master and one of its slaves")
        return link

    async def wait_until_replicated(self, timeout: float = PATIENCE) -> None:  # noqa: ASYNC109
        """Wait until each slave that runs has the log of its master. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while any(map(self._is_behind, self._brokers.values())):  # noqa: ASYNC110
                await asyncio.sleep(cluster_views.LOOK_SECONDS)

    def _is_behind(self, node: BrokerNode) -> bool:
        master = next(
            (one.broker for one in self._brokers.values() if one.group == node.group and one.is_master), None
        )
        if node.broker is None or master is None or node.broker is master:
            return False
        store = node.broker.store
        return store.log.end != master.store.log.end or store.dispatcher.position < store.log.end

    def _or_all_brokers(self, name: str | None) -> list[str]:
        return list(self._brokers) if name is None else [name]

    def _named(self, name: str) -> NameServerNode | BrokerNode:
        return self._name_servers.get(name) or self._broker_named(name)

    def _broker_named(self, name: str) -> BrokerNode:
        node = self._brokers.get(name)
        if node is None:
            raise ValueError(f"there is no such server as {name!r} here; there are {', '.join(self.names)}")
        return node

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def __enter__(self) -> ThreadCluster:
        from orbitmq.testing.cluster_thread import ThreadCluster  # noqa: PLC0415 - each of the two makes the other

        thread = ThreadCluster(self)
        thread.start()
        self._thread = thread
        return thread

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.stop()

    # Time

    async def advance(self, seconds: float) -> None:
        """Let time pass for the brokers, at once. Messages whose time has come are delivered on return.

        After half a minute (``transactionCheckInterval``) brokers check open transactions with their producers.
        Clients have their own time; their heartbeats count as sent meanwhile.
        """
        ms = round(seconds * 1000)
        await _all(broker.before_time_passes() for broker in self._brokers.values())
        self.clock.advance(ms)
        await _all(broker.time_passed(ms) for broker in self._brokers.values())

    # Looking

    def _running(self) -> list[Broker]:
        """One of each name: the master, or a slave that runs while it does not."""
        found: dict[str, Broker] = {}
        for node in sorted(self._brokers.values(), key=lambda node: not node.is_master):
            if node.broker is not None:
                found.setdefault(node.group, node.broker)
        return list(found.values())

    def messages(self, topic: str) -> list[ReceivedMessage]:
        """All messages of a topic, in the order in which they were stored."""
        return cluster_views.messages(self._running(), topic)

    def dead_letters(self, group: str) -> list[ReceivedMessage]:
        """The messages that a consumer group has given up, under the topics that they were sent to."""
        return cluster_views.dead_letters(self._running(), group)

    def consumer_offsets(self, group: str) -> dict[MessageQueue, int]:
        """The committed offsets of a group."""
        return cluster_views.consumer_offsets(self._running(), group)

    async def wait_until_consumed(self, group: str, timeout: float = PATIENCE) -> None:  # noqa: ASYNC109
        """Wait until a group has consumed all there is for it. Raises TimeoutError, which says what is left.

        Messages that wait for another attempt are left as well: ``advance`` brings it nearer.
        """
        await cluster_views.wait_until_consumed(self._running, group, timeout)

    # Clients

    def producer(self, **options: Any) -> Any:
        """A producer of this cluster, to be started or used with ``async with``."""
        return importlib.import_module("orbitmq.aio").Producer(self.name_server, **options)

    def consumer(self, group: str, **options: Any) -> Any:
        """A consumer of this cluster, to be started or used with ``async with``."""
        return importlib.import_module("orbitmq.aio").Consumer(self.name_server, group=group, **options)


async def _all(works: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Do all of them to their end, whatever happens to one; then raise the first error, if there is one."""
    for ended in await asyncio.gather(*works, return_exceptions=True):
        if isinstance(ended, BaseException):
            raise ended
