"""Elections: who becomes master, in which epoch, and with which answer."""

from __future__ import annotations

import dataclasses

import pytest

from orbitmq.controller.machine.events import MasterElected
from orbitmq.protocol.codes import ResponseCode
from support.controller_harness import Alive, after, alive, elect, group_of, report_of


def test_the_first_broker_to_request_it_wins_the_first_election_without_a_heartbeat() -> None:
    group = group_of(1, 2)
    decision = elect(group, alive(), 2)
    assert decision.event == MasterElected("broker-a", 2, 1)
    elected = after(group, decision)
    assert elected is not None
    assert (elected.master, elected.in_sync, elected.master_epoch, elected.set_epoch) == (2, (2,), 1, 1)


def test_the_first_election_prefers_the_longest_log_where_the_controller_has_lost_its_state() -> None:
    found = elect(group_of(1, 2), alive(_1=report_of(7, 100), _2=report_of(7, 90)), 2)
    assert found.event == MasterElected("broker-a", 1, 8)


def test_an_unknown_group_or_broker_has_to_register_first() -> None:
    assert elect(group_of(1), alive(1), 9).code == ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED


def test_a_living_master_stays() -> None:
    group = group_of(1, 2, master=1, in_sync=(1, 2))
    decision = elect(group, alive(1, 2), 2)
    assert (decision.code, decision.event) == (ResponseCode.CONTROLLER_MASTER_STILL_EXIST, None)


def test_a_master_that_a_new_controller_has_yet_to_hear_of_stays() -> None:
    group = group_of(1, 2, master=1, in_sync=(1, 2))
    waiting = Alive({2: report_of()}, frozenset({1}))
    assert elect(group, waiting, 2).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
    assert elect(group, alive(2), 2).event == MasterElected("broker-a", 2, 3)


@pytest.mark.parametrize(
    ("two", "three", "winner"),
    [
        (report_of(2, 10), report_of(1, 99), 2),
        (report_of(2, 10), report_of(2, 11), 3),
        # RocketMQ compares offsets as 32-bit numbers.
        (report_of(2, 5), report_of(2, 5 + 2**31), 3),
        (report_of(2, 10, priority=2), report_of(2, 10, priority=1), 3),
        (report_of(2, 10), report_of(2, 10), 2),
    ],
)
def test_the_newest_epoch_wins_then_the_longest_log_then_the_priority(two, three, winner) -> None:  # type: ignore[no-untyped-def]
    group = group_of(1, 2, 3, master=1, in_sync=(1, 2, 3))
    assert elect(group, alive(_2=two, _3=three)).event == MasterElected("broker-a", winner, 3)


def test_a_replica_that_is_not_in_sync_is_elected_only_unclean() -> None:
    group = group_of(1, 2, master=1, in_sync=(1,))
    none = elect(group, alive(2))
    assert none.code == ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE
    assert none.event == MasterElected("broker-a", None, 3)
    assert elect(group, alive(2), unclean=True).event == MasterElected("broker-a", 2, 3)


def test_a_broker_without_a_candidate_changes_nothing() -> None:
    decision = elect(group_of(1, 2, master=1, in_sync=(1,)), alive(2), 2)
    assert (decision.code, decision.event) == (ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, None)


def test_a_group_without_a_master_begins_no_further_epochs() -> None:
    group = dataclasses.replace(group_of(1, 2, in_sync=(1,)), master=None)
    decision = elect(group, alive(2))
    assert (decision.code, decision.event) == (ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, None)
    assert elect(group, alive(1, 2), 2).event == MasterElected("broker-a", 1, 3)


def test_a_designated_replica_wins_if_it_is_a_candidate_and_nobody_else_does() -> None:
    group = group_of(1, 2, 3, master=1, in_sync=(1, 2))
    assert elect(group, alive(1, 2, 3), 2, designated=True).event == MasterElected("broker-a", 2, 3)
    refused = elect(group, alive(1, 2, 3), 3, designated=True)
    assert (refused.code, refused.event) == (ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, None)
    dead = elect(group, alive(1, 3), 2, designated=True)
    assert (dead.code, dead.event) == (ResponseCode.CONTROLLER_ELECT_MASTER_FAILED, None)
    assert elect(group, alive(3), 3, designated=True, unclean=True).event == MasterElected("broker-a", 3, 3)


def test_a_restarted_master_that_lost_the_end_of_its_log_hands_over() -> None:
    group = group_of(1, 2, master=1, in_sync=(1, 2))
    shorter = alive(_1=report_of(2, 90), _2=report_of(2, 100))
    assert elect(group, shorter, 1).event == MasterElected("broker-a", 2, 3)
    equal = alive(_1=report_of(2, 100), _2=report_of(2, 100))
    assert elect(group, equal, 1).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST


def test_a_new_epoch_is_above_those_of_the_logs() -> None:
    group = group_of(1, 2, master=1, in_sync=(1, 2))
    assert elect(group, alive(_2=report_of(40, 5))).event == MasterElected("broker-a", 2, 41)
    # A damaged report must not use up the epochs.
    assert elect(group, alive(_2=report_of(2**31 - 1, 5))).event == MasterElected("broker-a", 2, 3)
