"""Blocking code runs coroutines on a loop in another thread, or on one that runs only while it waits."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

import pytest

from orbitmq.client.errors import NotRunningError
from orbitmq.client.sync.bridge import CallerLoop, LoopThread, SyncLoop

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def loop_thread() -> Iterator[LoopThread]:
    loop = LoopThread("bridge-test")
    try:
        yield loop
    finally:
        loop.stop()


async def current_thread() -> str:
    return threading.current_thread().name


async def fail() -> None:
    raise LookupError("as planned")


def test_a_coroutine_runs_in_the_loops_thread_and_its_result_comes_back() -> None:
    with loop_thread() as loop:
        assert loop.do(current_thread()) == "bridge-test"


def test_an_exception_of_a_coroutine_is_raised_in_the_waiting_thread() -> None:
    with loop_thread() as loop, pytest.raises(LookupError, match="as planned"):
        loop.do(fail())


def test_stopping_cancels_what_still_runs_and_ends_the_thread() -> None:
    started = threading.Event()
    ended = threading.Event()

    async def wait_for_ever() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    with loop_thread() as loop:
        future = loop.submit(wait_for_ever())
        started.wait()
    assert ended.is_set()
    assert future.cancelled()
    assert not any(thread.name == "bridge-test" for thread in threading.enumerate())


def test_the_clients_of_a_process_share_one_loop_until_the_last_releases_it() -> None:
    first, second = SyncLoop.acquire(), SyncLoop.acquire()
    assert first is second
    first.release()
    assert second.do(current_thread()) == "orbitmq-client"
    second.release()
    third = SyncLoop.acquire()
    assert third is not first
    third.release()


def test_a_client_cannot_be_waited_for_on_its_own_loop() -> None:
    loop = SyncLoop.acquire()

    async def wait_for_itself() -> None:
        loop.do(current_thread())

    with pytest.raises(NotRunningError, match=r"use orbitmq\.aio there"):
        loop.do(wait_for_itself())
    loop.release()


def test_a_loop_without_a_thread_runs_in_the_calling_one() -> None:
    loop = CallerLoop()
    assert loop.run(current_thread()) == threading.current_thread().name
    assert loop.is_usable
    loop.close()
    assert loop.is_closed
    assert not loop.is_usable


def test_a_loop_without_a_thread_runs_the_last_work_before_it_closes() -> None:
    loop = CallerLoop()
    done: list[str] = []

    async def leave() -> None:
        done.append("left")

    loop.close(leave())
    assert done == ["left"]
