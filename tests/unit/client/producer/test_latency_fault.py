"""Which brokers are avoided, and for how long."""

from __future__ import annotations

import pytest

from orbitmq.client.producer.latency_fault import LADDER_4_9, LADDER_5, FaultLadder, LatencyFaults


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize(
    ("latency", "five", "four"),
    [
        (0.0, 0, 0),
        (0.049, 0, 0),
        (0.05, 0, 0),
        (0.549, 0, 0),
        (0.55, 2, 30),
        (0.999, 2, 30),
        (1.0, 2, 60),
        (1.8, 5, 60),
        (2.0, 5, 120),
        (3.0, 6, 180),
        (5.0, 10, 180),
        (14.9, 10, 180),
        (15.0, 30, 600),
        (100.0, 30, 600),
    ],
)
def test_the_longer_a_send_took_the_longer_its_broker_is_avoided(latency: float, five: float, four: float) -> None:
    assert LADDER_5.seconds(latency) == five
    assert LADDER_4_9.seconds(latency) == four


def test_a_failure_counts_as_a_long_latency() -> None:
    for ladder, seconds in ((LADDER_5, 10), (LADDER_4_9, 600)):
        time = Time()
        faults = LatencyFaults(ladder, time)
        faults.update("a", 0.001, failed=True)
        time.now += seconds - 0.01
        assert not faults.is_available("a")
        time.now += 0.02
        assert faults.is_available("a")


def test_a_broker_that_nobody_sent_to_is_good() -> None:
    faults = LatencyFaults(LADDER_5, Time())
    assert faults.is_available("a")
    assert faults.is_reachable("a")
    assert faults.least_bad() is None


def test_since_5_a_good_send_does_not_end_the_time_of_being_avoided() -> None:
    time = Time()
    faults = LatencyFaults(LADDER_5, time)
    faults.update("a", 0.1, failed=True)
    faults.update("a", 0.001)
    faults.update("a", 0.6)
    assert not faults.is_available("a")
    time.now += 9.9
    assert not faults.is_available("a")


def test_since_5_a_worse_send_makes_it_longer() -> None:
    time = Time()
    faults = LatencyFaults(LADDER_5, time)
    faults.update("a", 0.6)
    faults.update("a", 6.0)
    time.now += 9.9
    assert not faults.is_available("a")


def test_up_to_4_9_the_last_send_decides() -> None:
    faults = LatencyFaults(LADDER_4_9, Time())
    faults.update("a", 0.1, failed=True)
    faults.update("a", 0.001)
    assert faults.is_available("a")


def test_of_four_bad_ones_the_two_better_take_turns() -> None:
    faults = LatencyFaults(LADDER_4_9, Time())
    for broker, latency in (("a", 16.0), ("b", 2.5), ("c", 0.6), ("d", 0.01)):
        faults.update(broker, latency)
    assert {faults.least_bad() for _ in range(10)} == {"d", "c"}


def test_a_ladder_must_go_up_and_have_a_time_for_each_step() -> None:
    with pytest.raises(ValueError, match="as many"):
        FaultLadder((1.0, 2.0), (1.0,), 10)
    with pytest.raises(ValueError, match="must ascend"):
        FaultLadder((2.0, 1.0), (1.0, 2.0), 10)


async def test_a_broker_that_answers_a_probe_is_reachable_again() -> None:
    time = Time()
    faults = LatencyFaults(LADDER_5, time)
    asked: list[str] = []
    answers: dict[str, bool | None] = {"a": False, "b": True, "c": None}

    async def is_well(name: str) -> bool | None:
        asked.append(name)
        return answers[name]

    for broker in "abc":
        faults.update(broker, 0.1, failed=True, is_reachable=False)
    await faults.probe(2.0, is_well)
    assert asked == ["a", "b", "c"]
    assert [faults.is_reachable(broker) for broker in "abc"] == [False, True, True]
    await faults.probe(2.0, is_well)
    assert asked == ["a", "b", "c"]
    time.now += 2.1
    answers["a"] = True
    await faults.probe(2.0, is_well)
    assert asked == ["a", "b", "c", "a", "b"]
    assert faults.is_reachable("a")
    assert not faults.is_available("a")
