"""Lets a broker live through a captured scenario again: what was there before, then frame by frame in its time.

A scenario is a piece of the life of a real broker. What that one knew when the capture began is made first, from
what the capture itself tells: topics from registrations, records at the places that they had in the log, offsets of
groups. Then the clock follows the capture, every request is sent when and on the connection on which it was sent,
and the answer is waited for when the captured one came.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import dataclasses
import functools
import gzip
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from broker_ends import BrokerPeer, running_broker
from orbitmq.protocol.bodies import RegisterBrokerBody, SubscriptionGroupWrapper, TopicConfig, is_compressed
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.fastjson import loads
from orbitmq.protocol.properties import parse
from orbitmq.protocol.record import iter_records
from orbitmq.broker.schedule import SCHEDULE_TOPIC
from orbitmq.settings import parse_conf
from orbitmq.testing import ManualClock
from remoting_ends import decoded, eventually
from wire_captures import DIRECTORY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.broker.server import Broker
    from orbitmq.protocol.command import Command
    from orbitmq.protocol.record import Record

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
"""The scenarios of the two brokers that were captured, in their order."""

MADE_BESIDE = "%RETRY%GG_"
"""Topics of groups that a proxy created while tools were captured."""

BEFORE_RECORDS = "Before"
"""A topic for what lay between the records that the capture knows of."""

LEAST_RECORD = 91 + len(BEFORE_RECORDS)
SECOND = 1000
"""Milliseconds. A connection without a further frame is closed then, as the captured ones were."""

SENDS = frozenset({RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE})
PULLS = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE})
OF_RECORDS = PULLS | {RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID}
"""Requests that are answered with messages."""

FROM_ELSEWHERE = frozenset({"TRAN_MSG", "TIMER_OUT_MS", "TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"})
ELSEWHERE = frozenset(
    {
        # Transactions, timers, request and reply
        *(RequestCode.END_TRANSACTION, RequestCode.RECALL_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
        # POP
        *(RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE),
        *(RequestCode.PEEK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.NOTIFICATION),
        *(RequestCode.POLLING_INFO, RequestCode.QUERY_ASSIGNMENT, RequestCode.SET_MESSAGE_REQUEST_MODE),
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        # Slaves, controllers
        *(RequestCode.GET_TIMER_CHECK_POINT, RequestCode.GET_TIMER_METRICS),
        *(RequestCode.EXCHANGE_BROKER_HA_INFO, RequestCode.GET_BROKER_HA_STATUS, RequestCode.GET_BROKER_EPOCH_CACHE),
        # Reading cold data slowly, users and their rights
        *(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG),
        *(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, RequestCode.SET_COMMITLOG_READ_MODE),
        *(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL),
    }
)
"""What this broker does not do; nothing is compared."""

ASKED_ELSEWHERE = frozenset({RequestCode.CHECK_TRANSACTION_STATE, RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT})
"""What a broker that does it asks of clients."""

PORTS = dict(zip(LIVES, (14911, 17911), strict=True))


def is_of_this_run(key: str) -> bool:
    """Settings about the machine, the paths and the sizes of files, which are others here."""
    machine = ("bindAddress", "brokerIP2", "listenPort", "haListenPort", "namesrvAddr", "rocketmqHome", "maxIndexNum")
    return key in machine or key.startswith(("storePath", "mappedFileSize"))


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
    """What went to the master and what came from it, in order."""
    found: list[Frame] = []
    asked: dict[tuple[int, bool, int], Frame] = {}
    for number, record in _lines(scenario):
        if record["to"] not in ("broker", "broker-fast"):
            continue
        wire = base64.b64decode(record["frame_b64"])
        (command,) = decoded(wire)
        to_broker = record["dir"] == "c2s"
        vip = record["to"] == "broker-fast"
        frame = Frame(number, record["conn"], vip, to_broker, int(record["t_ms"]), wire, command)
        found.append(frame)
        if not command.is_response:
            asked[frame.connection, to_broker, command.opaque] = frame
            continue
        request = asked.get((frame.connection, not to_broker, command.opaque))
        if request is not None:
            request.answer, frame.answer_to = command, request
    return tuple(found)


def _lines(scenario: str) -> Iterator[tuple[int, dict[str, object]]]:
    with gzip.open(DIRECTORY / f"{scenario}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for number, text in enumerate(lines, 1):
            yield number, json.loads(text)


# What was there before


@functools.cache
def captured_settings(scenario: str) -> dict[str, str]:
    """The settings of the broker that was captured, as it told them; nobody asked but in two scenarios."""
    for one in frames("admin2" if scenario == "admin2" else "admin"):
        if one.command.code == RequestCode.GET_BROKER_CONFIG and one.answer is not None and one.answer.body:
            return parse_conf(one.answer.body.decode())
    raise AssertionError("nobody asked")


@functools.cache
def registered(scenario: str) -> tuple[dict[str, TopicConfig], ...]:
    """The topics of each registration of the master in a scenario."""
    tables = []
    for _, record in _lines(scenario):
        if record["to"] != "namesrv":
            continue
        (command,) = decoded(base64.b64decode(str(record["frame_b64"])))
        if command.code != RequestCode.REGISTER_BROKER or command.is_response or command.body is None:
            continue
        fields = command.ext_fields
        if fields["brokerName"] == "broker-w" and fields["brokerId"] == "0" and not is_compressed(command.body):
            wrapper = RegisterBrokerBody.decode(command.body).topic_config_serialize_wrapper
            tables.append(wrapper.topic_config_table)
    return tuple(tables)


def life_of(scenario: str) -> tuple[str, ...]:
    return next(life for life in LIVES if scenario in life)


def topics_before(scenario: str) -> dict[str, TopicConfig]:
    """Those of the next registration of all topics, but for those that are registered one by one until then.

    Settings are those of the last registration before, for they may be changed in the scenario.
    """
    life = life_of(scenario)
    at = life.index(scenario)
    known = {name: config for earlier in life[:at] for table in registered(earlier) for name, config in table.items()}
    created: set[str] = set()
    for table in (table for later in life[at:] for table in registered(later)):
        if len(table) > 1:
            return {name: known.get(name, config) for name, config in table.items() if name not in created}
        created |= {name for name in table.keys() - known.keys() if not name.startswith(MADE_BESIDE)}
    return {name: config for name, config in known.items() if name not in created}


def start_ms(scenario: str) -> int:
    """When the first packet of a scenario was captured: messages say when they were born."""
    born = [
        int(fields.get("g") or fields["bornTimestamp"]) - one.time_ms
        for one in frames(scenario)
        if one.to_broker and one.command.code in SENDS
        for fields in [one.command.ext_fields]
        if (fields.get("g") or fields.get("bornTimestamp") or "").isdigit()
    ]
    if born:
        # The first one: a message that is sent again was born long before.
        return born[0]
    # Java and Node count the versions of subscriptions in milliseconds.
    versions = [
        int(one.command.ext_fields["subVersion"]) - one.time_ms
        for one in frames(scenario)
        if len(one.command.ext_fields.get("subVersion", "")) == len("1794773335090")
    ]
    seen = [record.store_timestamp + 1 for record in records_in(scenario).values()]
    return versions[0] if versions else max(seen, default=1_794_773_335_090)


@functools.cache
def records_in(scenario: str) -> dict[int, Record]:
    """All records in the answers of a scenario, by their places in the log."""
    bodies = [
        one.command.body
        for one in frames(scenario)
        if one.answer_to is not None and one.answer_to.command.code in OF_RECORDS and one.command.body is not None
    ]
    found = {record.physical_offset: record for body in bodies for record in iter_records(body)}
    return dict(sorted(found.items()))


def place_of(one: Frame) -> int | None:
    """Where the captured broker put a message that it was sent in its log."""
    if one.command.code not in SENDS or one.answer is None or "msgId" not in one.answer.ext_fields:
        return None
    return int(one.answer.ext_fields["msgId"][16:32], 16)


def queue_ends_before(scenario: str, old: dict[int, Record]) -> dict[tuple[str, int], int]:
    """How many messages each queue had."""
    first: dict[tuple[str, int], int] = {}
    told: dict[tuple[str, int], int] = {}
    unanswered: Counter[tuple[str, int]] = Counter()
    for record in records_in(scenario).values():
        key = record.topic, record.queue_id
        if record.physical_offset not in old:
            first[key] = min(first.get(key, record.queue_offset), record.queue_offset)
        told[key] = max(told.get(key, 0), record.queue_offset + 1)
    for one in frames(scenario):
        request, answer = one.command, one.answer
        if request.code in SENDS and one.to_broker and answer is None and "b" in request.ext_fields:
            unanswered[request.ext_fields["b"], int(request.ext_fields["e"])] += 1
        if answer is None or answer.code not in (0, 19, 20, 21):
            continue
        fields = request.ext_fields
        topic, queue_id = fields.get("topic") or fields.get("b"), answer.ext_fields.get("queueId")
        if request.code in SENDS and topic and queue_id and not is_elsewhere(request):
            delay = parse(fields.get("i") or fields.get("properties") or "").get("DELAY", "0")
            key, end = (topic, int(queue_id)), int(answer.ext_fields["queueOffset"])
            if delay != "0":
                key = SCHEDULE_TOPIC, int(delay) - 1
            first[key] = min(first.get(key, end), end - unanswered[key])
        elif request.code in PULLS and topic:
            key = topic, int(fields["queueId"])
            told[key] = max(told.get(key, 0), int(answer.ext_fields["maxOffset"]))
        elif request.code == RequestCode.GET_MAX_OFFSET and topic and not answer.code:
            key = topic, int(fields["queueId"])
            told[key] = max(told.get(key, 0), int(answer.ext_fields["offset"]))
        elif request.code == RequestCode.GET_ALL_DELAY_OFFSET and answer.body:
            for level, end in loads(answer.body)["offsetTable"].items():
                told[SCHEDULE_TOPIC, int(level) - 1] = end
        elif request.code == RequestCode.CONSUMER_SEND_MSG_BACK and fields["delayLevel"] > "0":
            unanswered[SCHEDULE_TOPIC, int(fields["delayLevel"]) - 1] += 1
        elif request.code == RequestCode.GET_TOPIC_STATS_INFO and answer.body:
            for queue, stats in loads(answer.body)["offsetTable"].items():
                at = dict(queue.items)
                key = at["topic"], at["queueId"]
                told[key] = max(told.get(key, 0), stats["maxOffset"])
        for _, topic, queue_id, stats in progress_in(one):
            told[topic, queue_id] = max(told.get((topic, queue_id), 0), stats["brokerOffset"])
    return {**told, **first}


def progress_in(one: Frame) -> Iterator[tuple[str, str, int, dict[str, int]]]:
    """What tools were told about how far groups had consumed: group, topic, queue id, offsets."""
    if one.answer is None or one.answer.body is None:
        return
    tables: list[tuple[str, dict[str, Any]]] = []
    if one.command.code == RequestCode.GET_CONSUME_STATS:
        tables = [(one.command.ext_fields["consumerGroup"], loads(one.answer.body))]
    elif one.command.code == RequestCode.GET_BROKER_CONSUME_STATS:
        by_group = loads(one.answer.body)["consumeStatsList"]
        tables = [(group, table) for some in by_group for group, all_ in some.items() for table in all_]
    for group, table in tables:
        for queue, stats in table["offsetTable"].items():
            at = dict(queue.items)
            yield group, at["topic"], at["queueId"], stats


def make_records(broker: Broker, scenario: str) -> set[int]:
    """Records that clients read without having sent them, where they were, and others in place of the rest.

    Returns the places of the first.
    """
    store = broker.store
    sent = [place for one in frames(scenario) if (place := place_of(one)) is not None]
    begin = start_ms(scenario)
    old = {
        place: record
        for place, record in records_in(scenario).items()
        if record.store_timestamp < begin and place < min(sent, default=1 << 62)
    }
    ends = queue_ends_before(scenario, old)

    def fill(topic: str, queue_id: int, end: int) -> None:
        while store.max_offset(topic, queue_id) < end:
            store.append(topic, queue_id, b"before", born_host=bytes(8))

    leading: dict[tuple[str, int], int] = dict(ends)
    for record in old.values():
        key = record.topic, record.queue_id
        leading[key] = min(leading.get(key, record.queue_offset), record.queue_offset)
    for (topic, queue_id), end in leading.items():
        fill(topic, queue_id, end)
    for place, record in old.items():
        fill(record.topic, record.queue_id, record.queue_offset)
        pad(broker, place)
        store.append_raw(raw_records(scenario)[place], place)  # refused at any other place
        store.catch_up()
    for (topic, queue_id), end in ends.items():
        fill(topic, queue_id, end)
        if topic == SCHEDULE_TOPIC:
            broker.schedule.levels[queue_id + 1].offset = broker.schedule.offsets[queue_id + 1] = end
    return set(old)


@functools.cache
def raw_records(scenario: str) -> dict[int, bytes]:
    found = {}
    for one in frames(scenario):
        if one.answer_to is not None and one.answer_to.command.code in OF_RECORDS and one.command.body is not None:
            at = 0
            for record in iter_records(one.command.body):
                found[record.physical_offset] = one.command.body[at : at + record.size]
                at += record.size
    return found


def pad(broker: Broker, place: int) -> None:
    """Let the log end at a place, if it is not past it already."""
    room = place - broker.store.log.end - LEAST_RECORD
    if room < 0:
        return
    while room > 0:
        size = min(room, 60_000) if room < 60_000 or room - 60_000 > LEAST_RECORD else room - LEAST_RECORD
        appended = broker.store.append(BEFORE_RECORDS, 0, b"x" * size)
        room -= appended.size
    if room == 0:
        broker.store.append(BEFORE_RECORDS, 0, b"")
    assert broker.store.log.end == place, (broker.store.log.end, place)


def make_offsets(broker: Broker, scenario: str) -> None:
    """What groups had consumed, as far as somebody asked before it was set."""
    settled: set[tuple[str, str, int]] = set()
    pulled: set[tuple[str, str, int]] = set()
    offsets = broker.offsets

    def commit(key: tuple[str, str, int], offset: int) -> None:
        if key not in settled:
            offsets.commit(*key, offset)
        settled.add(key)

    for one in frames(scenario):
        request, answer = one.command, one.answer
        fields = request.ext_fields
        if request.code in PULLS | {RequestCode.UPDATE_CONSUMER_OFFSET} and one.to_broker and "topic" in fields:
            key = fields["consumerGroup"], fields["topic"], int(fields["queueId"])
            (pulled if request.code in PULLS else settled).add(key)
        if answer is None:
            continue
        if request.code == RequestCode.QUERY_CONSUMER_OFFSET:
            key = fields["consumerGroup"], fields["topic"], int(fields["queueId"])
            offset = int(answer.ext_fields.get("offset", -1))
            # A group that never consumed a queue begins at 0 too, if there is something at 0.
            if offset > 0 or (offset == 0 and broker.store.max_offset(*key[1:]) == 0):
                commit(key, offset)
            settled.add(key)
        for group, topic, queue_id, stats in progress_in(one):
            key = group, topic, queue_id
            if stats["consumerOffset"] > 0 or stats["lastTimestamp"] > 0:
                commit(key, stats["consumerOffset"])
            if key not in pulled and request.code == RequestCode.GET_CONSUME_STATS and stats["pullOffset"] > 0:
                offsets.commit_pull(*key, stats["pullOffset"])
        if request.code == RequestCode.GET_ALL_CONSUMER_OFFSET and answer.body is not None:
            body = loads(answer.body)
            for name, put, known in (
                ("offsetTable", offsets.commit, settled),
                ("pullOffsetTable", offsets.commit_pull, pulled),
            ):
                for at, queues in body[name].items():
                    topic, _, group = at.partition("@")
                    for queue_id, offset in queues.items():
                        if (group, topic, int(queue_id)) not in known:
                            put(group, topic, int(queue_id), offset)
        if request.code == RequestCode.QUERY_TOPIC_CONSUME_BY_WHO and answer.body is not None:
            topic = fields["topic"]
            for group in loads(answer.body)["groupList"]:
                if not offsets.of_group(group, topic) and (group, topic) not in NOTHING_CONSUMED:
                    commit((group, topic, 0), 0)


def make_groups(broker: Broker, scenario: str) -> None:
    for one in frames(scenario):
        if one.command.code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG and one.answer and one.answer.body:
            for config in SubscriptionGroupWrapper.decode(one.answer.body).subscription_group_table.values():
                broker.groups.update(config)
            return


def make_stats(broker: Broker, scenario: str) -> None:
    """Of what there were statistics, there are some."""
    for one in frames(scenario):
        if one.command.code == RequestCode.VIEW_BROKER_STATS_DATA and one.answer is not None and not one.answer.code:
            name, key = one.command.ext_fields["statsName"], one.command.ext_fields["statsKey"]
            topic, _, group = key.partition("@")
            if name == "TOPIC_PUT_NUMS":
                broker.stats.put(topic, 0, 1, 100)
            elif name == "GROUP_GET_NUMS":
                broker.stats.got(group, topic, 0, 1, 100)


NOTHING_CONSUMED = frozenset({("CG_hb", "T_basic2"), ("CG_sqlbad", "T_sql")})
"""Groups that the captured broker named as consumers of a topic without offsets and without clients."""


# Living through it


@dataclasses.dataclass(slots=True)
class Exchange:
    """A request that was sent again, what was answered then, and what is answered here."""

    scenario: str
    line: int
    request: Command
    theirs: Command | None
    ours: Command | None = None
    is_moved: bool = False
    """Whether the message is at another place in the log than it was, because what is before it is longer here."""

    def __str__(self) -> str:
        return f"{self.scenario}:{self.line}"


Told = tuple[int, int, tuple[tuple[str, str], ...]]
"""A request of the broker: connection, code, fields."""


@dataclasses.dataclass(slots=True)
class Lived:
    """All that happened."""

    exchanges: list[Exchange] = dataclasses.field(default_factory=list)
    skipped: list[Frame] = dataclasses.field(default_factory=list)
    kept: set[int] = dataclasses.field(default_factory=set)
    """Places in the log at which the same messages are as then."""
    told_there: list[Told] = dataclasses.field(default_factory=list)
    told_here: list[Told] = dataclasses.field(default_factory=list)
    """What the broker asked or told its clients."""


def is_elsewhere(request: Command) -> bool:
    """Whether a request is about something that this broker does not do."""
    if request.code in SENDS:
        properties = parse(request.ext_fields.get("i") or request.ext_fields.get("properties") or "")
        return properties.get("TRAN_MSG") == "true" or any(name.startswith("TIMER_DEL") for name in properties)
    return request.code in ELSEWHERE


async def live(scenario: str) -> Lived:
    begin = start_ms(scenario)
    clock = ManualClock(begin - 1000)
    settings = {key: text for key, text in captured_settings(scenario).items() if not is_of_this_run(key)}
    lived = Lived()
    async with running_broker(clock=clock, store_port=PORTS[life_of(scenario)], **settings) as broker:
        broker.topics.update(*topics_before(scenario).values())
        make_groups(broker, scenario)
        lived.kept |= make_records(broker, scenario)
        make_offsets(broker, scenario)
        make_stats(broker, scenario)
        async with contextlib.AsyncExitStack() as stack:
            last_times = {one.connection: one.time_ms for one in frames(scenario)}
            peers: dict[int, BrokerPeer] = {}
            answered: dict[int, Exchange] = {}
            for one in frames(scenario):
                clock.advance(max(0, begin + one.time_ms - clock.now_ms()))
                for gone in [number for number, last in last_times.items() if last + SECOND < one.time_ms]:
                    del last_times[gone]
                    lived.told_here += told_to(gone, peers[gone])
                    await leave(broker, peers.pop(gone))
                if one.connection not in peers:
                    peers[one.connection] = await stack.enter_async_context(
                        BrokerPeer.of(broker, vip=one.is_vip)
                    )
                peer = peers[one.connection]
                if one.to_broker and not one.command.is_response:
                    if is_elsewhere(one.command):
                        lived.skipped.append(one)
                        continue
                    exchange = Exchange(scenario, one.line, one.command, one.answer)
                    lived.exchanges.append(exchange)
                    answered[one.line] = exchange
                    place = place_of(one)
                    if place is not None:
                        pad(broker, place)
                        exchange.is_moved = broker.store.log.end != place
                    put_what_others_made(broker, one.answer, clock.now_ms())
                    peer.send(one.wire)
                    if one.command.is_oneway or one.answer is None:
                        await asyncio.sleep(0.002)
                    elif place is not None:
                        # The next message is put behind it.
                        await peer.has_answer_to(one.command.opaque)
                        if not exchange.is_moved:
                            lived.kept.add(place)
                elif not one.to_broker and one.command.is_response:
                    request = one.answer_to
                    if request is None or request.line not in answered:
                        continue
                    put_what_others_made(broker, one.command)
                    answered[request.line].ours = await _answer(peer, clock, request.command)
                elif one.to_broker and one.answer_to is not None and one.answer_to.command.code not in ASKED_ELSEWHERE:
                    asked = await _asked(peer, one.answer_to.command.code)
                    peer.send(dataclasses.replace(one.command, opaque=asked.opaque).encode())
                elif not one.to_broker and one.command.code not in ASKED_ELSEWHERE:
                    lived.told_there.append(told(one.connection, one.command))
            for number, peer in peers.items():
                lived.told_here += told_to(number, peer)
    return lived


def told(connection: int, command: Command) -> Told:
    return connection, command.code, tuple(sorted(command.ext_fields.items()))


def told_to(connection: int, peer: BrokerPeer) -> list[Told]:
    return [told(connection, command) for command in peer.requests]


async def leave(broker: Broker, peer: BrokerPeer) -> None:
    """Close a connection, and wait until the broker knows."""
    address = peer.address
    await peer.leave()
    await eventually(lambda: address not in {known.remote_address for known in broker.connections})


def put_what_others_made(broker: Broker, answer: Command | None, now_ms: int = 1 << 62) -> None:
    """Messages that come out of transactions and timers are put where they came out."""
    if answer is None or answer.code or answer.body is None or "maxOffset" not in answer.ext_fields:
        return
    for record in iter_records(answer.body):
        is_there = broker.store.max_offset(record.topic, record.queue_id) > record.queue_offset
        is_foreign = not parse(record.properties).keys().isdisjoint(FROM_ELSEWHERE)
        if is_foreign and not is_there and record.store_timestamp <= now_ms:
            pad(broker, record.physical_offset)
            broker.store.append(
                record.topic,
                record.queue_id,
                record.body,
                record.properties,
                flag=record.flag,
                sys_flag=record.sys_flag,
                born_timestamp=record.born_timestamp,
                born_host=record.born_host,
                reconsume_times=record.reconsume_times,
                prepared_transaction_offset=record.prepared_transaction_offset,
            )


async def _asked(peer: BrokerPeer, code: int) -> Command:
    """What the broker asked of a client."""
    found: list[Command] = []

    def is_there() -> bool:
        found[:] = [one for one in peer.requests if one.code == code and one.opaque not in peer.replied]
        return bool(found)

    await eventually(is_there)
    peer.replied.add(found[0].opaque)
    return found[0]


async def _answer(peer: BrokerPeer, clock: ManualClock, request: Command) -> Command | None:
    for _ in range(60):
        try:
            return await peer.answer_to(request.opaque, 0.3)
        except TimeoutError:
            # A pull that was held. The real broker looks at them every few seconds, at other times than this one.
            clock.advance(1000)
    return None
