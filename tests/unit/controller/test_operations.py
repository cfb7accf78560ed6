"""Ids, registration, in-sync sets and cleaning, as the state machine decides them."""

from __future__ import annotations

import pytest

from orbitmq.controller.machine.events import apply, decode, encode
from orbitmq.controller.machine.group import BrokerGroup
from orbitmq.controller.machine.operations import (
    Alteration,
    Application,
    Cleaning,
    alter_sync_state_set,
    apply_broker_id,
    clean_broker_data,
    next_broker_id,
    register,
)
from orbitmq.platform.errors import StoreDamagedError
from orbitmq.protocol.codes import ResponseCode
from support.controller_harness import CLUSTER, GROUP, after, alive, group_of

C = ResponseCode


def applied(group: BrokerGroup | None, broker_id: int, check_code: str = "h9:1;9") -> int:
    return apply_broker_id(group, Application(CLUSTER, GROUP, broker_id, check_code)).code


def test_ids_are_given_from_one_on() -> None:
    assert next_broker_id(None) == 1
    assert next_broker_id(group_of(1, 2)) == 3
    assert applied(None, 2) == C.CONTROLLER_BROKER_ID_INVALID
    assert applied(None, 1) == C.SUCCESS


def test_an_id_belongs_to_its_check_code() -> None:
    group = group_of(1, 2)
    assert group.replicas[2].address == "h2:1"
    assert applied(group, 2) == C.CONTROLLER_BROKER_ID_INVALID
    again = apply_broker_id(group, Application(CLUSTER, GROUP, 2, "h2:1;2"))
    assert (again.code, again.event) == (C.SUCCESS, None)
    assert applied(group, 0) == C.CONTROLLER_BROKER_ID_INVALID
    assert applied(group, 3) == C.SUCCESS
    # Ids are given one after the other: a higher one would use up the numbers.
    assert applied(group, 4) == C.CONTROLLER_BROKER_ID_INVALID


def test_a_registration_updates_the_address() -> None:
    group = group_of(1)
    assert register(None, GROUP, 1, "h1:1").code == C.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert register(group, GROUP, 2, "h1:1").code == C.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED
    assert register(group, GROUP, 1, "h1:1").event is None
    moved = after(group, register(group, GROUP, 1, "h7:1"))
    assert moved is not None
    assert (moved.replicas[1].address, moved.replicas[1].check_code) == ("h7:1", "h1:1;1")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"members": frozenset({1, 2})}, C.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
        ({"broker_id": 2}, C.CONTROLLER_INVALID_MASTER),
        ({"master_epoch": 1}, C.CONTROLLER_FENCED_MASTER_EPOCH),
        ({"set_epoch": 4}, C.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH),
        ({"members": frozenset({1, 9})}, C.CONTROLLER_INVALID_REPLICAS),
        ({"members": frozenset({1, 4})}, C.CONTROLLER_BROKER_NOT_ALIVE),
        ({"members": frozenset({2, 3})}, C.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED),
        ({}, C.SUCCESS),
    ],
)
def test_a_change_of_the_set_is_checked_in_rocketmqs_order(changes: dict[str, object], code: int) -> None:
    group = group_of(1, 2, 3, 4, master=1, in_sync=(1, 2))
    given = {"broker_id": 1, "master_epoch": 2, "set_epoch": 5, "members": frozenset({1, 2, 3}), **changes}
    request = Alteration(name=GROUP, **given)  # type: ignore[arg-type]
    decision = alter_sync_state_set(group, request, alive(1, 2, 3))
    assert decision.code == code
    changed = after(group, decision)
    assert changed is not None
    if code == C.SUCCESS:
        assert (changed.in_sync, changed.set_epoch, changed.master_epoch) == ((1, 2, 3), 6, 2)
    else:
        assert changed is group


def test_a_set_of_an_unknown_group_is_refused() -> None:
    request = Alteration(GROUP, 1, 1, 1, frozenset({1}))
    assert alter_sync_state_set(None, request, alive()).code == C.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED


def test_what_is_alive_is_not_cleaned_unless_it_is_meant() -> None:
    group = group_of(1, 2, master=1, in_sync=(1, 2))
    refused = C.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert clean_broker_data(None, Cleaning(GROUP, None, True), alive()).code == refused
    assert clean_broker_data(group, Cleaning(GROUP, None, False), alive()).code == refused
    assert clean_broker_data(group, Cleaning(GROUP, frozenset({2}), False), alive(1, 2)).code == refused
    assert clean_broker_data(group, Cleaning(GROUP, frozenset({7}), False), alive(1, 2)).code == refused
    assert after(group, clean_broker_data(group, Cleaning(GROUP, None, True), alive(1, 2))) is None


def test_a_cleaned_replica_leaves_the_set_and_the_others_stay() -> None:
    group = group_of(1, 2, master=1, in_sync=(1, 2))
    left = after(group, clean_broker_data(group, Cleaning(GROUP, frozenset({2}), False), alive(1)))
    assert left is not None
    assert (left.in_sync, left.set_epoch, left.master, list(left.replicas)) == ((1,), 6, 1, [1])
    assert next_broker_id(left) == 3
    without = after(group, clean_broker_data(group, Cleaning(GROUP, frozenset({1}), True), alive(1, 2)))
    assert without is not None
    assert (without.master, without.in_sync) == (None, (2,))


def test_records_are_an_event_id_and_json_as_rocketmq_has_them() -> None:
    group = group_of(1, 2, master=1, in_sync=(1, 2))
    request = Alteration(GROUP, 1, 2, 5, frozenset({1}))
    event = alter_sync_state_set(group, request, alive(1)).event
    assert event is not None
    assert encode(event) == b'\x00\x01{"brokerName":"broker-a","newSyncStateSet":[1]}'


def test_damaged_records_and_groups_are_reported() -> None:
    for record in (b"", b"\x00\x01", b"\x00\x09{}", b"\x00\x01{}", b"\x00\x02[]"):
        with pytest.raises(StoreDamagedError):
            decode(record)
    with pytest.raises(StoreDamagedError):
        BrokerGroup.from_json({"clusterName": "c"})
    event = register(group_of(1), GROUP, 1, "h7:1").event
    assert event is not None
    with pytest.raises(StoreDamagedError):
        apply(None, event)
