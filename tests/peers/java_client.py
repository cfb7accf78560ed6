"""Apache's Java clients, old and new, as test peers: one JVM with any number of clients, driven by a test."""

from __future__ import annotations

import base64
import dataclasses
import functools
import itertools
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from peers.apache import JARS as NEW_JARS
from peers.jdk import Jars, tool
from peers.process import PeerError, PeerProcess

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

OLD, NEW = "4.9.8", "5.5.0"
VERSIONS = (OLD, NEW)

JSON_HEADERS, BINARY_HEADERS = "JSON", "ROCKETMQ"
"""What a client writes its request headers as."""

OFTEN, NEVER = 2_000, 3_600_000
"""How many milliseconds a client waits before it shares out queues anew though nobody told it of a change."""

_JARS = {OLD: Jars(f"client-{OLD}", Path(__file__).with_name(f"client-{OLD}.pom.xml")), NEW: NEW_JARS}
_SOURCES = Path(__file__).with_name("java") / "client"

_JVM_FLAGS = (
    "-Xms64m",
    "-Xmx384m",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    # Otherwise the new client waits a second before it looks for its queues, and that is when its first periodic
    # heartbeat falls: of two heartbeats at once it drops one, which may be the one that tells of new queues.
    "-Drocketmq.client.rebalance.minInterval=200",
    "-Drocketmq.client.logLevel=WARN",
)

new_number = itertools.count().__next__
"""Tells names apart."""


@dataclasses.dataclass(frozen=True, slots=True)
class Queue:
    topic: str
    broker: str
    id: int


@dataclasses.dataclass(frozen=True, slots=True)
class Sent:
    """What a producer was told about a message; of a batch the ids of all, separated by commas."""

    status: str
    message_id: str
    offset_id: str
    queue: Queue
    queue_offset: int
    region_id: str
    trace_on: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """A message as a consumer gets it. ``text`` is the body if it is short."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    message_id: str
    offset_id: str | None
    flag: int
    sys_flag: int
    store_timestamp: int
    store_host: str
    reconsume_times: int
    body_size: int
    body_sha256: str
    text: str | None
    properties: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class RouteEntry:
    broker: str
    read_queues: int
    write_queues: int
    permission: int


@dataclasses.dataclass(frozen=True, slots=True)
class RawAnswer:
    code: int
    remark: str
    fields: dict[str, str]


class JavaClientError(Exception):
    """The client refused or failed: its exception, with the response code it carries (-1 for none)."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        super().__init__(f"{row['type']} ({row['code']}): {row['text']}")
        self.kind: str = row["type"]
        self.code: int = row["code"]
        self.text: str = row["text"]
        self.cause = JavaClientError(row["cause"]) if row.get("cause") else None


@functools.cache
def unavailable(version: str) -> str | None:
    """None if this version of the client can be run here, otherwise the reason in one sentence."""
    return _JARS[version].unavailable(f"Apache's Java client {version}")


class JavaClient:
    """A JVM with one version of the client. All that was started in it ends with it, without a goodbye."""

    def __init__(
        self, version: str, *, home: Path, nameserver: str, headers: str = JSON_HEADERS, rebalance_ms: int = OFTEN
    ) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.version = version
        self.nameserver = nameserver
        command = [tool("java") or "java", *_JVM_FLAGS, f"-Duser.home={home}"]
        command += [
            f"-Drocketmq.serialize.type={headers}",
            f"-Drocketmq.client.rebalance.waitInterval={rebalance_ms}",
        ]
        command += ["-cp", _class_path(version), "ClientDriver"]
        self._process = PeerProcess(
            f"Apache client {version}", command, home=home, environment={}, conversation=True
        )

    def ask(self, verb: str, **request: Any) -> Any:
        requests, replies = self._process.pipes
        try:
            requests.write(json.dumps({"do": verb, **request}).encode() + b"\n")
            requests.flush()
            line = replies.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise PeerError(f"{self._process.name} ended on {verb}\n{self._process.quote()}")
        reply = json.loads(line)
        if "error" in reply:
            raise JavaClientError(reply["error"])
        return reply.get("answer")

    def kill(self) -> None:
        self._process.kill()

    def halt(self, is_halted: bool) -> None:
        """Let it stand still, or go on."""
        self._process.halt(is_halted)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.kill()


class Started:
    """One client in the JVM, of the name server that the JVM is for or of another."""

    KIND = ""

    def __init__(self, jvm: JavaClient, group: str, *, nameserver: str | None = None, **options: Any) -> None:
        self._jvm = jvm
        self.group = group
        self.name = f"{self.KIND}-{new_number()}"
        self._ask("start", nameserver=nameserver or jvm.nameserver, group=group, **options)

    def stop(self) -> None:
        """Shut it down as an application does."""
        self._ask("stop")

    def _ask(self, verb: str, **request: Any) -> Any:
        return self._jvm.ask(f"{self.KIND}.{verb}", name=self.name, **request)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class JavaProducer(Started):
    """A producer. ``properties`` are system properties of the JVM while it is made.

    Without ``timeout_ms`` a send may take 15 s, and without ``poll_ms`` routes are fetched every second; defaults
    of the client are 3 s and 30 s.
    """

    KIND = "producer"

    def __init__(
        self,
        jvm: JavaClient,
        group: str,
        *,
        nameserver: str | None = None,
        max_message_size: int | None = None,
        trace: bool = False,
        trace_topic: str | None = None,
        properties: Mapping[str, str] | None = None,
        timeout_ms: int | None = None,
        poll_ms: int | None = None,
    ) -> None:
        super().__init__(
            jvm,
            group,
            nameserver=nameserver,
            maxMessageSize=max_message_size,
            trace=trace,
            traceTopic=trace_topic,
            properties=properties,
            timeoutMs=timeout_ms,
            pollMs=poll_ms,
        )

    def send(
        self,
        topic: str,
        body: str | bytes,
        *,
        how: str = "sync",
        shard: str | None = None,
        queue: Queue | None = None,
        **message: Any,
    ) -> Sent:
        """Send ``sync`` or ``async``; ``message`` may have tags, keys, delayLevel, flag and properties."""
        return sent(self._send(topic, body, how, shard, queue, message))

    def send_oneway(
        self,
        topic: str,
        body: str | bytes,
        *,
        shard: str | None = None,
        queue: Queue | None = None,
        **message: Any,
    ) -> None:
        self._send(topic, body, "oneway", shard, queue, message)

    def send_batch(self, topic: str, bodies: Sequence[str], **message: Any) -> Sent:
        return sent(self._ask("batch", messages=[outgoing(topic, body, message) for body in bodies]))

    def create_topic(self, topic: str, *, queues: int) -> None:
        self._ask("createTopic", topic=topic, queues=queues)

    def queues(self, topic: str) -> list[Queue]:
        """Where it can send messages of the topic to."""
        return [Queue(**row) for row in self._ask("queues", topic=topic)]

    def raw(self, address: str, code: int, fields: Mapping[str, str], body: bytes = b"") -> RawAnswer:
        """Send a request as it is to a server and return its answer."""
        encoded = base64.b64encode(body).decode()
        request = {"address": address, "code": code, "fields": dict(fields), "body": encoded}
        row = self._jvm.ask("raw", name=self.name, **request)
        return RawAnswer(row["code"], row.get("remark") or "", row.get("fields") or {})

    def _send(
        self,
        topic: str,
        body: str | bytes,
        how: str,
        shard: str | None,
        queue: Queue | None,
        message: Mapping[str, Any],
    ) -> Any:
        where = dataclasses.asdict(queue) if queue else None
        return self._ask("send", how=how, shard=shard, queue=where, message=outgoing(topic, body, message))


class JavaAdmin(Started):
    """The operator's client for one broker."""

    KIND = "admin"

    def __init__(self, jvm: JavaClient, *, broker: str, cluster: str, nameserver: str | None = None) -> None:
        super().__init__(jvm, "admin", nameserver=nameserver)
        self._broker = broker
        self._cluster = cluster

    def update_topic(self, topic: str, *, read_queues: int, write_queues: int, permission: int = 6) -> None:
        """Create or change a topic; of the permission, 4 is to read and 2 to write."""
        queues = {"readQueues": read_queues, "writeQueues": write_queues}
        self._ask("updateTopic", address=self._broker, topic=topic, permission=permission, **queues)

    def delete_topic(self, topic: str) -> None:
        """From the broker and from the name server."""
        nameserver = self._jvm.nameserver
        self._ask("deleteTopic", address=self._broker, nameserver=nameserver, cluster=self._cluster, topic=topic)

    def route(self, topic: str) -> list[RouteEntry]:
        return [
            RouteEntry(row["broker"], row["readQueues"], row["writeQueues"], row["permission"])
            for row in self._ask("route", topic=topic)
        ]


def sent(row: Mapping[str, Any]) -> Sent:
    return Sent(
        status=row["status"],
        message_id=row["messageId"],
        offset_id=row["offsetId"],
        queue=Queue(**row["queue"]),
        queue_offset=row["queueOffset"],
        region_id=row["regionId"],
        trace_on=row["traceOn"],
    )


def message(row: Mapping[str, Any]) -> Message:
    return Message(
        topic=row["topic"],
        queue_id=row["queueId"],
        queue_offset=row["queueOffset"],
        physical_offset=row["physicalOffset"],
        store_size=row["storeSize"],
        # A reply that was pushed has none.
        message_id=row.get("messageId") or "",
        offset_id=row.get("offsetId"),
        flag=row["flag"],
        sys_flag=row["sysFlag"],
        store_timestamp=row["storeTimestamp"],
        store_host=row["storeHost"],
        reconsume_times=row["reconsumeTimes"],
        body_size=row["bodySize"],
        body_sha256=row["bodySha256"],
        text=row.get("text"),
        properties=row["properties"],
    )


def outgoing(topic: str, body: str | bytes, options: Mapping[str, Any]) -> dict[str, Any]:
    raw = body.encode() if isinstance(body, str) else body
    return {"topic": topic, "body": base64.b64encode(raw).decode(), **options}


def _class_path(version: str) -> str:
    """The class path of the driver with this version of the client, compiled once."""
    jars = _JARS[version]
    driver = jars.compiled(sorted(_SOURCES.glob("*.java")), "driver")
    # The folder above the sources has the settings of the newer client's log.
    return f"{driver}:{_SOURCES.parent}:{jars.folder()}/*"
