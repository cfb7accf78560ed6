"""How many copies a message needs, and how far enough slaves have the log."""

from __future__ import annotations

import pytest

from orbitmq.store.config import StoreConfig
from orbitmq.store.replication.flow_limit import FlowLimit
from orbitmq.store.replication.slave_acks import EVERYTHING, SlaveAcks


def acks(*ends: int, **settings: object) -> SlaveAcks[int]:
    made: SlaveAcks[int] = SlaveAcks(StoreConfig(**settings))  # type: ignore[arg-type]
    for slave, end in enumerate(ends):
        made.update(slave, end)
    return made


@pytest.mark.parametrize(
    ("needed", "ends", "acked"),
    [
        (0, (), EVERYTHING),
        (1, (5,), EVERYTHING),
        (2, (), -1),
        (2, (5,), 5),
        (2, (5, 9), 9),
        (3, (5, 9), 5),
        (3, (9,), -1),
        (3, (1, 9, 4), 4),
    ],
)
def test_the_log_is_acknowledged_as_far_as_enough_slaves_have_it(
    needed: int, ends: tuple[int, ...], acked: int
) -> None:
    assert acks(*ends, in_sync_replicas=needed).acked_end(10, may_act=False) == acked


def test_all_slaves_in_sync_count_if_all_must_acknowledge() -> None:
    settings = {"in_sync_replicas": 2, "all_ack_in_sync_state_set": True, "ha_max_gap_not_in_sync": 100}
    assert acks(950, 1000, **settings).acked_end(1000, may_act=False) == 950
    assert acks(900, 1000, **settings).acked_end(1000, may_act=False) == 1000
    assert acks(**settings).acked_end(1000, may_act=False) == -1


def test_a_group_with_acting_masters_refuses_what_would_have_too_few_copies() -> None:
    settings = {"in_sync_replicas": 2, "total_replicas": 2, "ha_max_gap_not_in_sync": 100}
    assert acks(**settings).is_short(1000, may_act=True)
    assert acks(800, **settings).is_short(1000, may_act=True)
    assert not acks(950, **settings).is_short(1000, may_act=True)
    assert not acks(**settings).is_short(1000, may_act=False)
    lonely = acks(950, **settings)
    lonely.alive_replicas = 1
    assert lonely.is_short(1000, may_act=True)


def test_a_group_with_acting_masters_may_need_fewer_copies_while_slaves_are_away() -> None:
    settings = {"in_sync_replicas": 3, "total_replicas": 3, "enable_auto_in_sync_replicas": True}
    assert acks(**settings).needed(1000, may_act=True) == 1
    assert acks(990, **settings).needed(1000, may_act=True) == 2
    assert acks(990, 990, **settings).needed(1000, may_act=True) == 3
    assert acks(**settings).needed(1000, may_act=False) == 3
    settings["min_in_sync_replicas"] = 2
    assert acks(**settings).needed(1000, may_act=True) == 2
    assert acks(**settings).is_short(1000, may_act=True)


def test_the_name_of_the_gap_in_version_4_is_understood() -> None:
    assert StoreConfig(ha_slave_fallbehind_max=5).max_gap_in_sync == 5
    assert StoreConfig(ha_max_gap_not_in_sync=7).max_gap_in_sync == 7


def test_bytes_of_a_second_are_limited_and_counted() -> None:
    config = StoreConfig(ha_flow_control_enable=True, max_ha_transfer_byte_in_second=100)
    flow = FlowLimit(config, 10.0)
    flow.sent(60, 10.1)
    assert flow.room(10.2) == 40
    flow.sent(60, 10.3)
    assert flow.room(10.9) == 0
    assert (flow.room(11.0), flow.per_second(11.0)) == (100, 120)
    assert flow.per_second(13.0) == 0
    config.ha_flow_control_enable = False
    flow.sent(1000, 13.0)
    assert flow.room(13.0) > 1 << 40
