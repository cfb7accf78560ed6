"""Pulls of messages that are not in memory: they wait for the disk, and other requests do not."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from support.broker.requests import Talker, bodies, pull_request, talk, talking_to
from support.remoting_harness import eventually
from support.store.cold_disk import ColdDisk

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest

    from orbitmq.broker import Broker

SENT = [b"a", b"b", b"c"]


@contextlib.asynccontextmanager
async def restarted(root: Path, disk: ColdDisk) -> AsyncIterator[tuple[Broker, Talker]]:
    """A broker with messages of an earlier life."""
    async with talk(ColdDisk(), storePathRootDir=root) as (_, client):
        for body in SENT:
            await client.stores(body)
    async with talk(disk, storePathRootDir=root) as (broker, client):
        disk.fetched.clear()
        yield broker, client


async def test_a_cold_pull_waits_for_the_disk_and_other_requests_do_not(tmp_path: Path) -> None:
    disk = ColdDisk()
    async with restarted(tmp_path, disk) as (_, client):
        disk.may_go_on.clear()
        pull = client.posts(pull_request())
        await eventually(lambda: len(disk.fetched) == 1)
        await client.pass_time()
        await client.stores(b"d")
        disk.may_go_on.set()
        assert bodies(await client.answer_to(pull)) == [*SENT, b"d"]
        assert bodies(await client.pulls(3)) == [b"d"]


async def test_a_range_that_several_pulls_wait_for_is_fetched_once(tmp_path: Path) -> None:
    disk = ColdDisk()
    async with restarted(tmp_path, disk) as (broker, client), talking_to(broker) as other:
        disk.may_go_on.clear()
        pulls = [(one, one.posts(pull_request())) for one in (client, client, other)]
        for one in (client, other):
            await one.pass_time()
        disk.may_go_on.set()
        for one, pull in pulls:
            assert bodies(await one.answer_to(pull)) == SENT
        assert len(disk.fetched) == 1


async def test_a_range_whose_fetch_fails_is_read_nevertheless(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = ColdDisk()
    async with restarted(tmp_path, disk) as (_, client):
        disk.is_broken = True
        assert bodies(await client.pulls()) == SENT
    assert "read-ahead of the log failed" in caplog.text


async def test_a_broker_that_stops_answers_those_who_wait(tmp_path: Path) -> None:
    disk = ColdDisk()
    async with restarted(tmp_path, disk) as (broker, client):
        disk.may_go_on.clear()
        pull = client.posts(pull_request())
        await eventually(lambda: len(disk.fetched) == 1)
        stopping = asyncio.create_task(broker.stop())
        await asyncio.sleep(0)
        disk.may_go_on.set()
        assert bodies(await client.answer_to(pull)) == SENT
        await stopping


async def test_one_who_left_is_not_waited_for(tmp_path: Path) -> None:
    disk = ColdDisk()
    async with restarted(tmp_path, disk) as (broker, client):
        disk.may_go_on.clear()
        async with talking_to(broker) as other:
            other.posts(pull_request())
            await eventually(lambda: len(disk.fetched) == 1)
        disk.may_go_on.set()
        assert bodies(await client.pulls()) == SENT
