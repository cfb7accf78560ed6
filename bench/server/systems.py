"""The servers that are measured: each a name server and a broker, as processes on this machine."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from bench.server.usage import Resident, processor_seconds, resident_memory
from peers import apache
from peers.frames import GET_BROKER_CLUSTER_INFO, GET_BROKER_CONFIG, ask
from peers.ports import free_port, is_listening
from peers.process import PeerError, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ORBITMQ = "OrbitMQ"
APACHE = "Apache RocketMQ"

QUEUES = 8

BROKERS_APART = 10
"""What lies between the ports of several brokers of ``orbitmq serve``."""

NO_SETTINGS: Mapping[str, str] = {}

_UPDATE_AND_CREATE_TOPIC = 17
_GET_ROUTE = 105
_START_SECONDS = 60
_STOP_SECONDS = 30
_POLL_SECONDS = 0.005
# Timers that came due while a server was halted run first.
_SETTLE_SECONDS = 0.3

# With a file a broker goes by the address of the machine, as Apache's does.
_ORBITMQ_SETTINGS = {"brokerIP1": "127.0.0.1"}
APACHE_HEAP = ("-Xms2g", "-Xmx2g", "-XX:MaxDirectMemorySize=1g")
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
        self.store = Path()
        """Where the broker keeps its messages."""
        self._processes = processes
        self._broker = processes[-1]

    def make_topic(self, topic: str, queues: int = QUEUES) -> None:
        """Make a topic and wait until clients can find it."""
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
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
        """A halted server runs within the block."""
        self.resumed = time.time()
        self._signal(signal.SIGCONT)
        time.sleep(_SETTLE_SECONDS)
        try:
            yield
        except BaseException:
            # Halted for the loads that follow; if its process has ended, its next turn reports that.
            with contextlib.suppress(PeerError):
                self.halt()
            raise
        self.halt()

    def beside(self, address: str, broker_name: str) -> Server:
        """The same processes, with another of their brokers to talk to."""
        other = Server(self.name, self._processes, self.nameserver, address)
        other.broker_name = broker_name
        return other

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


def start_orbitmq(
    home: Path,
    settings: Mapping[str, str] = NO_SETTINGS,
    *,
    opened: Callable[[str], None] | None = None,
    patience: float = _START_SECONDS,
    brokers: int = 1,
    name: str = ORBITMQ,
    package: Path | None = None,
) -> Server:
    """``orbitmq serve``: name server and broker in one process, with these properties in its ``broker.conf``.

    ``opened`` is called with the broker's address at the moment when its port is open. Several brokers have a
    process each, and listen ``BROKERS_APART`` from each other; the one that is talked to is the first.
    ``package`` is a folder with another version of the package, which is run instead of this one under ``name``.
    """
    nameserver_port = free_port()
    others = (BROKERS_APART * number + distance for number in range(1, brokers) for distance in (-2, 0, 1))
    broker_port = free_port(-2, 1, *others)
    home.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "orbitmq", "serve", "--data", str(home / "data")]
    command += ["--nameserver-port", str(nameserver_port), "--broker-port", str(broker_port)]
    if brokers > 1:
        command += ["--brokers", str(brokers)]
    if settings:
        command += ["--conf", str(_written(home / "broker.conf", _ORBITMQ_SETTINGS | dict(settings)))]
    environment = {} if package is None else {"PYTHONPATH": str(package)}
    return started(
        name,
        [],
        lambda: PeerProcess("orbitmq serve", command, home=home, environment=environment),
        f"127.0.0.1:{nameserver_port}",
        f"127.0.0.1:{broker_port}",
        home / "data" / "store",
        opened,
        patience,
    )


def start_apache(
    home: Path,
    settings: Mapping[str, str] = NO_SETTINGS,
    *,
    opened: Callable[[str], None] | None = None,
    patience: float = _START_SECONDS,
) -> Server:
    """Apache's name server and, as a process of its own, its broker with a heap of 2 GiB.

    The properties win over those that it has here in any case.
    """
    return start_apache_with((), home, settings, opened=opened, patience=patience)


def start_apache_with(
    flags: Sequence[str],
    home: Path,
    settings: Mapping[str, str] = NO_SETTINGS,
    *,
    opened: Callable[[str], None] | None = None,
    patience: float = _START_SECONDS,
) -> Server:
    """The same with these options of the broker's JVM."""
    nameserver = f"127.0.0.1:{free_port()}"
    name_process = java_server(
        "Apache name server",
        "org.apache.rocketmq.namesrv.NamesrvStartup",
        (),
        {"listenPort": nameserver.rpartition(":")[2]},
        ("-Xms256m", "-Xmx256m"),
        home / "nameserver",
    )
    name_process.wait_until(lambda: is_listening(nameserver), what="listening", seconds=_START_SECONDS)
    port, broker_home = apache.free_broker_port(), home / "broker"
    properties = {
        **_APACHE_SETTINGS,
        **settings,
        "listenPort": str(port),
        "storePathRootDir": str(broker_home / "store"),
        "storePathCommitLog": str(broker_home / "store" / "commitlog"),
    }
    return started(
        APACHE,
        [name_process],
        lambda: java_server(
            "Apache broker",
            "org.apache.rocketmq.broker.BrokerStartup",
            ("-n", nameserver),
            properties,
            (*APACHE_HEAP, *flags),
            broker_home,
        ),
        nameserver,
        f"127.0.0.1:{port}",
        broker_home / "store",
        opened,
        patience,
    )


def java() -> str:
    """The Java of ``JAVA_HOME``, or the first on the path."""
    home = os.environ.get("JAVA_HOME")
    return (home and shutil.which("java", path=f"{home}/bin")) or shutil.which("java") or "java"


def java_server(
    name: str,
    main: str,
    arguments: Sequence[str],
    settings: Mapping[str, str],
    heap: Sequence[str],
    home: Path,
) -> PeerProcess:
    home.mkdir(parents=True, exist_ok=True)
    conf = _written(home / "server.conf", settings)
    command = [java(), *heap, *_APACHE_FLAGS, f"-Duser.home={home}", "-cp", apache.class_path()]
    command += [main, *arguments, "-c", str(conf)]
    return PeerProcess(name, command, home=home, environment={"ROCKETMQ_HOME": str(home)})


def _written(path: Path, settings: Mapping[str, str]) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
    return path


def started(
    name: str,
    others: list[PeerProcess],
    start_broker: Callable[[], PeerProcess],
    nameserver: str,
    address: str,
    store: Path,
    opened: Callable[[str], None] | None,
    patience: float,
) -> Server:
    """Start the broker's process with a look at the clock, and wait until clients could use it."""
    with contextlib.ExitStack() as undo:
        for process in others:
            undo.callback(process.kill)
        began = time.monotonic()
        broker = start_broker()
        undo.callback(broker.kill)
        while not is_listening(address):
            if not broker.running or time.monotonic() - began > patience:
                raise PeerError(f"{name} does not listen\n{broker.quote()}")
            time.sleep(_POLL_SECONDS)
        server = Server(name, [*others, broker], nameserver, address)
        server.start_seconds = time.monotonic() - began
        server.store = store
        if opened is not None:
            opened(address)
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
