"""A small blocking client for the canary and the probes: one request, one answer."""

from __future__ import annotations

import dataclasses
import itertools
import socket
import time
from typing import TYPE_CHECKING

from faults.fuzz.safety import BROKER_NAME
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.frame import FrameParser
from orbitmq.protocol.message.flags import PULL_SUBSCRIPTION
from orbitmq.protocol.message.pop_receipt import Receipt, parse_offsets, parse_starts, real_topic, topic_kind
from orbitmq.protocol.message.properties import encode, parse
from orbitmq.protocol.message.record import iter_records
from peers.ports import endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.protocol.message.record import Record

_CHUNK = 1 << 18


@dataclasses.dataclass(frozen=True, slots=True)
class Popped:
    """A message with the receipt that acknowledges it, and the topic that an acknowledgement names."""

    record: Record
    receipt: Receipt
    topic: str


class Client:
    """A connection to a server."""

    def __init__(self, address: str, seconds: float = 30.0) -> None:
        self._socket = socket.create_connection(endpoint(address), timeout=seconds)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._seconds = seconds
        self._parser = FrameParser()
        self._opaques = itertools.count(1)
        self._answers: dict[int, Command] = {}
        self.requests: list[Command] = []
        """What the server asked."""

    def close(self) -> None:
        self._socket.close()

    def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes | None = None) -> Command:
        """The answer to a request; TimeoutError or ConnectionError without one."""
        opaque = next(self._opaques)
        texts = {name: str(value) for name, value in (fields or {}).items()}
        self._socket.sendall(Command(code, opaque, ext_fields=texts, body=body).encode())
        deadline = time.monotonic() + self._seconds
        while opaque not in self._answers:
            self._receive(deadline)
        return self._answers.pop(opaque)

    def asked(self, code: int, seconds: float) -> Command | None:
        """The next request of the server with this code; None if there is none for so long."""
        deadline = time.monotonic() + seconds
        while True:
            for at, request in enumerate(self.requests):
                if request.code == code:
                    return self.requests.pop(at)
            try:
                self._receive(deadline)
            except TimeoutError:
                return None

    def _receive(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        data = self._socket.recv(_CHUNK)
        if not data:
            raise ConnectionError("the server closed the connection")
        for frame in self._parser.feed(data):
            command = Command.decode(frame)
            if command.is_response:
                self._answers[command.opaque] = command
            else:
                self.requests.append(command)

    def create_topic(self, topic: str, queues: int) -> Command:
        fields = {"topic": topic, "defaultTopic": "TBW102", "readQueueNums": queues, "writeQueueNums": queues}
        return self.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC,
            {**fields, "perm": 6, "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": "false"},
        )

    def send(
        self,
        topic: str,
        body: bytes,
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
        *,
        group: str = "probe-producers",
        sys_flag: int = 0,
    ) -> Command:
        fields = {"a": group, "b": topic, "c": "TBW102", "d": 4, "e": queue_id, "f": sys_flag}
        fields |= {"g": int(time.time() * 1000), "h": 0, "i": encode(properties or {}).decode(), "j": 0}
        return self.ask(RequestCode.SEND_MESSAGE_V2, {**fields, "k": "false", "m": "false"}, body)

    def pull(
        self, topic: str, offset: int, queue_id: int = 0, *, group: str, expression: str = "*", kind: str = "TAG"
    ) -> Command:
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "queueOffset": offset}
        fields |= {"maxMsgNums": 32, "sysFlag": PULL_SUBSCRIPTION, "commitOffset": 0, "suspendTimeoutMillis": 0}
        fields |= {"subscription": expression, "subVersion": 0, "expressionType": kind}
        return self.ask(RequestCode.PULL_MESSAGE, fields)

    def pop(self, topic: str, group: str, *, most: int = 32, invisible_ms: int = 60_000) -> list[Popped]:
        """What a pop returns; nothing at once if there is nothing."""
        fields = {"consumerGroup": group, "topic": topic, "queueId": -1, "maxMsgNums": most, "pollTime": 0}
        fields |= {"invisibleTime": invisible_ms, "bornTime": 0, "initMode": 0, "expType": "TAG", "exp": "*"}
        answer = self.ask(RequestCode.POP_MESSAGE, {**fields, "order": "false"})
        if answer.code != ResponseCode.SUCCESS:
            return []
        return list(_popped(answer, topic, group))

    def ack(self, popped: Popped, group: str) -> Command:
        receipt = popped.receipt
        fields = {"consumerGroup": group, "topic": popped.topic, "queueId": receipt.queue_id}
        return self.ask(RequestCode.ACK_MESSAGE, {**fields, "offset": receipt.offset, "extraInfo": str(receipt)})


def records(answer: Command) -> list[Record]:
    """The messages of a pull; none if nothing was found."""
    return list(iter_records(answer.body or b"")) if answer.code == ResponseCode.SUCCESS else []


def _popped(answer: Command, topic: str, group: str) -> list[Popped]:
    fields = answer.ext_fields
    starts, offsets = parse_starts(fields["startOffsetInfo"]), parse_offsets(fields["msgOffsetInfo"])
    found = []
    for record in iter_records(answer.body or b""):
        carried = parse(record.properties).get("POP_CK")
        if carried is not None:
            receipt = Receipt.parse(carried)
        else:
            kind = topic_kind(record.topic)
            assert record.queue_offset in offsets[kind, record.queue_id]
            receipt = Receipt(
                starts[kind, record.queue_id],
                int(fields["popTime"]),
                int(fields["invisibleTime"]),
                int(fields["reviveQid"]),
                kind,
                BROKER_NAME,
                record.queue_id,
                record.queue_offset,
            )
        found.append(Popped(record, receipt, real_topic(topic, group, receipt.kind)))
    return found
