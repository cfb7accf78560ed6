"""Another master while sends are under way: after a hang, a lost connection, and for a queue of one's choice."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from orbitmq.client.errors import SendError, SendTimeoutError
from orbitmq.client.message import Message
from orbitmq.client.producer.producer import Producer
from orbitmq.protocol.bodies import MessageQueue
from support.client.producer_harness import HANG_UP, SILENCE, TOPIC, PeerBroker, Peers, peer_brokers
from support.remoting_harness import eventually, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

NAME = "broker-a"
MESSAGE = Message(TOPIC, b"x")


@contextlib.asynccontextmanager
async def two_replicas() -> AsyncIterator[tuple[Peers, PeerBroker, PeerBroker]]:
    """A master that is known, and another broker of its name that is not."""
    other = PeerBroker(NAME)
    async with peer_brokers(NAME) as peers, serving(other.handlers) as other.server:
        yield peers, peers.brokers[0], other


async def test_what_waits_for_a_master_that_hangs_is_sent_to_the_next_one_at_once() -> None:
    async with two_replicas() as (peers, old, new), Producer(peers.name_server, group="g") as producer:
        old.always, old.hangs = SILENCE, True
        with pytest.raises(SendTimeoutError):
            await producer.send(MESSAGE, timeout=0.2)
        async with asyncio.timeout(10):
            waiting = asyncio.create_task(producer.send(MESSAGE, timeout=100))
            await eventually(lambda: len(old.sends) == 2)
            await peers.serve(NAME, 2, address=new.address)
            await waiting
        assert len(new.sends) == 1


async def test_a_send_waits_a_moment_for_an_election() -> None:
    async with two_replicas() as (peers, old, new), Producer(peers.name_server, group="g") as producer:
        old.always = HANG_UP
        sending = asyncio.create_task(producer.send(MESSAGE))
        await eventually(lambda: old.sends)
        await peers.serve(NAME, 2, address=new.address)
        await sending
        assert len(new.sends) == 1


async def test_it_does_not_wait_for_long() -> None:
    async with two_replicas() as (peers, old, _), Producer(peers.name_server, group="g") as producer:
        old.always = HANG_UP
        async with asyncio.timeout(10):
            with pytest.raises(SendError, match="after 3 attempts"):
                await producer.send(MESSAGE, timeout=100)


async def test_a_queue_of_ones_choice_moves_with_its_master() -> None:
    async with two_replicas() as (peers, old, new), Producer(peers.name_server, group="g") as producer:
        old.always = HANG_UP
        sending = producer.send_nowait(MESSAGE, queue=MessageQueue(TOPIC, NAME, 1))
        await eventually(lambda: old.sends)
        await peers.serve(NAME, 2, address=new.address)
        receipt = await sending
        assert receipt.queue.queue_id == 1
        assert len(new.sends) == 1
