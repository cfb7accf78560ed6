"""Which queue a message goes to."""

from __future__ import annotations

import pytest

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.message import Message
from orbitmq.client.producer.latency_fault import LADDER_4_9, LADDER_5, LatencyFaults
from orbitmq.client.producer.queue_selector import RoundRobin, by_hash, by_random, index_by_hash, java_hash
from orbitmq.protocol.bodies import MessageQueue

QUEUES = [MessageQueue("t", broker, number) for broker in ("a", "b", "c") for number in range(2)]
ANY = Message("t", b"x")


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_every_queue_gets_its_turn() -> None:
    round_robin = RoundRobin()
    chosen = [round_robin.next(QUEUES) for _ in range(2 * len(QUEUES))]
    assert sorted(chosen[: len(QUEUES)]) == QUEUES
    assert chosen[: len(QUEUES)] == chosen[len(QUEUES) :]


def test_producers_begin_at_different_queues() -> None:
    assert len({RoundRobin().next(QUEUES) for _ in range(200)}) == len(QUEUES)


def test_the_turn_goes_on_after_the_largest_number() -> None:
    round_robin = RoundRobin()
    round_robin._at = 0x7FFFFFFE
    assert [round_robin.next(QUEUES).queue_id for _ in range(3)] == [(0x7FFFFFFF % 6) % 2, 0, 1]


def test_after_a_failure_another_broker_is_chosen() -> None:
    round_robin = RoundRobin()
    for _ in range(20):
        assert round_robin.next_elsewhere(QUEUES, "b").broker_name != "b"


def test_where_there_is_no_other_broker_the_same_one_is_chosen_again() -> None:
    only = QUEUES[:2]
    assert RoundRobin().next_elsewhere(only, "a") in only


def test_a_broker_that_failed_is_passed_over_while_it_is_avoided() -> None:
    time = Time()
    faults = LatencyFaults(LADDER_5, time)
    faults.update("a", 0.01, failed=True)
    round_robin = RoundRobin()
    assert {round_robin.next_good(QUEUES, None, faults).broker_name for _ in range(60)} == {"b", "c"}
    time.now += 10.1
    assert {round_robin.next_good(QUEUES, None, faults).broker_name for _ in range(60)} == {"a", "b", "c"}


def test_if_all_are_avoided_one_that_is_reachable_is_better_than_none() -> None:
    faults = LatencyFaults(LADDER_5, Time())
    for broker in "abc":
        faults.update(broker, 0.01, failed=True, is_reachable=broker == "c")
    assert {RoundRobin().next_good(QUEUES, None, faults).broker_name for _ in range(60)} == {"c"}


def test_if_nothing_is_reachable_something_is_tried_all_the_same() -> None:
    faults = LatencyFaults(LADDER_5, Time())
    for broker in "abc":
        faults.update(broker, 0.01, failed=True, is_reachable=False)
    assert {RoundRobin().next_good(QUEUES, "a", faults).broker_name for _ in range(200)} == {"a", "b", "c"}


def test_a_retry_goes_past_the_last_broker_even_if_it_is_good() -> None:
    faults = LatencyFaults(LADDER_5, Time())
    assert {RoundRobin().next_good(QUEUES, "b", faults).broker_name for _ in range(60)} == {"a", "c"}


def test_up_to_4_9_the_better_half_of_the_bad_ones_is_tried_if_all_are_bad() -> None:
    faults = LatencyFaults(LADDER_4_9, Time())
    for broker, latency in (("a", 0.6), ("b", 1.5), ("c", 20.0)):
        faults.update(broker, latency)
    assert {RoundRobin().next_good(QUEUES, None, faults).broker_name for _ in range(20)} == {"a"}


def test_up_to_4_9_a_bad_one_without_queues_is_forgotten() -> None:
    faults = LatencyFaults(LADDER_4_9, Time())
    for broker, latency in (("gone", 0.6), ("b", 20.0)):
        faults.update(broker, latency)
    only = [queue for queue in QUEUES if queue.broker_name == "b"]
    assert RoundRobin().next_good(only, None, faults) in only
    assert faults.least_bad() == "b"


def test_up_to_4_9_a_good_one_is_chosen_whatever_failed_last() -> None:
    faults = LatencyFaults(LADDER_4_9, Time())
    assert {RoundRobin().next_good(QUEUES, "a", faults).broker_name for _ in range(100)} == {"a", "b", "c"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", 0),
        ("order-1", -1207111310),
        ("订单", 1129459),
        ("polygenelubricants", -(2**31)),
        (7, 7),
        (-7, -7),
        (2**40 + 5, 261),
        (-(2**40), -256),
        (True, 1231),
        (False, 1237),
    ],
)
def test_values_hash_as_in_java(value: object, expected: int) -> None:
    assert java_hash(value) == expected


def test_a_value_that_java_has_not_is_refused() -> None:
    for value in (2**70, 1.5, None, b"x"):
        with pytest.raises(InvalidMessageError, match="hash of a text"):
            java_hash(value)


def test_the_sign_of_a_hash_goes_after_the_division() -> None:
    assert index_by_hash("order-1", 4) == 1207111310 % 4
    assert index_by_hash("polygenelubricants", 7) == 2**31 % 7
    assert by_hash(QUEUES, ANY, "order-1") == QUEUES[1207111310 % 6]


def test_a_random_queue_is_any_of_them() -> None:
    assert {by_random(QUEUES, ANY, None) for _ in range(300)} == set(QUEUES)
