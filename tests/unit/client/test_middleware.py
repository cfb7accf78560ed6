"""Middleware and hooks: what they see of sends and handler calls, and what they may change."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

import orbitmq
from orbitmq import InvalidMessageError, Message
from orbitmq.aio import Consumer, HandleCall, Middleware, Producer, SendCall
from orbitmq.testing import LocalCluster
from support.client.consumer_harness import SHORT
from support.remoting_harness import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from orbitmq.client.producer.hooks import SendContext
    from orbitmq.testing import ThreadCluster


class Log:
    """Calls that a middleware has seen."""

    def __init__(self) -> None:
        self.before: list[str] = []
        self.sends: list[SendCall] = []
        self.handled: list[HandleCall] = []


class Plain(Middleware):
    def __init__(self, log: Log) -> None:
        self.log = log

    @contextlib.contextmanager
    def on_send(self, call: SendCall) -> Iterator[None]:
        for message in call.messages:
            message.properties["tenant"] = "t1"
        try:
            yield
        finally:
            self.log.sends.append(call)

    @contextlib.contextmanager
    def on_handle(self, call: HandleCall) -> Iterator[None]:
        self.log.before.append(threading.current_thread().name)
        try:
            yield
        finally:
            self.log.handled.append(call)


class Awaiting(Middleware):
    def __init__(self, log: Log) -> None:
        self.log = log

    @contextlib.asynccontextmanager
    async def on_send(self, call: SendCall) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        for message in call.messages:
            message.properties["tenant"] = "t1"
        try:
            yield
        finally:
            await asyncio.sleep(0)
            self.log.sends.append(call)

    @contextlib.asynccontextmanager
    async def on_handle(self, call: HandleCall) -> AsyncIterator[None]:
        await asyncio.sleep(0)
        self.log.before.append(threading.current_thread().name)
        try:
            yield
        finally:
            await asyncio.sleep(0)
            self.log.handled.append(call)


@pytest.mark.parametrize("kind", [Plain, Awaiting])
async def test_every_kind_of_send_is_wrapped_and_may_be_changed(kind: Any) -> None:
    log = Log()
    async with LocalCluster() as cluster:
        async with Producer(cluster.name_server, middleware=[kind(log)]) as producer:
            receipt = await producer.send(Message("t", b"1"))
            await producer.send_nowait(Message("t", b"2"))
            await producer.send_batch([Message("t", b"3"), Message("t", b"4")])
            await producer.send_oneway(Message("t", b"5"))
            with pytest.raises(InvalidMessageError):
                await producer.send(Message("t", b""))
            left = producer.send_nowait(Message("t", b"6"))
        await eventually(lambda: len(cluster.messages("t")) == 6)
        assert {message.properties.get("tenant") for message in cluster.messages("t")} == {"t1"}
        assert [len(call.messages) for call in log.sends] == [1, 1, 2, 1, 1, 1]
        assert log.sends[0].receipt == receipt
        assert isinstance(log.sends[4].error, InvalidMessageError)
        assert all(call.duration >= 0 for call in log.sends)
        assert left.done()


async def test_a_middleware_may_replace_the_message() -> None:
    class Encrypt(Middleware):
        @contextlib.contextmanager
        def on_send(self, call: SendCall) -> Iterator[None]:
            call.message = Message(call.message.topic, call.message.body[::-1])
            yield

    async with LocalCluster() as cluster, Producer(cluster.name_server, middleware=[Encrypt()]) as producer:
        await producer.send(Message("t", b"abc"))
        assert [message.body for message in cluster.messages("t")] == [b"cba"]


@pytest.mark.parametrize("kind", [Plain, Awaiting])
@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize("handler_kind", ["thread", "coroutine", "inline"])
async def test_every_kind_of_handler_is_wrapped(kind: Any, orderly: bool, handler_kind: str) -> None:
    log = Log()

    def plain(message: orbitmq.ReceivedMessage) -> str:
        if message.reconsume_times == 0 and message.body == b"bad":
            raise RuntimeError("once")
        return f"done {message.text()}"

    async def coroutine(message: orbitmq.ReceivedMessage) -> str:
        return plain(message)

    async with LocalCluster(settings={"messageDelayLevel": "0s 0s 0s 0s"}) as cluster:
        options = {**SHORT, "orderly": orderly, "middleware": [kind(log)]}
        consumer = Consumer(cluster.name_server, group="g", **options)
        consumer.on("t", inline=handler_kind == "inline")(coroutine if handler_kind == "coroutine" else plain)
        async with Producer(cluster.name_server) as producer:
            await producer.send(Message("t", b"good"))
            await producer.send(Message("t", b"bad"))
        async with consumer:
            await eventually(lambda: len(log.handled) == 3)
    outcomes = sorted(str(call.result or repr(call.error)) for call in log.handled)
    assert outcomes == ["RuntimeError('once')", "done bad", "done good"]
    in_threads = [name.startswith("ConsumeMessageThread") for name in log.before]
    assert all(in_threads) if handler_kind == "thread" and kind is Plain else not any(in_threads)


def test_the_blocking_face_takes_middleware_too(orbitmq: ThreadCluster) -> None:
    log = Log()
    producer = orbitmq.producer(middleware=[Plain(log)])
    producer.send(Message("t", b"1"))
    producer.send_async(Message("t", b"2")).result()
    assert [call.receipt is not None for call in log.sends] == [True, True]


def test_an_object_that_is_no_middleware_is_refused() -> None:
    with pytest.raises(ValueError, match="neither"):
        Producer("127.0.0.1:1", middleware=[object()])


# Hooks


class Setter:
    """A hook that sets a property, as a tracer does."""

    def before_send(self, context: SendContext) -> None:
        for message in context.messages:
            message.properties["trace"] = "42"

    def after_send(self, context: SendContext) -> None: ...


async def test_properties_that_a_hook_sets_are_sent() -> None:
    async with LocalCluster() as cluster, Producer(cluster.name_server, hooks=[Setter()]) as producer:
        await producer.send(Message("t", b"1"))
        await producer.send_nowait(Message("t", b"2"))
        await producer.send_batch([Message("t", b"3"), Message("t", b"4")])
        await producer.send_oneway(Message("t", b"5"))
        await eventually(lambda: len(cluster.messages("t")) == 5)
        assert {message.properties.get("trace") for message in cluster.messages("t")} == {"42"}
