"""The servers that are measured: each a name server and a broker, as processes on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from typing import TYPE_CHECKING, Self

from bench.server.usage import Resident, processor_seconds, resident_memory
from peers import apache
from peers.frames import GET_BROKER_CLUSTER_INFO, GET_BROKER_CONFIG, ask
from peers.ports import free_port, is_listening
from peers.process import PeerError, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

ORBITMQ = "OrbitMQ"
APACHE = "Apache RocketMQ"

QUEUES = 8

_UPDATE_AND_CREATE_TOPIC = 17
_GET_ROUTE = 105
_START_SECONDS = 60
_STOP_SECONDS = 30
_POLL_SECONDS = 0.005
# Timers that came due while a server was halted run first.
_SETTLE_SECONDS = 0.3

_APACHE_HEAP = ("-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=1g")
_APACHE_FLAGS = (
    # The collector and its settings are those of Apache's own start script.
    "-XX:+UseG1GC",
    "-XX:G1HeapRegionSize=16m",
    "-XX:G1ReservePercent=25",
    "-XX:InitiatingHeapOccupancyPercent=30",
    "-XX:SoftRefLRUPolicyMSPerMB=0",
    "-XX:-UsePerfData",
    # The broker unmaps its files by way of JDK internals, which Java 17 closed.
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)
_APACHE_SETTINGS = {
    "brokerClusterName": "DefaultCluster",
    "brokerName": "broker-a",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "brokerRole": "ASYNC_MASTER",
    "flushDiskType": "ASYNC_FLUSH",
    "autoCreateTopicEnable": "true",
    "fileReservedTime": "876000",
    # On a busy machine the default of 200 ms makes it refuse requests that merely waited.
    "waitTimeMillsInSendQueue": "30000",
    # Without these two a service of 5.5.0 spins on a whole core after the first transaction.
    "transactionOpBatchInterval": "3600000",
    "transactionOpMsgMaxSize": "1",
}


class Server:
    """A running system; leaving it as a context kills it."""

    def __init__(self, name: str, processes: Sequence[PeerProcess], nameserver: str, address: str) -> None:
        self.name = name
        self.nameserver = nameserver
        self.address = address
        self.start_seconds = 0.0
        """From the start of the broker's process until its port is open."""
        self.resumed = 0.0
        """When its last turn began, by the clock of the day."""
        self.broker_name = ""
        self._processes = processes
        self._broker = processes[-1]

    def make_topic(self, topic: str) -> None:
        """Make a topic and wait until clients can find it."""
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(QUEUES),
            "writeQueueNums": str(QUEUES),
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "order": "false",
        }
        answer = ask(self.address, _UPDATE_AND_CREATE_TOPIC, fields)
        if answer.code:
            raise PeerError(f"{self.name} made no topic: code {answer.code}, {answer.remark}")
        self._broker.wait_until(
            lambda: ask(self.nameserver, _GET_ROUTE, {"topic": topic}).code == 0,
            what=f"registered with topic {topic}",
            seconds=_START_SECONDS,
        )

    @property
    def pid(self) -> int:
        """The broker's process, which leads a group of its own."""
        return self._broker.pid

    def processor_seconds(self) -> float:
        return processor_seconds(self.pid)

    def memory(self) -> Resident:
        return resident_memory(self.pid)

    def halt(self) -> None:
        """Keep it from running outside its turns."""
        self._signal(signal.SIGSTOP)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """A halted server runs within the block. If that fails the run is over, and nobody halts it again."""
        self.resumed = time.time()
        self._signal(signal.SIGCONT)
        time.sleep(_SETTLE_SECONDS)
        yield
        self.halt()

    def quote(self) -> str:
        return "\n".join(process.quote() for process in self._processes)

    def _signal(self, number: signal.Signals) -> None:
        for process in self._processes:
            if not process.running:
                raise PeerError(f"{process.name} has ended\n{process.quote()}")
            os.killpg(process.pid, number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.kill()


def start_orbitmq(home: Path) -> Server:
    """``orbitmq serve``: name server and broker in one process."""
    nameserver_port, broker_port = free_port(), apache.free_broker_port()
    home.mkdir(parents=True)
    command = [sys.executable, "-m", "orbitmq", "serve", "--data", str(home / "data")]
    command += ["--nameserver-port", str(nameserver_port), "--broker-port", str(broker_port)]
    return _started(
        ORBITMQ,
        [],
        lambda: PeerProcess("orbitmq serve", command, home=home, environment={}),
        f"127.0.0.1:{nameserver_port}",
        f"127.0.0.1:{broker_port}",
    )


def start_apache(home: Path) -> Server:
    """Apache's name server and, as a process of its own, its broker with a heap of 2 GiB."""
    nameserver = f"127.0.0.1:{free_port()}"
    name_process = _java_server(
        "Apache name server",
        "org.apache.rocketmq.namesrv.NamesrvStartup",
        (),
        {"listenPort": nameserver.rpartition(":")[2]},
        ("-Xms256m", "-Xmx256m"),
        home / "nameserver",
    )
    name_process.wait_until(lambda: is_listening(nameserver), what="listening", seconds=_START_SECONDS)
    port, broker_home = apache.free_broker_port(), home / "broker"
    settings = _APACHE_SETTINGS | {
        "listenPort": str(port),
        "storePathRootDir": str(broker_home / "store"),
        "storePathCommitLog": str(broker_home / "store" / "commitlog"),
    }
    return _started(
        APACHE,
        [name_process],
        lambda: _java_server(
            "Apache broker",
            "org.apache.rocketmq.broker.BrokerStartup",
            ("-n", nameserver),
            settings,
            _APACHE_HEAP,
            broker_home,
        ),
        nameserver,
        f"127.0.0.1:{port}",
    )


def java() -> str:
    """The Java of ``JAVA_HOME``, or the first on the path."""
    home = os.environ.get("JAVA_HOME")
    return (home and shutil.which("java", path=f"{home}/bin")) or shutil.which("java") or "java"


def _java_server(
    name: str,
    main: str,
    arguments: Sequence[str],
    settings: dict[str, str],
    heap: Sequence[str],
    home: Path,
) -> PeerProcess:
    home.mkdir(parents=True)
    conf = home / "server.conf"
    conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
    command = [java(), *heap, *_APACHE_FLAGS, f"-Duser.home={home}", "-cp", apache.class_path()]
    command += [main, *arguments, "-c", str(conf)]
    return PeerProcess(name, command, home=home, environment={"ROCKETMQ_HOME": str(home)})


def _started(
    name: str,
    others: list[PeerProcess],
    start_broker: Callable[[], PeerProcess],
    nameserver: str,
    address: str,
) -> Server:
    """Start the broker's process with a look at the clock, and wait until clients could use it."""
    with contextlib.ExitStack() as undo:
        for process in others:
            undo.callback(process.kill)
        began = time.monotonic()
        broker = start_broker()
        undo.callback(broker.kill)
        while not is_listening(address):
            if not broker.running or time.monotonic() - began > _START_SECONDS:
                raise PeerError(f"{name} does not listen\n{broker.quote()}")
            time.sleep(_POLL_SECONDS)
        server = Server(name, [*others, broker], nameserver, address)
        server.start_seconds = time.monotonic() - began
        broker.wait_until(lambda: _answers(address), what="answering", seconds=_START_SECONDS)
        broker.wait_until(
            lambda: _name_at(nameserver, address) is not None, what="registered", seconds=_START_SECONDS
        )
        server.broker_name = _name_at(nameserver, address) or ""
        undo.pop_all()
    return server


def _answers(address: str) -> bool:
    try:
        return ask(address, GET_BROKER_CONFIG).code == 0
    except OSError:
        return False


def _name_at(nameserver: str, address: str) -> str | None:
    """The name of the broker at this address, once the name server knows it."""
    table = ask(nameserver, GET_BROKER_CLUSTER_INFO).body.decode("utf-8", "replace")
    if f'"{address}"' not in table:
        return None
    found = re.search(r'"?brokerName"?:"([^"]+)"', table)
    return found[1] if found else None
