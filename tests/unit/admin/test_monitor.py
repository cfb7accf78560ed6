"""What the monitor says of members: subscriptions that differ, and queues that are stuck."""

from __future__ import annotations

import pytest

from orbitmq.admin.health.monitor import (
    BLOCKED_MS,
    SETTLED_MS,
    StuckQueue,
    Trouble,
    stuck_queues,
    subscriptions_agree,
)
from orbitmq.protocol.bodies import (
    PROP_CONSUME_ORDERLY,
    PROP_CONSUME_TYPE,
    PROP_CONSUMER_START_TIMESTAMP,
    ConsumerRunningInfo,
    MessageQueue,
    ProcessQueueInfo,
    SubscriptionData,
)

NOW = 1_000_000_000
QUEUE = MessageQueue("t", "b", 1)


def member(
    tags: str = "*",
    *,
    age_ms: int = SETTLED_MS + 1,
    kind: str = "CONSUME_PASSIVELY",
    orderly: bool = False,
    state: ProcessQueueInfo | None = None,
) -> ConsumerRunningInfo:
    return ConsumerRunningInfo(
        properties={
            PROP_CONSUME_TYPE: kind,
            PROP_CONSUME_ORDERLY: str(orderly).lower(),
            PROP_CONSUMER_START_TIMESTAMP: str(NOW - age_ms),
        },
        subscription_set=[SubscriptionData(topic="t", sub_string=tags)],
        mq_table={} if state is None else {QUEUE: state},
    )


def test_subscriptions_of_settled_push_consumers_are_compared() -> None:
    assert subscriptions_agree({}, NOW)
    assert subscriptions_agree({"a": member("A"), "b": member("A")}, NOW)
    assert not subscriptions_agree({"a": member("A"), "b": member("B")}, NOW)
    assert subscriptions_agree({"a": member("A"), "b": member("B", age_ms=SETTLED_MS)}, NOW)
    assert subscriptions_agree({"a": member("A"), "b": member("B", kind="CONSUME_ACTIVELY")}, NOW)


@pytest.mark.parametrize(
    ("orderly", "state", "expected"),
    [
        (False, ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=NOW - BLOCKED_MS), None),
        (
            False,
            ProcessQueueInfo(cached_msg_count=1, last_consume_timestamp=NOW - BLOCKED_MS - 1),
            (Trouble.BLOCKED, BLOCKED_MS + 1),
        ),
        (False, ProcessQueueInfo(last_consume_timestamp=1), None),
        (True, ProcessQueueInfo(locked=True), None),
        (True, ProcessQueueInfo(last_lock_timestamp=NOW - 5), (Trouble.NOT_LOCKED, 5)),
        (True, ProcessQueueInfo(locked=True, droped=True, try_unlock_times=3), (Trouble.NOT_UNLOCKED, 3)),
    ],
)
def test_queues_that_a_member_does_not_get_on_with_are_found(
    orderly: bool, state: ProcessQueueInfo, expected: tuple[Trouble, int] | None
) -> None:
    found = stuck_queues("c", member(orderly=orderly, state=state), NOW)
    assert found == ([] if expected is None else [StuckQueue("c", QUEUE, *expected)])
    assert stuck_queues("c", member(orderly=orderly, state=state, kind="CONSUME_POP"), NOW) == []
