"""Queues are shared out as the Java client does it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import Any

import pytest

from orbitmq.client.consumer.allocate_strategy import (
    AllocateAveragely,
    AllocateAveragelyByCircle,
    AllocateByConfig,
    AllocateByMachineRoom,
    AllocateConsistentHash,
    AllocateMachineRoomNearby,
    Strategy,
    java_order,
    md5_hash,
)
from orbitmq.client.errors import InvalidMessageError
from orbitmq.protocol.bodies import MessageQueue
from support.paths import DATA

ANSWERS = DATA / "client" / "allocation.jsonl.gz"
"""Random questions with the answers of Apache's client, made by ``peers.allocation_answers``."""

CLIENTS = ["10.0.0.1@A", "10.0.0.1@B", "10.0.0.2@A"]
QUEUES = [MessageQueue("TopicTest", "broker-a", number) for number in range(8)]


class Prefixes:
    """A room is what stands before the first hyphen."""

    def broker_deploy_in(self, queue: MessageQueue) -> str:
        return self.consumer_deploy_in(queue.broker_name)

    def consumer_deploy_in(self, client_id: str) -> str:
        room, hyphen, _ = client_id.partition("-")
        return room if hyphen else ""


def strategy(kind: str, question: dict[str, Any]) -> Strategy:
    match kind:
        case "AVG":
            return AllocateAveragely()
        case "AVG_BY_CIRCLE":
            return AllocateAveragelyByCircle()
        case "CONSISTENT_HASH":
            return AllocateConsistentHash(question["virtual_nodes"])
        case "CONFIG":
            return AllocateByConfig(queues(question["configured"]))
        case "MACHINE_ROOM":
            return AllocateByMachineRoom(question["rooms"])
    assert kind == "MACHINE_ROOM_NEARBY"
    return AllocateMachineRoomNearby(strategy(question["inner"], question), Prefixes())


def queues(described: list[list[Any]]) -> list[MessageQueue]:
    return [MessageQueue(*parts) for parts in described]


def test_all_recorded_answers_of_the_java_client_are_given() -> None:
    kinds: Counter[str] = Counter()
    errors = 0
    for line in gzip.decompress(ANSWERS.read_bytes()).splitlines():
        question = json.loads(line)
        chosen = strategy(question["strategy"], question)
        assert chosen.name == question["name"]
        asked = ("group", question["client_id"], queues(question["queues"]), question["client_ids"])
        if "error" in question:
            with pytest.raises(InvalidMessageError):
                chosen.allocate(*asked)
            errors += 1
        else:
            assert chosen.allocate(*asked) == queues(question["share"]), question
        kinds[question["strategy"]] += 1
    assert len(kinds) == 6
    assert kinds.total() == 1000
    assert 10 < errors < 200


@pytest.mark.parametrize(
    "chosen", [AllocateAveragely(), AllocateAveragelyByCircle(), AllocateConsistentHash()], ids=lambda one: one.name
)
def test_every_queue_has_one_owner(chosen: Strategy) -> None:
    shares = [chosen.allocate("group", client, QUEUES, CLIENTS) for client in CLIENTS]
    assert sorted(queue for share in shares for queue in share) == QUEUES


def test_the_ring_hashes_as_java_does() -> None:
    assert md5_hash("10.0.0.1@A-0") == 2601033215
    shares = [AllocateConsistentHash().allocate("group", client, QUEUES, CLIENTS) for client in CLIENTS]
    assert [[queue.queue_id for queue in share] for share in shares] == [[3, 4], [0, 5, 6], [1, 2, 7]]


def test_few_queues_move_when_a_member_leaves_the_ring() -> None:
    many = [MessageQueue("TopicTest", "broker-a", number) for number in range(64)]
    before = {client: AllocateConsistentHash().allocate("group", client, many, CLIENTS) for client in CLIENTS}
    for client in CLIENTS[:2]:
        after = AllocateConsistentHash().allocate("group", client, many, CLIENTS[:2])
        assert set(before[client]) <= set(after)


def test_a_ring_can_have_another_hash_function() -> None:
    # All places are behind the queues' hashes: the first of them owns everything.
    def places(text: str) -> int:
        return 0 if text.startswith("MessageQueue") else CLIENTS.index(text.rpartition("-")[0]) + 5

    by_length = AllocateConsistentHash(1, places)
    assert by_length.allocate("group", CLIENTS[0], QUEUES, CLIENTS) == QUEUES
    assert by_length.allocate("group", CLIENTS[1], QUEUES, CLIENTS) == []


def test_a_ring_cannot_have_fewer_than_no_places() -> None:
    with pytest.raises(InvalidMessageError, match="not -1"):
        AllocateConsistentHash(-1)


def test_a_client_that_is_no_member_yet_gets_nothing() -> None:
    assert AllocateAveragely().allocate("group", "10.0.0.9@Z", QUEUES, CLIENTS) == []


def test_what_is_configured_does_not_depend_on_the_members() -> None:
    assert AllocateByConfig(QUEUES[:2]).allocate("group", "", [], []) == QUEUES[:2]


def test_a_broker_whose_room_is_not_known_is_an_error() -> None:
    nearby = AllocateMachineRoomNearby(AllocateAveragely(), Prefixes())
    with pytest.raises(InvalidMessageError, match="machine room"):
        nearby.allocate("group", "hz-1", [MessageQueue("TopicTest", "nowhere", 0)], ["hz-1"])


def test_texts_sort_by_the_units_that_java_compares() -> None:
    # Outside the first plane a character is two units, which sort before the last characters of that plane.
    assert sorted(["\uff5e", "\U0001f680", "a"], key=java_order) == ["a", "\U0001f680", "\uff5e"]
