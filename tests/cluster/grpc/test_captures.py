"""Calls of the Python client, as they were captured in front of Apache's proxy 5.5.0, are answered as there.

Compared is what depends on the request and the metadata of the cluster: routes, assignments, settings, results of
sends and of the ends of clients. Addresses, times, offsets and the texts of errors differ.
"""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import grpc.aio
import pytest

from cluster.grpc.grpc_harness import SERVICE, served
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc

if TYPE_CHECKING:
    from collections.abc import Iterable

DATA = Path(__file__).parents[2] / "data" / "grpc"
SCENARIOS = ("fifo", "producer", "push", "simple", "tx")
COMPARED = {"QueryRoute", "QueryAssignment", "SendMessage", "Heartbeat", "NotifyClientTermination", "Telemetry"}


@dataclasses.dataclass
class Call:
    name: str
    metadata: tuple[tuple[str, str], ...] = ()
    sent: list[bytes] = dataclasses.field(default_factory=list)
    answers: list[bytes] = dataclasses.field(default_factory=list)


def captured(scenario: str) -> list[Call]:
    calls: dict[int, Call] = {}
    with gzip.open(DATA / f"grpc_python_{scenario}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            call = calls.setdefault(row["call"], Call(row["rpc"]))
            if row["kind"] == "headers":
                own = [(key, value) for key, value in row["metadata"] if key.startswith("x-mq-")]
                call.metadata = tuple(own)
            elif row["kind"] == "message":
                (call.sent if row["dir"] == "c2s" else call.answers).append(base64.b64decode(row["msg_b64"]))
    return list(calls.values())


def topics_of(calls: Iterable[Call]) -> dict[str, tuple[str, int]]:
    """Type and number of queues of each topic, by the captured routes."""
    found = {}
    for call in calls:
        if call.name == "QueryRoute":
            for answer in call.answers:
                queues = rpc.QueryRouteResponse.FromString(answer).message_queues
                if queues:
                    types = queues[0].accept_message_types
                    kind = "MIXED" if len(types) > 1 else pb.MessageType.Name(types[0])
                    found[queues[0].topic.name] = kind, len(queues)
    return found


def normal(message: Any) -> Any:
    """Without what differs between two servers and two runs."""
    if isinstance(message, rpc.QueryRouteResponse):
        for queue in message.message_queues:
            _without_address(queue.broker)
    elif isinstance(message, rpc.QueryAssignmentResponse):
        for one in message.assignments:
            _without_address(one.message_queue.broker)
    elif isinstance(message, rpc.SendMessageResponse):
        for entry in message.entries:
            entry.ClearField("offset")
            entry.recall_handle = "given" if entry.recall_handle else ""
            if entry.status.code != pb.OK:
                entry.status.ClearField("message")
    elif isinstance(message, rpc.TelemetryCommand):
        message.settings.ClearField("access_point")
    if message.status.code != pb.OK:
        message.status.ClearField("message")
    return message


def _without_address(broker: Any) -> None:
    broker.ClearField("endpoints")
    broker.ClearField("name")


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_captured_calls_are_answered_alike(scenario: str) -> None:
    calls = captured(scenario)
    async with served() as server:
        for name, (kind, queues) in topics_of(calls).items():
            await server.topic(name, kind, queues)
        for call in calls:
            if call.name == "Telemetry":
                settings = rpc.TelemetryCommand.FromString(call.sent[0]).settings
                answer = rpc.TelemetryCommand.FromString(call.answers[0]).settings
                if settings.WhichOneof("pub_sub") == "subscription":
                    retries = answer.backoff_policy.max_attempts - 1
                    server.group(
                        settings.subscription.group.name, ordered=answer.subscription.fifo, retries=retries
                    )
        compared = 0
        async with grpc.aio.insecure_channel(server.target) as channel:
            streams = []
            for call in (one for one in calls if one.name in COMPARED and one.answers):
                if call.name == "Telemetry":
                    response: Any = rpc.TelemetryCommand
                    opened = channel.stream_stream(f"/{SERVICE}/Telemetry")(metadata=call.metadata)
                    await opened.write(call.sent[0])
                    answer = await opened.read()
                    streams.append(opened)
                else:
                    response = getattr(rpc, f"{call.name}Response")
                    unary = channel.unary_unary(f"/{SERVICE}/{call.name}")
                    answer = await unary(_moved(call), metadata=call.metadata, timeout=10)
                assert normal(response.FromString(answer)) == normal(response.FromString(call.answers[0])), (
                    call.name
                )
                compared += 1
            for opened in streams:
                opened.cancel()
        assert compared >= 4


def _moved(call: Call) -> bytes:
    """The request with times of delivery in the future."""
    if call.name != "SendMessage":
        return call.sent[0]
    request = rpc.SendMessageRequest.FromString(call.sent[0])
    for message in request.messages:
        if message.system_properties.HasField("delivery_timestamp"):
            message.system_properties.delivery_timestamp.GetCurrentTime()
            message.system_properties.delivery_timestamp.seconds += 60
    moved: bytes = request.SerializeToString()
    return moved
