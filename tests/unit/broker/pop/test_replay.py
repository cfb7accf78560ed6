"""Captured requests of POP consumers to Apache's broker are sent again here, and answered the same.

A broker is made to know what the captured one knew: messages, those that came again, where groups were. Then the
frames are played with the clock at the times of the captured pops, and the broker draws what that one drew.
"""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.broker.long_polling import table
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.fastjson import loads
from orbitmq.protocol.message.pop_receipt import RETRY_V1, parse_starts, pop_retry_topic
from orbitmq.protocol.message.properties import encode, parse
from orbitmq.protocol.message.record import iter_records
from orbitmq.store import StoredMessage
from orbitmq.testing import ManualClock
from support.broker.broker_harness import BrokerPeer, running_broker
from support.broker.captured_broker import SENDS, captured_settings, frames, is_of_this_run, start_ms, topics_before
from support.broker.pop_harness import let_pass

if TYPE_CHECKING:
    from orbitmq.broker import Broker
    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.message.record import Record
    from support.broker.captured_broker import Frame

SCENARIOS = ["java_json_14_pop_push_consumer", "java_json_15_pop_direct"]

OF_POP = frozenset(
    {
        *(RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE),
        *(RequestCode.PEEK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.NOTIFICATION),
        *(RequestCode.POLLING_INFO, RequestCode.QUERY_ASSIGNMENT, RequestCode.SET_MESSAGE_REQUEST_MODE),
    }
)
WITH_MESSAGES = frozenset({RequestCode.POP_MESSAGE, RequestCode.PEEK_MESSAGE})
RETRY_FIRST_DRAWS = range(20)
OTHER_DRAWS = range(20, 100)


@pytest.fixture(autouse=True)
def _time_that_passes_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "SWEEP_SECONDS", 0.001)


def of_pop(scenario: str) -> list[Frame]:
    return [one for one in frames(scenario) if one.to_broker and one.command.code in OF_POP]


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_every_request_of_pop_is_answered_as_apache_answers_it(scenario: str) -> None:
    life = await live(scenario)
    asked = of_pop(scenario)
    assert [one.line for one in asked if one.answer is not None] == sorted(life.answers)
    found = {
        f"{scenario}:{one.line}": differences(one, life.answers[one.line])
        for one in asked
        if one.answer is not None
    }
    assert {name: different for name, different in found.items() if different} == {}


def test_the_captures_have_all_requests_of_pop() -> None:
    codes = {one.command.code for scenario in SCENARIOS for one in of_pop(scenario)}
    assert codes == OF_POP
    answers = [one.answer.code for scenario in SCENARIOS for one in of_pop(scenario) if one.answer is not None]
    assert len(answers) >= 30
    assert set(answers) == {
        *(ResponseCode.SUCCESS, ResponseCode.POLLING_TIMEOUT, ResponseCode.NO_MESSAGE),
        *(ResponseCode.TOPIC_NOT_EXIST, ResponseCode.INVALID_PARAMETER),
    }


# What was there before


def make_before(broker: Broker, scenario: str) -> None:
    """Messages that were popped and not sent, and where groups were when they popped first."""
    for group, topic, kind, queue_id, start in first_starts(scenario):
        real = topic if kind != RETRY_V1 else pop_retry_topic(topic, group)
        broker.offsets.commit(group, real, queue_id, start)
    ends: dict[tuple[str, int], int] = {}
    for one in frames(scenario):
        fields = one.command.ext_fields
        if one.command.code in SENDS and one.answer is not None and "b" in fields:
            key = fields["b"], int(one.answer.ext_fields["queueId"])
            ends.setdefault(key, int(one.answer.ext_fields["queueOffset"]))
    known = {
        (record.topic, record.queue_id, record.queue_offset): record
        for record in captured_records(scenario)
        if record.store_timestamp < start_ms(scenario)
    }
    for topic, queue_id, offset in known:
        if (topic, queue_id) not in ends or topic.startswith("%RETRY%"):
            ends[topic, queue_id] = max(ends.get((topic, queue_id), 0), offset + 1)
    for (topic, queue_id), end in ends.items():
        for offset in range(end):
            put(broker, topic, queue_id, known.get((topic, queue_id, offset)))


def put(broker: Broker, topic: str, queue_id: int, record: Record | None) -> None:
    if record is None:
        broker.store.append(StoredMessage(topic, queue_id, b"before", born_host=bytes(8)))
        return
    broker.store.append(
        StoredMessage(
            topic,
            queue_id,
            record.body,
            record.properties,
            flag=record.flag,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_timestamp,
            born_host=record.born_host,
            reconsume_times=record.reconsume_times,
        )
    )


def captured_records(scenario: str) -> list[Record]:
    """The messages in captured answers as they lay in the log."""
    found = []
    for one in frames(scenario):
        if not one.to_broker or one.command.code not in WITH_MESSAGES or one.answer is None:
            continue
        for record in iter_records(one.answer.body or b""):
            properties = parse(record.properties)
            if properties.pop("POP_CK", None) is not None:
                fields = one.command.ext_fields
                record.topic = pop_retry_topic(fields["topic"], fields["consumerGroup"])
                record.properties = encode(properties)
            found.append(record)
    return found


def first_starts(scenario: str) -> list[tuple[str, str, str, int, int]]:
    """Group, topic, kind, queue and offset of the first pop of each."""
    seen: dict[tuple[str, str, str, int], int] = {}
    for one in frames(scenario):
        fields = one.command.ext_fields
        if one.to_broker and one.command.code == RequestCode.POP_MESSAGE and one.answer is not None:
            starts = parse_starts(one.answer.ext_fields.get("startOffsetInfo", ""))
            for (kind, queue_id), start in starts.items():
                seen.setdefault((fields["consumerGroup"], fields["topic"], kind, queue_id), start)
    return [(*key, start) for key, start in seen.items()]


# Living through it


async def live(scenario: str) -> Life:
    settings: dict[str, Any] = {
        key: text for key, text in captured_settings(scenario).items() if not is_of_this_run(key)
    }
    clock = ManualClock(start_ms(scenario))
    async with running_broker(clock=clock, **(settings | {"reviveInterval": 10**9})) as broker:
        broker.topics.update(*topics_before(scenario).values())
        make_before(broker, scenario)
        broker.pop.peeks.draw = lambda: OTHER_DRAWS[1]
        life = Life(scenario, broker, clock)
        try:
            for one in frames(scenario):
                await life.play(one)
        finally:
            for peer in life.peers.values():
                await peer.leave()
        return life


@dataclasses.dataclass(slots=True)
class Life:
    """A scenario while it is played."""

    scenario: str
    broker: Broker
    clock: ManualClock
    peers: dict[int, BrokerPeer] = dataclasses.field(default_factory=dict)
    answers: dict[int, Command] = dataclasses.field(default_factory=dict)
    """By the lines of the requests."""
    is_counted: bool = False

    async def play(self, one: Frame) -> None:
        if one.connection not in self.peers:
            self.peers[one.connection] = await BrokerPeer.to(self.broker, vip=one.is_vip)
        peer = self.peers[one.connection]
        if one.to_broker and not one.command.is_response:
            await self.go_to(self.time_of(one))
            self.draw_for(one)
            peer.send(one.wire)
            await peer.catch_up()
        elif one.command.is_response and one.answer_to is not None and one.answer_to.command.code in OF_POP:
            request = one.answer_to.command
            if request.opaque not in peer.answers and "popTime" in one.command.ext_fields:
                self.draw_for(one.answer_to)
                await self.go_to(int(one.command.ext_fields["popTime"]))
            self.answers[one.answer_to.line] = await peer.answer_to(request.opaque)

    def time_of(self, one: Frame) -> int:
        """The time at which the captured broker handled a request, known for pops that it answered at once."""
        fields = {} if one.answer is None else one.answer.ext_fields
        popped = int(fields.get("popTime", 0))
        born = int(one.command.ext_fields.get("bornTime", 0)) or popped
        if popped and popped - born < 1000:
            return popped
        if one.command.code in SENDS:
            for later in frames(self.scenario):
                woken = int(later.command.ext_fields.get("popTime", 0)) if later.line > one.line else 0
                if 0 <= woken - start_ms(self.scenario) - one.time_ms < 200:
                    return woken
        return start_ms(self.scenario) + one.time_ms - 1000

    async def go_to(self, time_ms: int) -> None:
        left = time_ms - self.clock.now_ms()
        if left > 0:
            let_pass(self.broker, self.clock, left)
            await asyncio.sleep(0.01)

    def draw_for(self, one: Frame) -> None:
        """Let the broker draw what the captured one drew, as far as its answer shows."""
        if one.command.code != RequestCode.POP_MESSAGE or one.answer is None:
            return
        fields = one.answer.ext_fields
        if not self.is_counted and fields["reviveQid"] not in {"999", "0"}:
            self.broker.pop.pops.pops = int(fields["reviveQid"])
            self.is_counted = True
        starts = list(parse_starts(fields.get("startOffsetInfo", "")))
        queues = self.broker.topics.configs.get(one.command.ext_fields["topic"])
        first = next((queue_id for kind, queue_id in starts if kind == "0"), 0)
        draws = RETRY_FIRST_DRAWS if starts and starts[0][0] == RETRY_V1 else OTHER_DRAWS
        count = 1 if queues is None else queues.read_queue_nums
        draw = next(draw for draw in draws if (draw + count - 1) % count == first)
        self.broker.pop.pops.draw = lambda: draw


# Comparing


def differences(one: Frame, ours: Command) -> list[str]:
    theirs = one.answer
    assert theirs is not None
    found = [
        f"{what}: {mine!r} instead of {captured!r}"
        for what, mine, captured in (
            ("code", ours.code, theirs.code),
            ("remark", without_port(ours.remark), without_port(theirs.remark)),
            ("fields", ours.ext_fields, theirs.ext_fields),
        )
        if mine != captured
    ]
    if one.command.code in WITH_MESSAGES:
        mine, captured = (sorted(map(described, iter_records(answer.body or b""))) for answer in (ours, theirs))
        found += [
            f"{left} instead of {right}" for left, right in zip(mine, captured, strict=False) if left != right
        ]
        if len(mine) != len(captured):
            found.append(f"{len(mine)} messages instead of {len(captured)}")
    elif (ours.body or theirs.body) and loads(ours.body or b"{}") != loads(theirs.body or b"{}"):
        found.append(f"{ours.body!r} instead of {theirs.body!r}")
    return found


def described(record: Record) -> tuple[object, ...]:
    """The part that is the same in every run.

    Messages that came again were put there by eight threads: which of them came first is not.
    """
    properties = parse(record.properties)
    receipt = properties.pop("POP_CK", "")
    came_again = bool(receipt) and record.store_timestamp > record.born_timestamp + 1000
    return (
        record.topic,
        record.queue_id,
        -1 if came_again else record.queue_offset,
        record.body,
        record.reconsume_times,
        record.flag,
        record.sys_flag,
        record.magic,
        record.born_timestamp,
        record.prepared_transaction_offset,
        receipt.rpartition(" ")[0],
        sorted(properties.items()),
    )


def without_port(remark: str | None) -> str | None:
    before, found, _ = (remark or "").partition("127.0.0.1:")
    return before if found else remark
