"""Probes: whether every service of the servers still works after the frames."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, TypeAlias

from faults.fuzz.canary import GROUP, QUEUES, TOPIC, canary_body
from faults.fuzz.safety import BROKER_NAME
from faults.fuzz.talk import Client, records
from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.client_registry_harness import heartbeat

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from faults.fuzz.server import FuzzedServer
    from orbitmq.protocol.command.command import Command

Probe: TypeAlias = "Callable[[Client, Client, str], None]"
"""Called with a client of the broker, one of the name server and a suffix for names; an AssertionError says
what does not work."""

PATIENCE = 60.0
REVIVED = 48
"""Messages that are popped one by one: their checkpoints go to all revive queues."""
_PAUSE = 0.05
_TRANSACTION = 4


def probe_all(server: FuzzedServer, suffix: str) -> Iterator[tuple[str, str | None, float]]:
    """The name of each probe, what it found wrong, and how long it took."""
    for probe in (revive, check_back, timer, delay_level, sql_filter, route, registration, statistics):
        began = time.monotonic()
        problem = None
        try:
            broker, names = Client(server.broker), Client(server.name_server)
            probe(broker, names, suffix)
            broker.close()
            names.close()
        except (AssertionError, OSError) as error:
            problem = f"{type(error).__name__}: {error}"
        yield probe.__name__, problem, time.monotonic() - began


def revive(broker: Client, _: Client, suffix: str) -> None:
    """Popped messages that nobody acknowledges come back, whichever revive queue has their checkpoint."""
    topic, group = f"probe-revive-{suffix}", f"probe-revive-group-{suffix}"
    _succeeds(broker.create_topic(topic, 1))
    expected = {f"revived {number}".encode() for number in range(REVIVED)}
    for body in sorted(expected):
        _succeeds(broker.send(topic, body))
    queues: dict[bytes, int] = {}

    def pop_once() -> bool:
        for popped in broker.pop(topic, group, most=1, invisible_ms=1000):
            queues.setdefault(popped.record.body, popped.receipt.revive_queue)
        return queues.keys() == expected

    _until(pop_once, lambda: f"popped {len(queues)} of {REVIVED}")
    again: set[bytes] = set()

    def come_back() -> bool:
        for popped in broker.pop(topic, group, most=32, invisible_ms=60_000):
            if popped.record.reconsume_times > 0:
                again.add(popped.record.body)
                _succeeds(broker.ack(popped, group))
        return again == expected

    _until(
        come_back,
        lambda: (
            f"{len(again)} of {REVIVED} came back; "
            f"not of revive queues {sorted({queues[body] for body in expected - again})}"
        ),
    )


def check_back(broker: Client, _: Client, suffix: str) -> None:
    """The producer of a half message is asked about it."""
    group, topic = f"probe-transactions-{suffix}", f"probe-transaction-{suffix}"
    body = heartbeat(f"probe@{suffix}", producers=[group]).encode()
    _succeeds(broker.ask(RequestCode.HEART_BEAT, body=body))
    key = f"PROBE{suffix}"
    properties = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": group}
    _succeeds(broker.send(topic, b"half", 0, properties, group=group, sys_flag=_TRANSACTION))
    question = broker.asked(RequestCode.CHECK_TRANSACTION_STATE, PATIENCE)
    assert question is not None, "no question about a half message"
    assert question.ext_fields.get("msgId") == key, f"a question about {question.ext_fields}"


def timer(broker: Client, _: Client, suffix: str) -> None:
    """A message for a time is delivered."""
    deliver = str(int(time.time() * 1000) + 2000)
    _is_delivered(broker, f"probe-timer-{suffix}", {"TIMER_DELIVER_MS": deliver})


def delay_level(broker: Client, _: Client, suffix: str) -> None:
    """A message of the first delay level is delivered."""
    _is_delivered(broker, f"probe-delay-{suffix}", {"DELAY": "1"})


def sql_filter(broker: Client, _: Client, suffix: str) -> None:
    """A pull with an SQL92 expression gets what matches, and nothing else."""
    topic = f"probe-sql-{suffix}"
    for number in range(10):
        _succeeds(broker.send(topic, str(number).encode(), 0, {"number": str(number)}))
    found: list[bytes] = []

    def pull() -> bool:
        answer = broker.pull(topic, 0, group=f"probe-sql-group-{suffix}", expression="number > 6", kind="SQL92")
        found[:] = [record.body for record in records(answer)]
        return len(found) == 3

    _until(pull, lambda: f"pulled {found}")
    assert found == [b"7", b"8", b"9"], found


def route(broker: Client, names: Client, suffix: str) -> None:
    """The name server knows the route to a topic that a send has made."""
    topic = f"probe-route-{suffix}"
    _succeeds(broker.send(topic, b"routed"))
    _until(lambda: _has_route(names, topic), lambda: f"no route to {topic}")


def registration(broker: Client, names: Client, suffix: str) -> None:
    """A new topic reaches the name server, and the broker is among its brokers."""
    topic = f"probe-registration-{suffix}"
    _succeeds(broker.create_topic(topic, 4))
    _until(lambda: _has_route(names, topic), lambda: f"no route to {topic}")
    cluster = _succeeds(names.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body or b""
    assert BROKER_NAME.encode() in cluster, cluster


def statistics(broker: Client, _: Client, suffix: str) -> None:
    """Tools get the state of the broker and of topics and groups."""
    topic, group = f"probe-statistics-{suffix}", f"probe-statistics-group-{suffix}"
    _succeeds(broker.send(topic, b"counted"))
    _succeeds(broker.pull(topic, 0, group=group))
    runtime = _succeeds(broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)).body or b""
    assert "putTps" in json.loads(runtime)["table"], runtime
    table = _succeeds(broker.ask(RequestCode.GET_TOPIC_STATS_INFO, {"topic": topic})).body or b""
    assert topic.encode() in table, table
    _succeeds(broker.ask(RequestCode.GET_CONSUME_STATS, {"consumerGroup": group}))
    _succeeds(broker.ask(RequestCode.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": topic}))


def canary_messages(server: FuzzedServer, acknowledged: list[int]) -> str | None:
    """Read every message that the canary was promised; what is missing or different."""
    broker = Client(server.broker)
    for queue_id in range(QUEUES):
        offset = 0
        while offset < acknowledged[queue_id]:
            found = records(broker.pull(TOPIC, offset, queue_id, group=GROUP))
            if not found:
                return f"queue {queue_id} of {TOPIC} has {offset} of {acknowledged[queue_id]} messages"
            for record in found:
                if record.body != canary_body(queue_id, offset):
                    return f"queue {queue_id} of {TOPIC} has {record.body!r} at {offset}"
                offset += 1
    broker.close()
    return None


def _is_delivered(broker: Client, topic: str, properties: dict[str, str]) -> None:
    _succeeds(broker.create_topic(topic, 1))
    _succeeds(broker.send(topic, b"later", 0, properties))
    assert not records(broker.pull(topic, 0, group="probe-later")), "delivered at once"
    _until(
        lambda: [record.body for record in records(broker.pull(topic, 0, group="probe-later"))] == [b"later"],
        lambda: "not delivered",
    )


def _has_route(names: Client, topic: str) -> bool:
    answer = names.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return answer.code == ResponseCode.SUCCESS and BROKER_NAME.encode() in (answer.body or b"")


def _succeeds(answer: Command) -> Command:
    assert answer.code == ResponseCode.SUCCESS, f"{answer.code} {answer.remark}"
    return answer


def _until(condition: Callable[[], bool], said: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"{said()} within {PATIENCE:g} s"
        time.sleep(_PAUSE)
