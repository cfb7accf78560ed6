"""Under SYNC_FLUSH an answer says that a message is on the disk; not before it is, and not if it is not."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.batch import encode_batch
from orbitmq.testing import MemoryDisk, PowerCut
from support.broker.requests import TOPIC, Talker, bodies, send_request, stored, talk
from support.native.marks import needs_native
from support.remoting_harness import PATIENCE, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from orbitmq.broker import Broker
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Answer

SYNC = {"flushDiskType": "SYNC_FLUSH", "flushIntervalCommitLog": 10**9}
LOG = "commitlog"
BATCH = encode_batch([(0, b"a", b""), (0, b"b", b"")])
NEVER_MS = 10**9


class SlowDisk(MemoryDisk):
    """A disk whose syncs of the log wait until they are let through; but not those of a file that is made."""

    def __init__(self) -> None:
        super().__init__()
        self.through = threading.Semaphore(0)
        self.waiting = 0

    def _sync(self, file: object, path: str) -> None:
        if LOG in path and threading.current_thread() is not threading.main_thread():
            self.waiting += 1
            assert self.through.acquire(timeout=PATIENCE)
            self.waiting -= 1
        super()._sync(file, path)  # type: ignore[arg-type]

    def let_through(self, times: int = 1) -> None:
        self.through.release(times)


@pytest.fixture
def disk() -> Iterator[SlowDisk]:
    disk = SlowDisk()
    yield disk
    disk.let_through(100_000)


async def posted(client: Talker, disk: SlowDisk, *messages: bytes) -> list[int]:
    """Post messages, and wait until a sync waits."""
    opaques = [client.posts(send_request(body)) for body in messages]
    await eventually(lambda: disk.waiting)
    return opaques


async def test_a_message_is_acknowledged_and_dispatched_only_when_it_is_on_the_disk(disk: SlowDisk) -> None:
    async with talk(disk=disk, **SYNC) as (broker, client):
        (opaque,) = await posted(client, disk, b"one")
        await client.pass_time()
        assert opaque not in client.answers
        assert stored(broker) == []
        disk.let_through()
        answer = await client.answer_to(opaque)
        assert (answer.code, answer.ext_fields["queueOffset"]) == (ResponseCode.SUCCESS, "0")
        assert bodies(await client.pulls()) == [b"one"]
        disk.let_through(1000)


async def test_messages_that_come_while_the_disk_is_busy_wait_for_the_next_sync_together(disk: SlowDisk) -> None:
    async with talk(disk=disk, **SYNC) as (broker, client):
        (first,) = await posted(client, disk, b"first")
        later = [client.posts(send_request(b"%d" % number)) for number in range(50)]
        await client.pass_time()
        disk.let_through()
        await client.answer_to(first)
        await eventually(lambda: disk.waiting)
        assert not any(opaque in client.answers for opaque in later)
        disk.let_through()
        for opaque in later:
            assert (await client.answer_to(opaque)).code == ResponseCode.SUCCESS
        assert len(stored(broker)) == 51
        disk.let_through(1000)


@pytest.mark.parametrize(
    "said", [{}, {"code": RequestCode.SEND_BATCH_MESSAGE, "body": BATCH}], ids=["one", "batch"]
)
async def test_a_client_that_does_not_wait_for_the_disk_is_answered_at_once(
    disk: SlowDisk, said: dict[str, object]
) -> None:
    async with talk(disk=disk, **SYNC) as (_, client):
        await posted(client, disk, b"other")
        await client.stores(properties={"WAIT": "false"}, **said)
        waits = client.posts(send_request(properties={"WAIT": "true"}, **said))  # type: ignore[arg-type]
        await client.pass_time()
        assert waits not in client.answers
        disk.let_through(1000)
        assert (await client.answer_to(waits)).code == ResponseCode.SUCCESS


async def test_a_batch_waits_like_a_message(disk: SlowDisk) -> None:
    async with talk(disk=disk, **SYNC) as (broker, client):
        opaque = client.posts(send_request(BATCH, code=RequestCode.SEND_BATCH_MESSAGE))
        await eventually(lambda: disk.waiting)
        assert opaque not in client.answers
        disk.let_through(1000)

        assert (await client.answer_to(opaque)).ext_fields["msgId"].count(",") == 1
        assert len(stored(broker)) == 2


@pytest.mark.parametrize("body", [b"one", BATCH], ids=["one", "batch"])
async def test_a_late_flush_is_answered_with_the_position_of_the_message(disk: SlowDisk, body: bytes) -> None:
    code = RequestCode.SEND_BATCH_MESSAGE if body is BATCH else RequestCode.SEND_MESSAGE_V2
    async with talk(disk=disk, syncFlushTimeout=20, **SYNC) as (broker, client):
        answer = await client.sends(body, code=code, properties={"UNIQ_KEY": "K"})

        assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert (answer.ext_fields["queueOffset"], answer.ext_fields["transactionId"]) == ("0", "K")
        assert answer.ext_fields["msgId"].startswith(broker.store.message_id(0))
        disk.let_through(1000)
        # It is answered once, and stored in the end.
        await eventually(lambda: stored(broker))
        await client.pass_time()
        assert client.answers == {}
        (connection,) = broker.connections
        assert connection.deferred_responses == 0


async def test_a_failed_flush_is_answered_and_further_sends_are_refused() -> None:
    disk = MemoryDisk()
    async with talk(disk=disk, syncFlushTimeout=NEVER_MS, **SYNC) as (broker, client):
        await client.stores(b"before")
        disk.fail("sync", path_contains=LOG)
        opaques = [client.posts(send_request(b"lost?")) for _ in range(3)]
        for opaque in opaques:
            assert (await client.answer_to(opaque)).code == ResponseCode.FLUSH_DISK_TIMEOUT
        refused = await client.sends(b"after")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "the disk failed to store the log" in (refused.remark or "")
        # A message that may not be durable is not dispatched.
        assert bodies(await client.pulls()) == [b"before"]
        with pytest.raises(Exception, match="the disk failed"):
            await broker.stop()


async def test_acknowledged_messages_survive_a_power_cut() -> None:
    disk = MemoryDisk(seed=3)
    with contextlib.suppress(PowerCut):
        async with talk(disk=disk, **SYNC) as (_, client):
            for number in range(20):
                await client.stores(b"%d" % number)
            disk.power_cut()
    async with talk(disk=disk.power_cut(), **SYNC) as (broker, _):
        assert [record.body for record in stored(broker)] == [b"%d" % number for number in range(20)]


async def test_a_client_that_disconnects_before_the_flush_does_no_harm(disk: SlowDisk) -> None:
    async with talk(disk=disk, **SYNC) as (broker, client):
        await posted(client, disk, b"one", b"two")
        client.hang_up()
        await eventually(lambda: not broker.connections)
        disk.let_through(1000)
        await eventually(lambda: len(stored(broker)) == 2)


async def test_stopping_answers_those_who_wait_for_the_disk(disk: SlowDisk) -> None:
    async with talk(disk=disk, **SYNC) as (broker, client):
        (opaque,) = await posted(client, disk, b"one")
        stopping = asyncio.create_task(broker.stop())
        await asyncio.sleep(0)
        disk.let_through(1000)
        await stopping

        assert (await client.answer_to(opaque)).code == ResponseCode.SUCCESS


async def test_under_async_flush_no_response_waits(disk: SlowDisk) -> None:
    async with talk(disk=disk, flushIntervalCommitLog=10**9) as (broker, client):
        await client.stores()

        assert len(stored(broker)) == 1
        assert broker.store.max_offset(TOPIC, 0) == 1
        disk.let_through(1000)


# The fast path: messages with a unique key for a known queue.


@contextlib.asynccontextmanager
async def kernel_only(
    monkeypatch: pytest.MonkeyPatch, disk: MemoryDisk, **settings: object
) -> AsyncIterator[tuple[Broker, Talker]]:
    """A broker that has one message, and whose Python path would refuse any further one."""
    async with talk(disk=disk, **SYNC, **settings) as (broker, client):
        if isinstance(disk, SlowDisk):
            disk.let_through()
        await client.stores(b"first")

        def refuse(*_: object) -> Answer:
            raise AssertionError("this is for the kernel")

        for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            for connection in broker.connections:
                monkeypatch.setitem(connection._handlers, code, refuse)
        yield broker, client


def keyed(number: int, **more: Any) -> Command:
    return send_request(b"%d" % number, properties={"UNIQ_KEY": f"K{number}", "WAIT": "true"}, **more)


@needs_native
async def test_messages_of_the_native_path_are_acknowledged_and_dispatched_only_when_on_the_disk(
    disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kernel_only(monkeypatch, disk) as (broker, client):
        opaques = [client.posts(keyed(number, binary=number % 2 == 1)) for number in range(20)]
        await eventually(lambda: disk.waiting)
        await client.pass_time()
        assert not client.answers
        assert len(stored(broker)) == 1
        assert broker.store.max_offset(TOPIC, 0) == 1
        disk.let_through(1000)
        answers = [await client.answer_to(opaque) for opaque in opaques]
        assert [(answer.code, answer.ext_fields["queueOffset"]) for answer in answers] == [
            (ResponseCode.SUCCESS, str(number + 1)) for number in range(20)
        ]
        assert bodies(await client.pulls()) == [b"first", *(b"%d" % number for number in range(20))]
        assert [broker.store.query(TOPIC, f"K{number}").records for number in (0, 19)] != [[], []]
        (connection,) = broker.connections
        assert connection.deferred_responses == 0


@needs_native
async def test_a_late_flush_is_answered_for_each_message_of_the_native_path(
    disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kernel_only(monkeypatch, disk, syncFlushTimeout=20) as (broker, client):
        opaques = [client.posts(keyed(number, binary=number == 1)) for number in range(3)]
        for number, opaque in enumerate(opaques):
            answer = await client.answer_to(opaque)
            assert answer.code == ResponseCode.FLUSH_DISK_TIMEOUT
            assert answer.ext_fields["queueOffset"] == str(number + 1)
            assert answer.ext_fields["transactionId"] == f"K{number}"
        disk.let_through(1000)
        await eventually(lambda: len(stored(broker)) == 4)
        await client.pass_time()
        assert client.answers == {}
        (connection,) = broker.connections
        assert connection.deferred_responses == 0


@needs_native
async def test_a_failed_flush_is_answered_for_messages_of_the_native_path(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = MemoryDisk()
    async with kernel_only(monkeypatch, disk, syncFlushTimeout=NEVER_MS) as (broker, client):
        disk.fail("sync", path_contains=LOG)
        opaques = [client.posts(keyed(number)) for number in range(3)]
        for opaque in opaques:
            assert (await client.answer_to(opaque)).code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert bodies(await client.pulls()) == [b"first"]
        with pytest.raises(Exception, match="the disk failed"):
            await broker.stop()


@needs_native
async def test_a_client_that_sends_more_than_the_disk_takes_is_not_read_until_it_does(
    disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kernel_only(monkeypatch, disk) as (broker, client):
        (connection,) = broker.connections
        connection._max_deferred = most = 50
        opaques: list[int] = []
        while not connection._pause_reasons:
            opaques.append(client.posts(keyed(len(opaques))))
            await asyncio.sleep(0)
            assert len(opaques) < 100 * most
        opaques += [client.posts(keyed(number)) for number in range(1000, 1000 + most)]
        await asyncio.sleep(0.01)
        assert most <= connection.deferred_responses < len(opaques)
        disk.let_through(100_000)
        for opaque in opaques:
            assert (await client.answer_to(opaque)).code == ResponseCode.SUCCESS
        assert connection.deferred_responses == 0
        assert not connection._pause_reasons


@needs_native
async def test_a_client_that_disconnects_while_native_responses_wait_does_no_harm(
    disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with kernel_only(monkeypatch, disk) as (broker, client):
        for number in range(5):
            client.posts(keyed(number))
        await eventually(lambda: disk.waiting)
        client.hang_up()
        await eventually(lambda: not broker.connections)
        disk.let_through(1000)
        await eventually(lambda: len(stored(broker)) == 6)
