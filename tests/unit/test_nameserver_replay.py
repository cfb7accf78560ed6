"""What clients, brokers and tools asked Apache's name server is asked again here, and answered the same.

The captured scenarios are pieces of the lives of two name servers, in the order of ``LIVES``. Each scenario is
played to a new name server that is first brought to where Apache's was: the broker registers the topics it had
then, and the key-value entries that earlier scenarios put are there.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import json
from typing import TYPE_CHECKING, Any

import pytest

from nameserver_ends import QuietServer, Wire
from orbitmq.protocol.bodies import RegisterBrokerBody, TopicConfig, is_compressed
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.crc import body_crc
from orbitmq.protocol.fastjson import loads
from remoting_ends import decoded
from wire_captures import DIRECTORY, SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.protocol.command import Command

JSON_LIFE = (
    *("broker_register_json", "java_json_01_producer_start_route", "java_json_02_autocreate_topic"),
    *("java_json_03_heartbeat_v1", "java_json_04_heartbeat_v2", "java_json_05_send", "java_json_06_send_batch"),
    *("java_json_07_send_delay_timer_recall", "java_json_09_transaction", "java_json_10_push_concurrent"),
    *("java_json_16_lite_pull", "java_json_20_errors", "go_orderly", "admin", "java_json_11_push_orderly"),
    *("java_json_14_pop_push_consumer", "java_json_15_pop_direct", "java_json_17_request_reply"),
    *("java_json_18_query_view", "java_json_19_trace", "ha", "broker_unregister_json", "go_producer", "go_push"),
    *("go_pull", "node_producer", "node_consumer", "admin2", "java_json_13_push_sql92"),
    *("java_json_12_push_broadcast", "java_json_08_send_ordered", "java_json_21_errors_send"),
)
BINARY_LIFE = (
    *("broker_register_binary_compressed", "broker_register_binary", "java_binary_01_producer_start_route"),
    *("java_binary_02_autocreate_topic", "java_binary_05_send", "java_binary_06_send_batch"),
    *("java_binary_03_heartbeat_v1", "java_binary_04_heartbeat_v2", "java_binary_10_push_concurrent"),
    *("java_binary_08_send_ordered", "java_binary_07_send_delay_timer_recall", "java_binary_09_transaction"),
    "java_mixed_jsonclient_binaryserver",
)
LIVES = (JSON_LIFE, BINARY_LIFE)

BROKERLESS = {"broker_register_json", "broker_register_binary_compressed"}
"""Scenarios at whose beginning no broker was registered."""


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and what Apache's name server answered, if that is in the capture."""

    scenario: str
    line: int
    connection: int
    request: Command
    wire: bytes
    answer: Command | None

    def __str__(self) -> str:
        return f"{self.scenario}:{self.line}, request {self.request.code}"


@functools.cache
def exchanges(scenario: str) -> tuple[Exchange, ...]:
    """What went to the name server, in order."""
    asked: dict[tuple[int, int], tuple[int, bytes, Command]] = {}
    answers: dict[int, Command] = {}
    with gzip.open(DIRECTORY / f"{scenario}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, text in enumerate(lines, 1):
            record = json.loads(text)
            if record["to"] != "namesrv":
                continue
            wire = base64.b64decode(record["frame_b64"])
            (command,) = decoded(wire)
            key = record["conn"], command.opaque
            if command.is_response:
                if key in asked:
                    answers[asked[key][0]] = command
            else:
                asked[key] = number, wire, command
    return tuple(
        Exchange(scenario, number, connection, command, wire, answers.get(number))
        for (connection, _), (number, wire, command) in sorted(asked.items(), key=lambda one: one[1][0])
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Registration:
    """A registration of the broker that the life of a name server is about."""

    request: Command
    body: RegisterBrokerBody

    @property
    def topics(self) -> dict[str, TopicConfig]:
        return self.body.topic_config_serialize_wrapper.topic_config_table


def registrations(scenario: str) -> Iterator[Registration]:
    for exchange in exchanges(scenario):
        request = exchange.request
        if request.code == RequestCode.REGISTER_BROKER and request.ext_fields["brokerName"] == "broker-w":
            assert request.body is not None
            if request.ext_fields["brokerId"] == "0" and not is_compressed(request.body):
                yield Registration(request, RegisterBrokerBody.decode(request.body))


def registration_before(life: tuple[str, ...], at: int) -> Registration | None:
    """The registration that a broker would have made just before a scenario.

    That is the next one of all its topics. What it registers in between, topic by topic, was not there yet, or
    as in the last registration before.
    """
    if life[at] in BROKERLESS:
        return None
    before: dict[str, TopicConfig] = {}
    for scenario in life[:at]:
        for registration in registrations(scenario):
            before |= registration.topics
    changed: set[str] = set()
    for scenario in life[at:]:
        for registration in registrations(scenario):
            if len(registration.topics) == 1:
                changed |= registration.topics.keys()
                continue
            table = registration.topics
            for topic in changed:
                table.pop(topic, None)
                if topic in before:
                    table[topic] = before[topic]
            return registration
    # After the last one of all topics that was captured there is the sum of all before.
    last = [registration for scenario in life[:at] for registration in registrations(scenario)][-1]
    last.topics.update(before)
    return last


def server_before(life: tuple[str, ...], at: int) -> QuietServer:
    """A name server in the state that Apache's was in when a scenario began."""
    server = QuietServer(listen_port=9986)
    for scenario in life[:at]:
        for exchange in exchanges(scenario):
            if exchange.request.code in {RequestCode.PUT_KV_CONFIG, RequestCode.DELETE_KV_CONFIG}:
                server.ask_with(exchange.request)
    registration = registration_before(life, at)
    if registration is not None:
        body = registration.body.encode()
        fields = {**registration.request.ext_fields, "bodyCrc32": str(body_crc(body))}
        request = dataclasses.replace(registration.request, ext_fields=fields, body=body)
        assert server.ask_with(request).code == ResponseCode.SUCCESS
    return server

def diff(ours, theirs, exchange):
    out=[]
    if ours.code!=theirs.code: out.append(('code',ours.code,theirs.code, ours.remark, theirs.remark))
    if ours.ext_fields!=theirs.ext_fields: out.append(('ext',ours.ext_fields,theirs.ext_fields))
    if ours.remark!=theirs.remark: out.append(('remark',ours.remark,theirs.remark))
    if ours.body!=theirs.body: out.append(('body',(ours.body or b'')[:3000],(theirs.body or b'')[:3000]))
    return out

if __name__=='__main__':
    for life in LIVES:
        for at,sc in enumerate(life):
            server=server_before(life,at)
            wires={}
            for e in exchanges(sc):
                w=wires.setdefault(e.connection,Wire())
                a=server.ask_with(e.request,w)
                if e.answer is None: print(e,'NO ANSWER CAPTURED'); continue
                d=diff(a,e.answer,e)
                if d: print(e, {k:v for k,v in e.request.ext_fields.items() if k not in('Signature','AccessKey')}, d,'\n')
