"""Captured requests to Apache's name server are sent again here, and answered the same.

The captured scenarios are from the lives of two name servers, in the order of ``LIVES``. Both lives are played
again, and where something happened between two scenarios that was not captured (a broker started, a topic was
created) the broker registers it, as it did then.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import json
from typing import TYPE_CHECKING

import pytest

from orbitmq.platform.settings import parse_conf
from orbitmq.protocol.bodies import RegisterBrokerBody, TopicConfig, is_compressed
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.fastjson import loads
from orbitmq.protocol.message.crc import body_crc
from support.nameserver_harness import QuietServer, Wire
from support.remoting_harness import decoded
from support.wire_captures import BINARY_LIFE, DIRECTORY, LIVES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.protocol.command.command import Command

BROKERLESS = {"broker_register_json", "broker_register_binary_compressed", "broker_register_binary"}
"""Scenarios at whose beginning no broker was registered."""

# What is not the same, and why.

TAKEN_HERE = {"broker_register_binary_compressed:9"}
"""A compressed registration that says it is none: Apache's name server refuses it."""

SEEN_HERE = {"broker_register_binary_compressed:11", "broker_register_binary_compressed:13"}
"""What Apache's name server says about its clusters afterwards: that there are none."""

REMARKED_THERE = {"java_json_20_errors:191"}
"""A successful answer of Apache's with the remark that no code was set."""

OF_THE_MACHINE = {"configStorePath", "kvConfigPath", "rocketmqHome"}
"""Settings that are paths."""

# An answer has the kind of header that its request had; Apache's name server always uses its own kind.

LISTS = {RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER}
"""Answers that are sets in Java, in the order of their hash codes; they are sorted here."""


@dataclasses.dataclass(frozen=True, slots=True)
class Exchange:
    """A request, and what Apache's name server answered, if that is in the capture."""

    scenario: str
    line: int
    connection: int
    request: Command
    answer: Command | None

    def __str__(self) -> str:
        return f"{self.scenario}:{self.line}"


@functools.cache
def exchanges(scenario: str) -> tuple[Exchange, ...]:
    """The requests to the name server, in order."""
    requests: dict[tuple[int, int], tuple[int, Command]] = {}
    answers: dict[int, Command] = {}
    with gzip.open(DIRECTORY / f"{scenario}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, text in enumerate(lines, 1):
            record = json.loads(text)
            if record["to"] != "namesrv":
                continue
            (command,) = decoded(base64.b64decode(record["frame_b64"]))
            key = record["conn"], command.opaque
            if not command.is_response:
                requests[key] = number, command
            elif key in requests:
                answers[requests[key][0]] = command
    return tuple(
        Exchange(scenario, number, connection, request, answers.get(number))
        for (connection, _), (number, request) in sorted(requests.items(), key=lambda one: one[1][0])
    )


@dataclasses.dataclass(frozen=True, slots=True)
class Registration:
    """A registration of the master."""

    request: Command
    body: RegisterBrokerBody

    @property
    def topics(self) -> dict[str, TopicConfig]:
        return self.body.topic_config_serialize_wrapper.topic_config_table

    def of(self, topics: dict[str, TopicConfig]) -> Command:
        """The same registration of these topics."""
        wrapper = dataclasses.replace(self.body.topic_config_serialize_wrapper, topic_config_table=topics)
        body = RegisterBrokerBody(wrapper).encode()
        fields = {**self.request.ext_fields, "bodyCrc32": str(body_crc(body))}
        return dataclasses.replace(self.request, ext_fields=fields, body=body)


def registrations(scenarios: tuple[str, ...]) -> Iterator[Registration]:
    for exchange in (one for scenario in scenarios for one in exchanges(scenario)):
        request = exchange.request
        if request.code == RequestCode.REGISTER_BROKER and request.ext_fields["brokerName"] == "broker-w":
            assert request.body is not None
            if request.ext_fields["brokerId"] == "0" and not is_compressed(request.body):
                yield Registration(request, RegisterBrokerBody.decode(request.body))


def catch_up(server: QuietServer, scenarios: tuple[str, ...], wire: Wire) -> None:
    """Register what the broker must have registered before the first of these scenarios.

    Those are the topics of its next registration of all topics, but for those that it registers one by one until
    then.
    """
    registered_then: set[str] = set()
    for registration in registrations(scenarios):
        if len(registration.topics) == 1:
            registered_then |= registration.topics.keys()
            continue
        missing = {
            topic: config
            for topic, config in registration.topics.items()
            if topic not in server.table.topics and topic not in registered_then
        }
        if not server.table.brokers:
            assert server.ask_with(registration.of(missing), wire).code == ResponseCode.SUCCESS
            return
        for topic, config in missing.items():
            assert server.ask_with(registration.of({topic: config}), wire).code == ResponseCode.SUCCESS
        return


@functools.cache
def lived(life: tuple[str, ...]) -> dict[str, list[tuple[Exchange, Command]]]:
    """The exchanges of all scenarios of a life, with our answers."""
    server = QuietServer(listen_port=9986)
    brokers = Wire()
    answered: dict[str, list[tuple[Exchange, Command]]] = {}
    for at, scenario in enumerate(life):
        if scenario not in BROKERLESS:
            catch_up(server, life[at:], brokers)
        answered[scenario] = [(one, server.ask_with(one.request, brokers)) for one in exchanges(scenario)]
    return answered


SCENARIOS = [pytest.param(life, scenario, id=scenario) for life in LIVES for scenario in life]


@pytest.mark.parametrize(("life", "scenario"), SCENARIOS)
def test_every_request_is_answered_as_apache_answers_it(life: tuple[str, ...], scenario: str) -> None:
    assert lived(life)[scenario]
    for exchange, ours in lived(life)[scenario]:
        theirs = exchange.answer
        if theirs is None or str(exchange) in TAKEN_HERE | SEEN_HERE:
            assert ours.code == ResponseCode.SUCCESS
            continue
        message = f"{exchange}: {exchange.request}"
        assert ours.code == theirs.code, message
        assert ours.ext_fields == theirs.ext_fields, message
        assert (ours.language, ours.version, ours.flag) == (theirs.language, theirs.version, theirs.flag)
        assert ours.remark == (None if str(exchange) in REMARKED_THERE else theirs.remark), message
        assert _comparable(exchange.request.code, ours.body) == _comparable(exchange.request.code, theirs.body), (
            message
        )


def _comparable(code: int, body: bytes | None) -> object:
    """Bodies are the same byte for byte, but for what is listed above."""
    assert body is None or body
    if body is None:
        return None
    if code == RequestCode.GET_NAMESRV_CONFIG:
        settings = parse_conf(body.decode())
        return [(key, None if key in OF_THE_MACHINE else value) for key, value in settings.items()]
    if code in LISTS:
        lists = loads(body)
        return {**lists, "topicList": sorted(lists["topicList"])}
    return body


def test_every_captured_scenario_with_a_name_server_in_it_is_played() -> None:
    everything = {path.name.removesuffix(".jsonl.gz") for path in DIRECTORY.glob("*.jsonl.gz")}
    assert everything - {scenario for life in LIVES for scenario in life} == {"ha_stream"}
    assert sum(len(exchanges(scenario)) for life in LIVES for scenario in life) > 750


def test_a_compressed_registration_with_a_wrong_flag_is_accepted() -> None:
    answers = {str(exchange): ours for exchange, ours in lived(BINARY_LIFE)["broker_register_binary_compressed"]}
    for taken in TAKEN_HERE:
        assert answers[taken].code == ResponseCode.SUCCESS
    for seen in SEEN_HERE:
        assert b'"broker-w"' in (answers[seen].body or b"")
