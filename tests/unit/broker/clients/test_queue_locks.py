"""Queue locks: one owner at a time, expiry, and responses compared with Apache's broker."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.clients.queue_locks import LIVE_MS, QueueLocks
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.protocol.bodies import LockBatchRequestBody, LockBatchResponseBody, MessageQueue
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.testing import ManualClock
from support.broker.client_registry_harness import GROUP, T0, TOPIC, Client, client_broker, consumer, heartbeat


def queue(queue_id: int, topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, "broker-a", queue_id)


Q0, Q1, Q2 = map(queue, range(3))


def locks_at(most: int = 10) -> tuple[QueueLocks, ManualClock]:
    clock = ManualClock(T0)
    return QueueLocks(clock, BrokerConfig(max_queue_locks=most, client_share_percent=100)), clock


def test_a_locked_queue_belongs_to_its_owner_only() -> None:
    locks, _ = locks_at()
    assert locks.lock(GROUP, "c1", [Q0, Q1]) == [Q0, Q1]
    assert locks.lock(GROUP, "c2", [Q0, Q1, Q2]) == [Q2]
    assert locks.lock(GROUP, "c1", [Q0, Q2]) == [Q0]


def test_locks_of_different_groups_are_independent() -> None:
    locks, _ = locks_at()
    assert locks.lock("A", "c1", [Q0]) == [Q0]
    assert locks.lock("B", "c2", [Q0]) == [Q0]


def test_a_queue_that_is_named_twice_is_locked_once() -> None:
    locks, _ = locks_at()
    assert locks.lock(GROUP, "c1", [Q0, Q0]) == [Q0]
    assert len(locks) == 1


def test_a_lock_expires_after_a_minute_without_renewal() -> None:
    locks, clock = locks_at()
    locks.lock(GROUP, "c1", [Q0, Q1])
    clock.advance(LIVE_MS)
    assert locks.lock(GROUP, "c1", [Q0]) == [Q0]
    clock.advance(1)
    assert locks.lock(GROUP, "c2", [Q0, Q1]) == [Q1]


def test_only_the_owner_can_unlock() -> None:
    locks, _ = locks_at()
    locks.lock(GROUP, "c1", [Q0])
    locks.unlock(GROUP, "c2", [Q0])
    locks.unlock("other", "c1", [Q0])
    assert locks.lock(GROUP, "c2", [Q0]) == []
    locks.unlock(GROUP, "c1", [Q0, Q1])
    assert locks.lock(GROUP, "c2", [Q0]) == [Q0]


def test_a_queue_and_a_group_are_locked_while_a_lock_is_live() -> None:
    locks, clock = locks_at()
    assert not locks.group_holds_lock(GROUP)
    locks.lock(GROUP, "c1", [Q0])
    assert locks.is_locked(GROUP, TOPIC, 0)
    assert not locks.is_locked(GROUP, TOPIC, 1)
    assert not locks.is_locked(GROUP, "TopicB", 0)
    assert not locks.is_locked("other", TOPIC, 0)
    assert locks.group_holds_lock(GROUP)
    clock.advance(LIVE_MS + 1)
    assert not locks.is_locked(GROUP, TOPIC, 0)
    assert not locks.group_holds_lock(GROUP)


def test_expired_locks_free_their_memory() -> None:
    locks, clock = locks_at(most=2)
    assert locks.lock(GROUP, "c1", [Q0, Q1, Q2]) == [Q0, Q1]
    assert locks.lock(GROUP, "c1", [Q1]) == [Q1]
    clock.advance(LIVE_MS + 1)
    assert locks.lock("other", "c2", [Q1, Q2]) == [Q1, Q2]
    clock.advance(LIVE_MS + 1)
    locks.expire()
    assert len(locks) == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["lock", "unlock", "wait", "expire"]),
            st.sampled_from(["A", "B"]),
            st.sampled_from(["c1", "c2"]),
            st.lists(st.sampled_from([Q0, Q1, Q2])),
            st.sampled_from([1, LIVE_MS, LIVE_MS + 1]),
        )
    )
)
def test_no_queue_ever_has_two_owners(steps: list[tuple[str, str, str, list[MessageQueue], int]]) -> None:
    locks, clock = locks_at(most=100)
    owned: dict[tuple[str, MessageQueue], tuple[str, int]] = {}
    for verb, group, client_id, queues, ms in steps:
        now = clock.now_ms()
        if verb == "lock":
            free = {
                one
                for one in queues
                if (owner := owned.get((group, one))) is None or owner[0] == client_id or now - owner[1] > LIVE_MS
            }
            assert set(locks.lock(group, client_id, queues)) == free
            owned.update(((group, one), (client_id, now)) for one in free)
        elif verb == "unlock":
            locks.unlock(group, client_id, queues)
            for one in queues:
                if owned.get((group, one), ("", 0))[0] == client_id:
                    del owned[group, one]
        elif verb == "wait":
            clock.advance(ms)
        else:
            locks.expire()
            owned = {key: owner for key, owner in owned.items() if now - owner[1] <= LIVE_MS}
            assert len(locks) == len(owned)


# Over the wire


async def locked(client: Client, client_id: str, *queues: MessageQueue) -> list[MessageQueue]:
    body = LockBatchRequestBody(GROUP, client_id, mq_set=list(queues)).encode()
    answer = await client.asks(RequestCode.LOCK_BATCH_MQ, body)
    assert answer.code == ResponseCode.SUCCESS
    return LockBatchResponseBody.decode(answer.body or b"").lock_ok_mq_set


async def test_a_lock_outlives_the_connection_of_its_owner() -> None:
    async with client_broker() as broker, broker.client() as first, broker.client() as second:
        await first.beat(heartbeat("c1", consumer()))
        assert await locked(first, "c1", Q0) == [Q0]
        await broker.gone(first)
        assert await locked(second, "c2", Q0) == []
        assert await locked(second, "c1", Q0) == [Q0]


async def test_an_unlocked_queue_can_be_locked_by_another_client() -> None:
    async with client_broker() as broker, broker.client() as client:
        await locked(client, "c1", Q0)
        body = LockBatchRequestBody(GROUP, "c1", mq_set=[Q0]).encode()
        answer = await client.asks(RequestCode.UNLOCK_BATCH_MQ, body)
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, None)
        assert await locked(client, "c2", Q0) == [Q0]


async def test_a_malformed_request_locks_nothing() -> None:
    async with client_broker() as broker, broker.client() as client:
        answer = await client.asks(RequestCode.LOCK_BATCH_MQ)
        assert (answer.code, answer.remark) == (1, "the body with the queues is missing")
        body = LockBatchRequestBody(GROUP, "c1", mq_set=[Q0, queue(0, "t" * 2000)]).encode()
        answer = await client.asks(RequestCode.LOCK_BATCH_MQ, body)
        assert (answer.code, answer.remark) == (1, "the topic has 2000 characters, at most 1024 are allowed")
        assert len(broker.locks) == 0
