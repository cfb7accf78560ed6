"""Clients that pull and never read: the process keeps within its memory budget, and the others are served."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from orbitmq.platform.memory_budget import UNSENT, MemoryBudget
from orbitmq.remoting.limits import memory_guard
from support.broker.flood_harness import (
    BUDGET,
    MEGABYTE,
    Canary,
    flooded_broker,
    pull_request,
    push,
    silent_sockets,
)
from support.remoting_harness import ECHO, echo, eventually, serving

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

CLIENTS = 50
PULLS = 600
"""Pulls of each client in one write; each response has nearly 64 KiB."""


async def test_clients_that_pull_and_never_read_cost_no_more_than_the_budget(tmp_path: Path) -> None:
    async with flooded_broker(tmp_path) as (server, port):
        with Canary(port) as canary, contextlib.ExitStack() as stack:
            for _ in range(62):
                assert canary.send(bytes(1000)).code == 0
            before = server.memory
            wire = b"".join(pull_request(opaque, 0) for opaque in range(PULLS))
            peers = [stack.enter_context(peer) for peer in silent_sockets(port, CLIENTS)]
            most = 0
            for _ in range(3):
                for peer in peers:
                    push(peer, wire)
                for _ in range(10):
                    assert canary.send().code == 0
                most = max(most, server.memory - before)
            for peer in peers:
                peer.close()
            await eventually(lambda: server.memory - before < BUDGET)

    # The budget, and what one loop iteration adds before it is noticed.
    assert most < 4 * BUDGET  # plus allocator overhead


async def test_memory_is_returned_to_the_system_after_a_flood(tmp_path: Path) -> None:
    async with flooded_broker(tmp_path, remotingMemoryBudget=256 * MEGABYTE) as (server, port):
        with Canary(port) as canary, contextlib.ExitStack() as stack:
            for _ in range(62):
                assert canary.send(bytes(1000)).code == 0
            before = server.memory
            wire = b"".join(pull_request(opaque, 0) for opaque in range(PULLS))
            for peer in silent_sockets(port, 150):
                push(stack.enter_context(peer), wire)
            await eventually(lambda: canary.send().code == 0 and server.memory - before > 90 * MEGABYTE)
            stack.close()
            await eventually(lambda: canary.send().code == 0 and server.memory - before < 30 * MEGABYTE)


async def test_memory_of_a_flood_between_two_sweeps_is_returned_too(monkeypatch: pytest.MonkeyPatch) -> None:
    releases: list[int] = []
    monkeypatch.setattr(memory_guard, "release_freed_memory", lambda: releases.append(1))
    budget = MemoryBudget(BUDGET)
    async with serving({ECHO: echo}, budget=budget):
        budget.charge(UNSENT, BUDGET // 3)
        budget.release(UNSENT, BUDGET // 3)
        await eventually(lambda: releases == [1])
