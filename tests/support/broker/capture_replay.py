"""Lets a broker live through a captured scenario again: what was there before, then frame by frame in its time.

A scenario is a part of the life of a real broker. Its state at the start of the capture is restored first: topics,
records at the places that they had in the log, offsets of groups. Then the clock follows the capture, every request
is sent in its time on its connection, and the answer is waited for when the captured one came.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

from orbitmq.broker.long_polling import table
from orbitmq.protocol.bodies import (
    MessageRequestModeSerializeWrapper,
    SubscriptionGroupWrapper,
    TimerMetricsSerializeWrapper,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.fastjson import loads
from orbitmq.protocol.message.message_id import decode_offset_id
from orbitmq.protocol.message.properties import parse
from orbitmq.protocol.names import SCHEDULE_TOPIC, TIMER_TOPIC, TRANSACTION_HALF_TOPIC
from orbitmq.store import StoredMessage
from orbitmq.testing import ManualClock
from support.broker.broker_harness import BrokerPeer, running_broker
from support.broker.captured_broker import (
    PORTS,
    PULLS,
    REPLIES,
    Frame,
    answered,
    captured_settings,
    frames,
    has_transactions,
    is_of_this_run,
    life_of,
    place_of,
    progress_in,
    queue_ends_before,
    raw_records,
    records_before,
    start_ms,
    topics_before,
)
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from orbitmq.broker.broker import Broker
    from orbitmq.protocol.command.command import Command

BEFORE = "Before"
"""A topic for what lay between the records that the capture knows of."""

MIN_RECORD = 91 + len(BEFORE)
MAX_BODY = 60_000
SECOND = 1000
"""Milliseconds. A connection without a further frame is closed then, as the captured ones were."""

MAX_WAIT = 60
"""Seconds of the scenario after which an answer that did not come will not come."""

NOT_SERVED = frozenset(
    {
        # POP, which is played for itself, with the clock at the times of the pops
        *(RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE),
        *(RequestCode.PEEK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.NOTIFICATION),
        RequestCode.POLLING_INFO,
        # Slaves and controllers
        *(
            RequestCode.EXCHANGE_BROKER_HA_INFO,
            RequestCode.GET_BROKER_HA_STATUS,
            RequestCode.GET_BROKER_EPOCH_CACHE,
        ),
        # Reading cold data slowly; users and their rights
        *(RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG),
        *(RequestCode.GET_COLD_DATA_FLOW_CTR_INFO, RequestCode.SET_COMMITLOG_READ_MODE),
        *(RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_LIST_USER, RequestCode.AUTH_LIST_ACL),
    }
)
"""Requests about what this broker does not do. They are left out."""

ON_REQUEST = {"transactionCheckInterval": 10**9, "transactionOpBatchInterval": 10**9}
"""The broker looks after transactions when the captured one did, and not when it would by the real time."""

NOTHING_CONSUMED = frozenset(
    {
        *(("CG_hb", "T_basic2"), ("CG_sqlbad", "T_sql")),
        ("CID_DefaultHeartBeatSyncerTopic", "DefaultHeartBeatSyncerTopic"),
    }
)
"""Groups that the captured broker named as consumers of a topic though they had no offsets there."""

Notified = tuple[int, int, tuple[tuple[str, str], ...]]
"""A request of the broker: connection, code, fields."""


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


@dataclasses.dataclass(slots=True)
class Lived:
    """All that happened."""

    exchanges: dict[int, Exchange] = dataclasses.field(default_factory=dict)
    """By the lines of the requests."""
    left_out: list[Frame] = dataclasses.field(default_factory=list)
    kept: set[int] = dataclasses.field(default_factory=set)
    """Places in the log at which the same messages are as then."""
    notified_there: list[Notified] = dataclasses.field(default_factory=list)
    notified_here: list[Notified] = dataclasses.field(default_factory=list)
    questions_there: list[Command] = dataclasses.field(default_factory=list)
    questions_here: list[Command] = dataclasses.field(default_factory=list)
    """The transaction checks that producers received."""
    unwanted: list[Command] = dataclasses.field(default_factory=list)
    """Answers to requests that want none."""


# What was there before


def make_records(broker: Broker, scenario: str) -> None:
    """Records that clients read without having sent them, where they were, and others in place of the rest."""
    store = broker.store
    known = records_before(scenario)
    ends = queue_ends_before(scenario)

    def fill(topic: str, queue_id: int, end: int) -> None:
        while store.max_offset(topic, queue_id) < end:
            store.append(StoredMessage(topic, queue_id, b"before", born_host=bytes(8)))

    begins = dict(ends)
    for record in known.values():
        key = record.topic, record.queue_id
        begins[key] = min(begins.get(key, record.queue_offset), record.queue_offset)
    for key, begin in begins.items():
        fill(*key, begin)
    for place, record in known.items():
        fill(record.topic, record.queue_id, record.queue_offset)
        pad(broker, place)
        store.append_raw(raw_records(scenario)[place], place)
        store.catch_up()
    for (topic, queue_id), end in ends.items():
        fill(topic, queue_id, end)
        if topic == TRANSACTION_HALF_TOPIC:
            broker.transactions.half_state(queue_id).pass_over(end)
        if topic == TIMER_TOPIC and broker.timer is not None:
            broker.timer.progress.queue_offset = end
        if topic == SCHEDULE_TOPIC:
            broker.schedule.levels[queue_id + 1].offset = broker.schedule.offsets[queue_id + 1] = end


def pad(broker: Broker, place: int) -> None:
    """Let the log end at a place, if it is not past it, or too near, already."""
    store = broker.store
    while (room := place - store.log.end) >= MIN_RECORD:
        size = room - MIN_RECORD
        store.append(
            StoredMessage(BEFORE, 0, b"x" * (size if size <= MAX_BODY else min(MAX_BODY, size - MIN_RECORD)))
        )


def make_offsets(broker: Broker, scenario: str) -> None:
    """The consumed and pulled offsets of groups that were queried before they were set."""
    offsets = broker.offsets
    settled: set[tuple[str, str, int]] = set()
    pulled: set[tuple[str, str, int]] = set()

    def commit(key: tuple[str, str, int], offset: int) -> None:
        if key not in settled:
            offsets.commit(*key, offset)
        settled.add(key)

    def commit_pull(key: tuple[str, str, int], offset: int) -> None:
        if key not in pulled:
            offsets.commit_pull(*key, offset)
        pulled.add(key)

    for one in frames(scenario):
        request, answer, fields = one.command, one.answer, one.command.ext_fields
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
        for group, topic, queue_id, stats in progress_in(request, answer.body):
            if stats["consumerOffset"] > 0 or stats["lastTimestamp"] > 0:
                commit((group, topic, queue_id), stats["consumerOffset"])
            if stats["pullOffset"] > 0:
                commit_pull((group, topic, queue_id), stats["pullOffset"])
        if request.code == RequestCode.GET_ALL_CONSUMER_OFFSET and answer.body is not None:
            for name, put in (("offsetTable", commit), ("pullOffsetTable", commit_pull)):
                for at, queues in loads(answer.body)[name].items():
                    topic, _, group = at.partition("@")
                    for queue_id, offset in queues.items():
                        put((group, topic, int(queue_id)), offset)
    # Last, groups of which only the names are known.
    for one in frames(scenario):
        body = None if one.answer is None else one.answer.body
        named = [(group, topic) for group, topic, _, _ in progress_in(one.command, body)]
        if one.command.code == RequestCode.QUERY_TOPIC_CONSUME_BY_WHO and body is not None:
            named += [(group, one.command.ext_fields["topic"]) for group in loads(body)["groupList"]]
        for group, topic in named:
            if not offsets.of_group(group, topic) and (group, topic) not in NOTHING_CONSUMED:
                commit((group, topic, 0), 0)


def make_groups_and_stats(broker: Broker, scenario: str) -> None:
    """Groups that were queried, and some of every statistic that was found."""
    for _, body in answered(scenario, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
        broker.groups.update(*SubscriptionGroupWrapper.decode(body).subscription_group_table.values())
    for _, body in answered(scenario, RequestCode.GET_ALL_MESSAGE_REQUEST_MODE):
        for modes in MessageRequestModeSerializeWrapper.decode(body).message_request_mode_map.values():
            for mode in modes.values():
                broker.pop.assignments.set(mode)
    for _, body in answered(scenario, RequestCode.GET_TIMER_METRICS):
        for topic in TimerMetricsSerializeWrapper.decode(body).timing_count:
            assert broker.timer is not None
            broker.timer.counts.add(topic, 0)
    for request, _ in answered(scenario, RequestCode.VIEW_BROKER_STATS_DATA):
        topic, _, group = request.ext_fields["statsKey"].partition("@")
        if request.ext_fields["statsName"] == "TOPIC_PUT_NUMS":
            broker.stats.put(topic, 0, 1, 100)
        elif request.ext_fields["statsName"] == "GROUP_GET_NUMS":
            broker.stats.got(group, topic, 0, 1, 100)


# Living through it


async def live(scenario: str) -> Lived:
    """Play a scenario to a new broker."""
    clock = ManualClock(start_ms(scenario) - SECOND)
    captured = captured_settings(scenario)
    settings: dict[str, Any] = {key: text for key, text in captured.items() if not is_of_this_run(key)}
    if has_transactions(scenario):
        settings |= ON_REQUEST
    async with running_broker(clock=clock, store_port=PORTS[life_of(scenario)], **settings) as broker:
        broker.topics.update(*topics_before(scenario).values())
        make_groups_and_stats(broker, scenario)
        make_records(broker, scenario)
        make_offsets(broker, scenario)
        life = Life(scenario, broker, clock)
        try:
            for one in frames(scenario):
                await life.go_to(one)
                await life.play(one)
        finally:
            for connection in tuple(life.peers):
                await life.leave(connection)
        return life.lived


class Life:
    """A scenario while it is played."""

    def __init__(self, scenario: str, broker: Broker, clock: ManualClock) -> None:
        self.scenario = scenario
        self.broker = broker
        self.clock = clock
        self.begin = start_ms(scenario)
        self.last_times = {one.connection: one.time_ms for one in frames(scenario)}
        self.peers: dict[int, BrokerPeer] = {}
        self.deadlines: dict[int, int] = {}
        """When pulls that are held end, by their lines."""
        self.places: dict[str, str] = {}
        """Of messages that are at other places in the log than they were, where they are."""
        self.lived = Lived(kept=set(records_before(scenario)))

    async def go_to(self, one: Frame) -> None:
        """Let time pass until a frame came.

        The real broker looks at held pulls every five seconds. So that they do not end here before something that
        it found then, time waits for the captured answer.
        """
        now = self.clock.now_ms()
        await self.wait(max(0, min([self.begin + one.time_ms, *self.deadlines.values()]) - now))
        for connection in tuple(self.peers):
            if self.last_times[connection] + SECOND < one.time_ms:
                await self.leave(connection)

    async def wait(self, ms: int) -> None:
        """Let time pass, and what is due happen."""
        self.clock.advance(ms)
        self.broker.schedule.deliver_due()
        while self.broker.timer is not None and self.broker.timer.run_slice() <= self.clock.now_ms():
            pass
        if len(self.broker.pulls.held):
            # Timers of one loop go off in their order: held pulls were looked at when this one does.
            await asyncio.sleep(2 * table.SWEEP_SECONDS)

    async def play(self, one: Frame) -> None:
        if one.connection not in self.peers:
            self.peers[one.connection] = await BrokerPeer.to(self.broker, vip=one.is_vip)
        peer = self.peers[one.connection]
        if one.to_broker and not one.command.is_response:
            await self.ask(one, peer)
        elif one.to_broker:
            if one.answer_to is not None:
                question = await peer.asked(one.answer_to.command.code)
                peer.send(dataclasses.replace(one.command, opaque=question.opaque).encode())
        elif one.command.is_response:
            if one.answer_to is not None and one.answer_to.line in self.lived.exchanges:
                self.deadlines.pop(one.answer_to.line, None)
                exchange = self.lived.exchanges[one.answer_to.line]
                exchange.ours = await self.answer(peer, one.answer_to.command)
                if exchange.is_moved:
                    self.places[real_queue_of(one.command)] = real_queue_of(exchange.ours)
        else:
            self.lived.notified_there.append(notification(one.connection, one.command))
            if one.command.code == RequestCode.CHECK_TRANSACTION_STATE:
                await self.question(one.command)

    async def question(self, theirs: Command) -> None:
        """The captured broker checked transactions, this one first or after others."""
        lived = self.lived
        lived.questions_there.append(theirs)
        if len(lived.questions_here) < len(lived.questions_there):
            pad(self.broker, int(theirs.ext_fields["commitLogOffset"]))
            await self.broker.checks.check()
            for peer in self.peers.values():
                await peer.catch_up()
                checks = [one for one in peer.requests if one.code == RequestCode.CHECK_TRANSACTION_STATE]
                lived.questions_here += [one for one in checks if one not in lived.questions_here]

    async def ask(self, one: Frame, peer: BrokerPeer) -> None:
        if one.command.code in NOT_SERVED:
            self.lived.left_out.append(one)
            return
        exchange = self.lived.exchanges[one.line] = Exchange(self.scenario, one.line, one.command, one.answer)
        place = place_of(one)
        if place is not None:
            # A reply is stored when the client has it, which may be before or after other messages are.
            is_pushed = one.command.code in REPLIES and one.answer is not None and not one.answer.code
            if not is_pushed:
                pad(self.broker, place)
            exchange.is_moved = is_pushed or self.broker.store.log.end != place
            if not exchange.is_moved:
                self.lived.kept.add(place)
        peer.send(self.ended_here(one.command) or one.wire)
        # What comes next may be on another connection, and must not overtake.
        await peer.catch_up()
        if one.command.code in PULLS and one.answer is not None and one.command.opaque not in peer.answers:
            self.deadlines[one.line] = self.clock.now_ms() + int(one.command.ext_fields["suspendTimeoutMillis"]) - 1

    def ended_here(self, request: Command) -> bytes | None:
        """The end of a transaction whose message is at another place here."""
        place = self.places.get(request.ext_fields.get("commitLogOffset", ""))
        if request.code != RequestCode.END_TRANSACTION or place is None:
            return None
        return dataclasses.replace(request, ext_fields={**request.ext_fields, "commitLogOffset": place}).encode()

    async def answer(self, peer: BrokerPeer, request: Command) -> Command | None:
        """The answer to a request. For a held pull time passes until it is answered."""
        if request.code not in PULLS:
            return await peer.answer_to(request.opaque)
        for _ in range(MAX_WAIT):
            await peer.catch_up()
            if request.opaque in peer.answers:
                return await peer.answer_to(request.opaque)
            await self.wait(SECOND)
        return None

    async def leave(self, connection: int) -> None:
        """Close a connection, note what came over it, and wait until the broker knows."""
        peer = self.peers.pop(connection)
        await peer.catch_up()
        self.lived.notified_here += [notification(connection, command) for command in peer.requests]
        oneway = {
            one.command.opaque
            for one in frames(self.scenario)
            if one.connection == connection and one.to_broker and one.command.is_oneway
        }
        self.lived.unwanted += [answer for opaque, answer in peer.answers.items() if opaque in oneway]
        address = peer.address
        await peer.leave()
        await eventually(lambda: address not in {known.remote_address for known in self.broker.connections})


def real_queue_of(answer: Command | None) -> str:
    """Where a message is in the log, as the answer to its send says."""
    message_id = "" if answer is None else answer.ext_fields.get("msgId", "")
    return str(decode_offset_id(message_id)[1]) if message_id and "," not in message_id else ""


def notification(connection: int, command: Command) -> Notified:
    fields = dict(command.ext_fields)
    if command.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
        # Every run has its own times, and its own ports.
        assert int(fields.pop("storeTimestamp")) > 0
        assert fields.pop("bornHost").startswith("127.0.0.1:")
        properties = parse(fields.pop("properties"))
        assert int(properties.pop("PUSH_REPLY_TIME")) > 0
        fields |= properties
    return connection, command.code, tuple(sorted(fields.items()))
