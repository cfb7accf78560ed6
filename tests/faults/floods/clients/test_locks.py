"""Clients that lock queues without end: a total limit, a share per address, and work in slices."""

from __future__ import annotations

import pytest

from faults.floods.served import served_before
from orbitmq.broker.clients.queue_locks import EXPIRED_AT_ONCE, LIVE_MS, QueueLocks
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.testing import ManualClock
from support.broker.client_registry_harness import GROUP, T0, TOPIC
from support.broker.requests import talk, talking_to
from support.limit_counts import counts


def queues(count: int, first: int = 0) -> list[MessageQueue]:
    return [MessageQueue(TOPIC, "broker-a", first + number) for number in range(count)]


@counts(Limit.QUEUE_LOCKS)
def test_the_clients_of_an_address_may_lock_half_of_the_remaining_queues() -> None:
    locks = QueueLocks(ManualClock(T0), BrokerConfig(max_queue_locks=40))
    assert len(locks.lock(GROUP, "c1", queues(100), "10.0.0.1:1")) == 10
    assert len(locks.lock(GROUP, "c2", queues(100, 100), "10.0.0.1:2")) == 10
    with pytest.raises(RequestRefusedError, match=r"clients at 10\.0\.0\.1 have 20 queue locks already"):
        locks.lock(GROUP, "c3", queues(1, 500), "10.0.0.1:3")
    assert len(locks.lock(GROUP, "c4", queues(100, 200), "10.0.0.2:1")) == 5
    assert len(locks.lock(GROUP, "c1", queues(10), "10.0.0.1:1")) == 10


def test_locks_of_a_disconnected_client_expire_and_make_room() -> None:
    clock = ManualClock(T0)
    locks = QueueLocks(clock, BrokerConfig(max_queue_locks=40))
    locks.lock(GROUP, "c1", queues(100), "10.0.0.1:1")
    clock.advance(LIVE_MS + 1)
    assert len(locks.lock(GROUP, "c2", queues(100), "10.0.0.1:2")) == 10
    assert len(locks) == 10


def test_locks_expire_in_slices() -> None:
    clock = ManualClock(T0)
    locks = QueueLocks(clock, BrokerConfig(client_share_percent=100))
    locks.lock(GROUP, "c1", queues(EXPIRED_AT_ONCE + 1))
    clock.advance(LIVE_MS + 1)
    assert locks.expire()
    assert len(locks) == 1
    assert not locks.expire()
    assert len(locks) == 0


async def test_a_lock_request_for_very_many_queues_does_not_block_others() -> None:
    async with talk() as (broker, client), talking_to(broker) as other:
        await other.stores()
        body = LockBatchRequestBody(GROUP, "c1", mq_set=queues(10_000)).encode()
        answer, served = await served_before(client, Command(RequestCode.LOCK_BATCH_MQ, 77, body=body), other)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert len(LockBatchResponseBody.decode(answer.body or b"").lock_ok_mq_set) == 10_000
        assert served >= 3
        answer, served = await served_before(client, Command(RequestCode.UNLOCK_BATCH_MQ, 78, body=body), other)
        assert answer.code == ResponseCode.SUCCESS
        assert len(broker.locks) == 0
