"""Unmodified gRPC clients of several languages as peers, and Apache's proxy: fetched once, then used by tests."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peers.agent import Agent
from peers.apache import java_command
from peers.cache import filled, is_filled
from peers.jdk import Jars, tool
from peers.ports import free_port, is_listening
from peers.process import PeerError, PeerProcess, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

_HERE = Path(__file__).parent
_FETCH_SECONDS = 240
_START_SECONDS = 90

PYTHON, JAVA, NODE, GO = LANGUAGES = ("python", "java", "node", "go")

_JAVA_CLIENT = Jars("grpc-client", _HERE / "client.pom.xml")
PROXY = Jars("grpc-proxy", _HERE / "proxy.pom.xml")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """A message to send."""

    topic: str
    body: bytes
    tag: str = ""
    keys: Sequence[str] = ()
    group: str = ""
    lite: str = ""
    delay_ms: int = 0
    properties: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "body": base64.b64encode(self.body).decode(),
            "tag": self.tag,
            "keys": list(self.keys),
            "group": self.group,
            "lite": self.lite,
            "delayMs": self.delay_ms,
            "properties": dict(self.properties),
        }


@dataclasses.dataclass(frozen=True, slots=True)
class Delivered:
    """A message as a consumer got it."""

    topic: str
    body: bytes
    tag: str | None
    keys: list[str]
    properties: dict[str, str]
    message_id: str
    attempt: int
    group: str | None
    lite: str | None


class GrpcClient(Agent):
    """A process with any number of producers and consumers of one official client."""

    def __init__(self, language: str, endpoints: str, *, home: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        command, environment = _commands()[language](home)
        self.language = language
        super().__init__(f"{language} gRPC client", [*command, endpoints], home=home, environment=environment)

    def start_producer(self, name: str, *topics: str, check: str = "commit") -> None:
        self.ask("producer", name=name, topics=topics, check=check)

    def publish(self, producer: str, *messages: Outgoing) -> list[dict[str, Any]]:
        """Send messages and return message id, recall handle and offset of each."""
        found: list[dict[str, Any]] = self.ask("send", name=producer, messages=[one.as_json() for one in messages])
        return found

    def start_simple(self, name: str, group: str, topics: Mapping[str, str], *, seconds: int = 5) -> None:
        """``topics`` are filter expressions; one that begins with ``sql:`` is SQL92."""
        self.ask("simple", name=name, group=group, topics=_filters(topics), seconds=seconds)

    def receive(self, name: str, count: int = 16, invisible: int = 15) -> list[Delivered]:
        return _delivered(self.ask("receive", name=name, count=count, invisible=invisible))

    def start_push(
        self, name: str, group: str, topics: Mapping[str, str], failures: Mapping[str, int] | None = None
    ) -> None:
        """``failures`` is how often a message is refused, by its body."""
        self.ask("push", name=name, group=group, topics=_filters(topics), failures=dict(failures or {}))

    def start_lite(
        self, name: str, group: str, topic: str, lites: Sequence[str], failures: Mapping[str, int] | None = None
    ) -> None:
        """A push consumer of lite topics. The Java client only."""
        self.ask("lite", name=name, group=group, topic=topic, lites=list(lites), failures=dict(failures or {}))

    def taken(self, name: str, count: int, seconds: float = 30) -> list[Delivered]:
        """What a push consumer got since the last time, as soon as that is ``count`` messages."""
        return _delivered(self.ask("take", name=name, count=count, seconds=seconds))


def _filters(topics: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    return {
        topic: {"expression": text.removeprefix("sql:"), "sql": text.startswith("sql:")}
        for topic, text in topics.items()
    }


def _delivered(rows: list[dict[str, Any]] | None) -> list[Delivered]:
    return [
        Delivered(
            row["topic"],
            base64.b64decode(row["body"]),
            row.get("tag") or None,
            sorted(row["keys"] or ()),
            row["properties"],
            row["messageId"],
            row["attempt"],
            row.get("group") or None,
            row.get("lite") or None,
        )
        for row in rows or ()
    ]


@functools.cache
def unavailable(language: str) -> str | None:
    """None if this client can be run here, otherwise the reason in one sentence."""
    try:
        if language == JAVA:
            return _JAVA_CLIENT.unavailable("the Java gRPC client")
        if language == NODE:
            if shutil.which("node") is None or shutil.which("npm") is None:
                return "the Node.js gRPC client takes Node.js (node and npm), which is not on the PATH"
            _node_folder()
        elif language == GO:
            if shutil.which("go") is None:
                return "the Go gRPC client takes the Go toolchain (go), which is not on the PATH"
            _go_program()
        else:
            _python()
    except PeerError as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        return f"the {language} gRPC client could not be fetched: {(lines or ['no reason was given'])[-1][:300]}"
    return None


def _commands() -> dict[str, Any]:
    return {PYTHON: _python_command, JAVA: _java_command, NODE: _node_command, GO: _go_command}


def _python_command(home: Path) -> tuple[list[str], dict[str, str]]:
    return [str(_python()), str(_HERE / "python" / "agent.py")], {"HOME": str(home), "PYTHONPATH": ""}


def _java_command(home: Path) -> tuple[list[str], dict[str, str]]:
    classes = _JAVA_CLIENT.compiled([_HERE / "java" / "GrpcAgent.java"], "agent")
    flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", f"-Duser.home={home}"]
    path = f"{classes}:{_JAVA_CLIENT.folder()}/*"
    return [tool("java") or "java", *flags, "-cp", path, "GrpcAgent"], {"HOME": str(home)}


def _node_command(home: Path) -> tuple[list[str], dict[str, str]]:
    return ["node", str(_node_folder() / "agent.js")], {"HOME": str(home)}


def _go_command(home: Path) -> tuple[list[str], dict[str, str]]:
    environment = {"HOME": str(home), "rocketmq.client.enableSsl": "false", "rocketmq.client.logRoot": str(home)}
    return [str(_go_program())], environment


def program(language: str, file: Path) -> tuple[list[str], dict[str, str]]:
    """The command that runs a program of a client's user, and its environment."""
    path = {"PATH": os.environ["PATH"]}
    if language == PYTHON:
        return [str(_python()), str(file)], path
    if language == JAVA:
        jars = f"{_JAVA_CLIENT.folder()}/*"
        flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", f"-Duser.home={file.parent}"]
        return [tool("java") or "java", *flags, "-cp", jars, str(file)], path
    if language == NODE:
        return ["node", str(file)], {**path, "NODE_PATH": str(_node_folder() / "node_modules")}
    for name in ("go.mod", "go.sum"):
        shutil.copy(_HERE / "go" / name, file.parent)
    home = Path.home()
    caches = {"GOPATH": str(home / "go"), "GOCACHE": str(home / ".cache/go-build"), "GOFLAGS": "-mod=mod"}
    own = {name: value for name, value in os.environ.items() if name.startswith("GO")}
    return ["go", "run", "."], {**path, **caches, **own}


def _python() -> Path:
    def fill(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder / "venv")], environment={}, seconds=_FETCH_SECONDS)
        install = [str(folder / "venv/bin/pip"), "install", "-q", "rocketmq-python-client==5.1.2"]
        run(install, environment={}, seconds=_FETCH_SECONDS)

    return filled("grpc-python-5.1.2", fill) / "venv/bin/python"


def _node_folder() -> Path:
    files = [_HERE / "node" / name for name in ("package.json", "package-lock.json", "agent.js")]

    def fill(folder: Path) -> None:
        for file in files:
            shutil.copy(file, folder)
        command = ["npm", "ci", "--prefix", str(folder), "--ignore-scripts", "--no-audit", "--no-fund"]
        run(command, environment={}, seconds=_FETCH_SECONDS)

    return filled(f"grpc-node-{_digest(files)}", fill)


def _go_program() -> Path:
    files = [_HERE / "go" / name for name in ("go.mod", "go.sum", "main.go")]

    def fill(folder: Path) -> None:
        for file in files:
            shutil.copy(file, folder)
        command = ["go", "build", "-C", str(folder), "-o", "agent", "."]
        run(command, environment={"GOFLAGS": "-mod=mod"}, seconds=_FETCH_SECONDS)

    return filled(f"grpc-go-{_digest(files)}", fill) / "agent"


def _digest(files: Sequence[Path]) -> str:
    contents = hashlib.sha256()
    for file in files:
        contents.update(file.read_bytes())
    return contents.hexdigest()[:12]


class ApacheProxy:
    """Apache's proxy in LOCAL mode: a broker with gRPC in one process. Ready when made."""

    def __init__(
        self, home: Path, nameserver: str, conf: Mapping[str, str], settings: Mapping[str, str] | None = None
    ) -> None:
        if not is_filled(PROXY.name):
            PROXY.folder()
        home.mkdir(parents=True, exist_ok=True)
        port, broker_port = free_port(), free_port(-2, 1)
        broker = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "brokerId": "0",
            "brokerIP1": "127.0.0.1",
            "listenPort": str(broker_port),
            "storePathRootDir": str(home / "store"),
            "storePathCommitLog": str(home / "store/commitlog"),
            "waitTimeMillsInSendQueue": "30000",
            "diskMaxUsedSpaceRatio": "95",
            **conf,
        }
        (home / "broker.conf").write_text("".join(f"{key}={value}\n" for key, value in broker.items()), "utf-8")
        proxy: dict[str, Any] = {
            "grpcServerPort": port,
            "remotingListenPort": free_port(),
            "rocketMQClusterName": "DefaultCluster",
            **(settings or {}),
        }
        (home / "proxy.json").write_text(json.dumps(proxy), "utf-8")
        arguments = ["-pc", str(home / "proxy.json"), "-pm", "local", "-bc", str(home / "broker.conf")]
        main = "org.apache.rocketmq.proxy.ProxyStartup"
        command = java_command(main, *arguments, "-n", nameserver, home=home)
        at = command.index("-cp") + 1
        command[at] = f"{PROXY.folder()}/*"
        self.endpoints = f"127.0.0.1:{port}"
        self.broker_address = f"127.0.0.1:{broker_port}"
        self._process = PeerProcess(
            "Apache proxy",
            command,
            home=home,
            environment={"ROCKETMQ_HOME": str(home), "RMQ_PROXY_HOME": str(home)},
        )
        self._process.wait_until(
            lambda: is_listening(self.endpoints) and is_listening(self.broker_address),
            what="listening",
            seconds=_START_SECONDS,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
