"""The unmodified Apache RocketMQ as a test peer: its jars, name server, broker and ``mqadmin``.

``available()`` says why it cannot be run here, if so: ask it first and skip the test with its answer.
Servers are context managers, and leaving one kills it. Call ``stop`` first where what it does at a clean
shutdown matters: that takes a broker nine seconds.
"""

from __future__ import annotations

import functools
import struct
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from peers.frames import (
    GET_BROKER_CLUSTER_INFO,
    GET_BROKER_CONFIG,
    GET_BROKER_RUNTIME_INFO,
    GET_METADATA_INFO,
    ask,
)
from peers.jdk import Jars, tool
from peers.ports import free_port, is_listening
from peers.process import PeerProcess, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

JARS = Jars("apache", Path(__file__).with_name("pom.xml"))

_JAVA_SOURCES = Path(__file__).with_name("java")
_START_SECONDS = 60
_STOP_SECONDS = 60
_COMMAND_SECONDS = 60
_CHECKPOINT_BYTES = 4096
_NO_SAMPLE = "NoSuchElementException"

_JVM_FLAGS = (
    "-Xms128m",
    "-Xmx512m",
    "-XX:MaxDirectMemorySize=512m",
    # A test is over before the optimising compiler pays, and the machine has other things to do.
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    # The broker unmaps its files by way of JDK internals, which Java 17 closed.
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
)

_BROKER_DEFAULTS = {
    "brokerClusterName": "DefaultCluster",
    "brokerId": "0",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    # Neither the age of a store nor a nearly full disk may delete what a test is about to read.
    "fileReservedTime": "876000",
    "diskMaxUsedSpaceRatio": "95",
    "diskSpaceWarningLevelRatio": "99",
    "diskSpaceCleanForciblyRatio": "99",
    # A busy machine makes the broker refuse sends that waited longer than this; the default is 200.
    "waitTimeMillsInSendQueue": "30000",
}


@functools.cache
def available() -> str | None:
    """None if Apache RocketMQ can be run here, otherwise the reason in one sentence.

    The first call fetches it, which takes about a minute; later runs find it in the cache. Test programs of ours
    that do not compile are no such reason, but a ``PeerError``.
    """
    reason = JARS.unavailable("Apache RocketMQ")
    if reason is None:
        class_path()
    return reason


def class_path() -> str:
    """The class path: Apache's jars and the test programs under ``java/``, fetched and compiled once."""
    programs = JARS.compiled(sorted(_JAVA_SOURCES.glob("*.java")), "programs")
    return f"{programs}:{_JAVA_SOURCES}:{JARS.folder()}/*"


def java_command(main: str, *arguments: str, home: Path) -> list[str]:
    """The command line of a Java program of the class path; what it leaves in a home goes to ``home``."""
    java = tool("java") or "java"
    return [java, *_JVM_FLAGS, f"-Duser.home={home}", "-cp", class_path(), main, *arguments]


def mqadmin(*arguments: str) -> str:
    """Run an ``mqadmin`` command and return what it printed. It takes six seconds, most of them to shut down."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-mqadmin-") as folder:
        main = "org.apache.rocketmq.tools.command.MQAdminStartup"
        command = java_command(main, *arguments, home=Path(folder))
        environment = {"ROCKETMQ_HOME": folder}
        return run(command, environment=environment, seconds=_COMMAND_SECONDS)


class _ApacheServer:
    """A server of Apache's that listens on ``address``; its settings and its log are in ``home``."""

    def __init__(
        self,
        name: str,
        main: str,
        arguments: Sequence[str],
        settings: Mapping[str, str],
        *,
        home: Path,
        address: str,
    ) -> None:
        self.address = address
        home.mkdir(parents=True, exist_ok=True)
        conf = home / "server.conf"
        conf.write_text("".join(f"{key}={value}\n" for key, value in settings.items()), "utf-8")
        self._process = PeerProcess(
            name,
            java_command(main, *arguments, "-c", str(conf), home=home),
            home=home,
            environment={"ROCKETMQ_HOME": str(home)},
        )

    @property
    def running(self) -> bool:
        return self._process.running

    def stop(self) -> None:
        """Shut down as an operator does, and wait until it is done."""
        self._process.stop(seconds=_STOP_SECONDS)

    def kill(self) -> None:
        """End it without a chance to flush or tidy up, as a crash does."""
        self._process.kill()

    def quote(self) -> str:
        """The last lines of its log."""
        return self._process.quote()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()


class ApacheNameServer(_ApacheServer):
    """A name server on a port of this machine, a free one unless it is given; ready when made."""

    def __init__(self, home: Path, port: int | None = None) -> None:
        port = port or free_port()
        super().__init__(
            "Apache name server",
            "org.apache.rocketmq.namesrv.NamesrvStartup",
            (),
            {"listenPort": str(port)},
            home=home,
            address=f"127.0.0.1:{port}",
        )
        self._process.wait_until(lambda: is_listening(self.address), what="listening", seconds=_START_SECONDS)


class ApacheController(_ApacheServer):
    """One controller of DLedger type, leading itself, on a free port; ready when it leads."""

    def __init__(self, home: Path) -> None:
        port = free_port()
        settings = {
            "controllerType": "DLedger",
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": str(home / "controller"),
            "mappedFileSize": str(1 << 20),
        }
        super().__init__(
            "Apache controller",
            "org.apache.rocketmq.controller.ControllerStartup",
            (),
            settings,
            home=home,
            address=f"127.0.0.1:{port}",
        )
        self._process.wait_until(self._leads, what="leading", seconds=_START_SECONDS)

    def _leads(self) -> bool:
        try:
            answer = ask(self.address, GET_METADATA_INFO)
        except OSError:
            return False
        return answer.code == 0 and answer.fields.get("isLeader") == "true"


class ApacheBroker(_ApacheServer):
    """A broker on the store under ``store``, ready and registered at ``nameserver`` when made.

    Of several name servers the addresses are separated by semicolons. ``conf`` holds ``broker.conf`` settings.
    Without a ``listenPort`` among them it listens on a free one.
    """

    def __init__(self, store: Path, conf: Mapping[str, str], *, home: Path, nameserver: str) -> None:
        if not store.exists():
            _begin_timer_now(store)
        settings = {"brokerName": "broker-a", **_BROKER_DEFAULTS, **conf}
        settings["storePathRootDir"] = str(store)
        settings["storePathCommitLog"] = str(store / "commitlog")
        port = int(settings.setdefault("listenPort", str(free_broker_port())))
        self.name = settings["brokerName"]
        super().__init__(
            "Apache broker",
            "PromptBroker",
            ("-n", nameserver),
            settings,
            home=home,
            address=f"{settings['brokerIP1']}:{port}",
        )
        self._process.wait_until(self._answers, what="answering", seconds=_START_SECONDS)
        self._process.wait_until(
            lambda: all(map(self._is_registered_at, nameserver.split(";"))),
            what="registered",
            seconds=_START_SECONDS,
        )

    def _answers(self) -> bool:
        """In its first second a broker has no sample of its statistics, and fails requests for them."""
        try:
            return (
                ask(self.address, GET_BROKER_CONFIG).code == 0
                and _NO_SAMPLE not in ask(self.address, GET_BROKER_RUNTIME_INFO).remark
            )
        except OSError:
            return False

    def _is_registered_at(self, nameserver: str) -> bool:
        return f'"{self.address}"'.encode() in ask(nameserver, GET_BROKER_CLUSTER_INFO).body


def _begin_timer_now(store: Path) -> None:
    """Write the timer's checkpoint into a new store: it has delivered everything until now.

    Without one the broker steps through the seven days of its timer wheel, second by second, and a core is busy for
    nine seconds.
    """
    checkpoint = store / "config" / "timercheck"
    checkpoint.parent.mkdir(parents=True)
    now_ms = time.time_ns() // 1_000_000
    read_until, positions, version = now_ms - now_ms % 1000, (0, 0, 0), (0, now_ms, 0)
    checkpoint.write_bytes(struct.pack(">7q", read_until, *positions, *version).ljust(_CHECKPOINT_BYTES, b"\0"))


def free_broker_port() -> int:
    """A port for a broker, which also takes the one two below (VIP) and the one above (replication)."""
    return free_port(-2, 1)
