"""Queues of routes, and the queue of a message group."""

from __future__ import annotations

import pytest

from orbitmq.protocol.bodies import QueueData
from orbitmq.protocol.java import string_hash
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.routing.endpoints import endpoints_of, with_port
from orbitmq.proxy.routing.queues import consistent_hash, numbered, queue_for_group


@pytest.mark.parametrize(
    ("reads", "writes", "perm", "expected"),
    [
        (2, 2, 6, [pb.READ_WRITE, pb.READ_WRITE]),
        (3, 1, 6, [pb.READ, pb.READ, pb.READ_WRITE]),
        (1, 2, 6, [pb.WRITE, pb.READ_WRITE]),
        (2, 1, 4, [pb.READ, pb.READ]),
        (2, 1, 2, [pb.WRITE]),
        (2, 3, 0, [pb.NONE] * 3),
        (0, 0, 0, [pb.NONE]),
    ],
)
def test_queues_are_numbered_by_permission(reads: int, writes: int, perm: int, expected: list[int]) -> None:
    assert list(numbered(QueueData("a", reads, writes, perm))) == list(enumerate(expected))


def test_a_group_keeps_its_queue_and_moves_only_to_new_ones() -> None:
    for text in ("a", "order-1", "ä", ""):
        value = string_hash(text)
        before = consistent_hash(value, 4)
        assert 0 <= before < 4
        assert consistent_hash(value, 5) in {before, 4}
        assert consistent_hash(value, 1) == 0


def test_a_topic_without_writable_queues_is_forbidden() -> None:
    with pytest.raises(StatusError) as refused:
        queue_for_group("g", [])
    assert refused.value.code == pb.FORBIDDEN


@pytest.mark.parametrize(
    ("host", "scheme"), [("10.0.0.1", pb.IPv4), ("[::1]", pb.IPv6), ("broker.example", pb.DOMAIN_NAME)]
)
def test_the_scheme_of_an_address_is_that_of_its_text(host: str, scheme: int) -> None:
    endpoints = endpoints_of(host, 1)
    assert endpoints.scheme == scheme
    assert with_port(endpoints, 2).addresses[0].port == 2
