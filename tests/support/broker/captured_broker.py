"""A captured real broker: its frames in order, and its state at the start of a scenario."""

from __future__ import annotations

import base64
import dataclasses
import functools
from collections import Counter
from typing import TYPE_CHECKING, Any

from orbitmq.platform.settings import parse_conf
from orbitmq.protocol.bodies import (
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    is_compressed,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.fastjson import loads
from orbitmq.protocol.message.properties import parse
from orbitmq.protocol.message.record import iter_records
from orbitmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_HALF_TOPIC
from support.remoting_harness import decoded
from support.wire_captures import LIVES, records

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.message.record import Record

PORTS = dict(zip(LIVES, (14911, 17911), strict=True))

SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
REPLIES = frozenset({RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2})
PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
OF_RECORDS = PULLS | {RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID}
"""Requests that are answered with messages."""

PULL_ANSWERS = frozenset({0, 19, 20, 21})
"""Codes of answers that tell the ends of a queue."""

MADE_BESIDE = "%RETRY%GG_"
"""Topics of groups that a proxy created while tools were captured."""


@dataclasses.dataclass(slots=True)
class Frame:
    """A frame to or from a broker, and for a request the answer that was captured, if one was."""

    line: int
    connection: int
    is_vip: bool
    to_broker: bool
    time_ms: int
    wire: bytes
    command: Command
    answer: Command | None = None
    answer_to: Frame | None = None


@functools.cache
def frames(scenario: str) -> tuple[Frame, ...]:
    """The frames to and from the master, in order."""
    found: list[Frame] = []
    requests: dict[tuple[int, bool, int], Frame] = {}
    for number, record in enumerate(records(scenario), 1):
        if record["to"] not in ("broker", "broker-fast"):
            continue
        wire = base64.b64decode(record["frame_b64"])
        (command,) = decoded(wire)
        to_broker = record["dir"] == "c2s"
        vip = record["to"] == "broker-fast"
        frame = Frame(number, record["conn"], vip, to_broker, int(record["t_ms"]), wire, command)
        found.append(frame)
        if not command.is_response:
            requests[frame.connection, to_broker, command.opaque] = frame
            continue
        request = requests.get((frame.connection, not to_broker, command.opaque))
        if request is not None:
            request.answer, frame.answer_to = command, request
    return tuple(found)


def answered(scenario: str, code: int) -> Iterator[tuple[Command, bytes]]:
    """Requests with a code, and the bodies with which they were answered."""
    for one in frames(scenario):
        if one.to_broker and one.command.code == code and one.answer is not None and one.answer.body is not None:
            yield one.command, one.answer.body


def life_of(scenario: str) -> tuple[str, ...]:
    return next(life for life in LIVES if scenario in life)


# Settings and topics


@functools.cache
def captured_settings(scenario: str) -> dict[str, str]:
    """The settings of the captured broker, from its response in one of two scenarios."""
    scenario_of_request = "admin2" if scenario == "admin2" else "admin"
    _, body = next(answered(scenario_of_request, RequestCode.GET_BROKER_CONFIG))
    return parse_conf(body.decode())


def is_of_this_run(key: str) -> bool:
    """Settings about the machine, the paths and the sizes of files, which are others here."""
    machine = (
        "bindAddress",
        "brokerIP2",
        "listenPort",
        "haListenPort",
        "namesrvAddr",
        "rocketmqHome",
        "maxIndexNum",
    )
    return key in machine or key.startswith(("storePath", "mappedFileSize"))


@functools.cache
def registered(scenario: str) -> tuple[dict[str, TopicConfig], ...]:
    """The topics of each registration of the master in a scenario."""
    tables = []
    for record in records(scenario):
        if record["to"] != "namesrv":
            continue
        (command,) = decoded(base64.b64decode(record["frame_b64"]))
        if command.code != RequestCode.REGISTER_BROKER or command.is_response or command.body is None:
            continue
        fields = command.ext_fields
        if fields["brokerName"] == "broker-w" and fields["brokerId"] == "0" and not is_compressed(command.body):
            wrapper = RegisterBrokerBody.decode(command.body).topic_config_serialize_wrapper
            tables.append(wrapper.topic_config_table)
    return tuple(tables)


def topics_before(scenario: str) -> dict[str, TopicConfig]:
    """Those of the next registration of all topics, but for those that are registered one by one until then.

    Settings are those of the last registration before, for they may be changed in the scenario.
    """
    life = life_of(scenario)
    at = life.index(scenario)
    known = {
        name: config for earlier in life[:at] for table in registered(earlier) for name, config in table.items()
    }
    created: set[str] = set()
    for table in (table for later in life[at:] for table in registered(later)):
        if len(table) > 1:
            known = {name: known.get(name, config) for name, config in table.items()}
            break
        created |= table.keys() - known.keys()
    for _, body in answered(scenario, RequestCode.GET_ALL_TOPIC_CONFIG):
        table = TopicConfigSerializeWrapper.decode(body).topic_config_table
        known |= {name: config for name, config in table.items() if name.startswith(MADE_BESIDE)}
    return {name: config for name, config in known.items() if name not in created}


# Messages


def start_ms(scenario: str) -> int:
    """When the first packet of a scenario was captured: messages say when they were born."""
    for one in frames(scenario):
        born = one.command.ext_fields.get("g") or one.command.ext_fields.get("bornTimestamp") or ""
        # The first message: one that is sent again was born long before.
        if one.to_broker and one.command.code in SENDS and born.isdigit():
            return int(born) - one.time_ms
    for one in frames(scenario):
        # Java and Node count the versions of subscriptions in milliseconds.
        version = one.command.ext_fields.get("subVersion", "")
        if len(version) == len("1794773335090"):
            return int(version) - one.time_ms
    return max((record.store_timestamp for record in records_in(scenario).values()), default=1_794_773_335_090) + 1


@functools.cache
def raw_records(scenario: str) -> dict[int, bytes]:
    """All records in the answers of a scenario, by their places in the log."""
    found = {}
    for code in OF_RECORDS:
        for _, body in answered(scenario, code):
            at = 0
            for record in iter_records(body):
                found[record.physical_offset] = body[at : at + record.size]
                at += record.size
    return dict(sorted(found.items()))


@functools.cache
def records_in(scenario: str) -> dict[int, Record]:
    """The same, decoded."""
    return {place: next(iter_records(raw)) for place, raw in raw_records(scenario).items()}


def records_before(scenario: str) -> dict[int, Record]:
    """Those that were there when the scenario began."""
    begin = start_ms(scenario)
    first_sent = min((place for one in frames(scenario) if (place := place_of(one)) is not None), default=1 << 62)
    return {
        place: record
        for place, record in records_in(scenario).items()
        if record.store_timestamp < begin and place < first_sent
    }


def place_of(one: Frame) -> int | None:
    """Where the captured broker put a message that it was sent in its log."""
    if one.command.code not in SENDS | REPLIES or one.answer is None or "msgId" not in one.answer.ext_fields:
        return None
    return int(one.answer.ext_fields["msgId"][16:32], 16)


def properties_of(send: Command) -> dict[str, str]:
    return parse(send.ext_fields.get("i") or send.ext_fields.get("properties") or "")


def has_transactions(scenario: str) -> bool:
    return any(one.command.code == RequestCode.END_TRANSACTION for one in frames(scenario))


def queue_ends_before(scenario: str) -> dict[tuple[str, int], int]:
    """The number of messages of each queue, as far as the capture has it."""
    first: dict[tuple[str, int], int] = {}
    maxima: dict[tuple[str, int], int] = {}
    unseen: Counter[tuple[str, int]] = Counter()
    before = records_before(scenario)

    def note(topic: str, queue_id: int | str, end: int) -> None:
        maxima[topic, int(queue_id)] = max(maxima.get((topic, int(queue_id)), 0), end)

    for place, record in records_in(scenario).items():
        key = record.topic, record.queue_id
        note(*key, record.queue_offset + 1)
        if place not in before:
            first[key] = min(first.get(key, record.queue_offset), record.queue_offset)
    for one in frames(scenario):
        request, answer, fields = one.command, one.answer, one.command.ext_fields
        topic = fields.get("topic") or fields.get("b") or ""
        if answer is None:
            if request.code in SENDS and one.to_broker and topic:
                unseen[topic, int(fields["e"])] += 1
            continue
        if answer.code not in PULL_ANSWERS:
            continue
        for _, of_topic, queue_id, stats in progress_in(request, answer.body):
            note(of_topic, queue_id, stats["brokerOffset"])
        if request.code in SENDS:
            properties = properties_of(request)
            level = int(properties.get("DELAY", 0))
            key = (SCHEDULE_TOPIC, level - 1) if level else (topic, int(answer.ext_fields["queueId"]))
            if properties.get("TRAN_MSG") == "true":
                key = TRANSACTION_HALF_TOPIC, 0
            if "recallHandle" in answer.ext_fields:
                key = TIMER_TOPIC, 0
            end = int(answer.ext_fields["queueOffset"]) - unseen[key]
            first[key] = min(first.get(key, end), end)
        elif request.code in PULLS:
            note(topic, fields["queueId"], int(answer.ext_fields["maxOffset"]))
        elif request.code == RequestCode.GET_MAX_OFFSET and not answer.code:
            note(topic, fields["queueId"], int(answer.ext_fields["offset"]))
        elif request.code == RequestCode.GET_ALL_DELAY_OFFSET and answer.body:
            for number, end in loads(answer.body)["offsetTable"].items():
                note(SCHEDULE_TOPIC, int(number) - 1, end)
        elif request.code == RequestCode.CONSUMER_SEND_MSG_BACK and fields["delayLevel"] > "0":
            unseen[SCHEDULE_TOPIC, int(fields["delayLevel"]) - 1] += 1
        elif request.code == RequestCode.GET_TOPIC_STATS_INFO and answer.body:
            for queue, stats in loads(answer.body)["offsetTable"].items():
                at = dict(queue.items)
                note(at["topic"], at["queueId"], stats["maxOffset"])
    return {**maxima, **first}


def progress_in(request: Command, body: bytes | None) -> Iterator[tuple[str, str, int, dict[str, int]]]:
    """Consumer offsets in responses to tools: group, topic, queue id, offsets."""
    tables: list[tuple[str, dict[str, Any]]] = []
    if body is not None and request.code == RequestCode.GET_CONSUME_STATS:
        tables = [(request.ext_fields["consumerGroup"], loads(body))]
    elif body is not None and request.code == RequestCode.GET_BROKER_CONSUME_STATS:
        for by_group in loads(body)["consumeStatsList"]:
            tables += [(group, table) for group, of_group in by_group.items() for table in of_group]
    for group, table in tables:
        for queue, stats in table["offsetTable"].items():
            at = dict(queue.items)
            yield group, at["topic"], at["queueId"], stats
