from typing import Any

from orbitmq.store.config import StoreConfig
from orbitmq.store.replication.slave_acks import EVERYTHING
from orbitmq.store.replication.sync_state import SyncState


def state(*members: int, **settings: Any) -> SyncState:
    return SyncState(StoreConfig(**settings), 1, members, 5)


def test_a_replica_that_leaves_counts_until_the_controller_has_agreed() -> None:
    sync = state(1, 2, all_ack_in_sync_state_set=True)
    sync.request([1])
    assert sync.acked_end({}) == -1, "Apache acknowledges here, and loses it when 2 is elected"
    assert sync.confirm([1], 6)
    assert sync.acked_end({}) == EVERYTHING


def test_a_replica_that_joins_counts_from_the_request_on() -> None:
    sync = state(1, all_ack_in_sync_state_set=True)
    assert sync.acked_end({2: 10}) == EVERYTHING
    sync.request([1, 2])
    assert sync.acked_end({2: 10}) == 10
    sync.refuse(0)
    assert sync.acked_end({2: 10}) == EVERYTHING


def test_a_refusal_says_nothing_of_an_earlier_request_without_an_answer() -> None:
    sync = state(1, all_ack_in_sync_state_set=True)
    sync.request([1, 2])
    sync.doubt(100)
    sync.request([1, 2])
    sync.refuse(103)
    assert sync.effective == {1, 2}, "the first may still be applied, and 2 be elected"
    sync.confirm([1, 2], 6)
    sync.confirm([1], 7)
    assert sync.effective == {1}


def test_a_request_without_an_answer_counts_until_a_newer_set_is_known() -> None:
    sync = state(1, 2, all_ack_in_sync_state_set=True)
    sync.request([1, 2, 3])
    sync.confirm([1, 2], 5)
    assert sync.effective == {1, 2, 3}, "the request may still be applied to epoch 5"
    sync.confirm([1, 3], 6)
    assert sync.effective == {1, 3}
    assert not sync.confirm([1, 2], 5), "an answer that was overtaken"


def test_the_confirm_offset_never_goes_back() -> None:
    sync = state(1, 2, all_ack_in_sync_state_set=True)
    assert sync.advance(100, {2: 60}) == 60
    assert sync.advance(100, {}) == 60
    sync.request([1, 2, 3])
    assert sync.advance(100, {2: 90, 3: 10}) == 60
    assert sync.advance(100, {2: 90, 3: 90}) == 90


def test_without_all_acks_the_number_of_replicas_counts() -> None:
    sync = state(1, 2, 3, in_sync_replicas=2)
    assert sync.acked_end({2: 10, 3: 20}) == 20
    assert sync.acked_end({}) == -1
    assert sync.advance(50, {}) == 50


def test_too_few_replicas_in_sync() -> None:
    sync = state(1, 2, min_in_sync_replicas=2)
    assert not sync.is_short
    sync.confirm([1], 6)
    assert sync.is_short
