"""Processors: what becomes of their responses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.command.frame import MAX_FRAME
from orbitmq.remoting.processor import handler_of
from support.remoting_harness import ECHO, RawPeer, on_each_loop, request, serving

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection


@on_each_loop
@pytest.mark.parametrize("is_deferred", [False, True])
async def test_an_answer_that_is_longer_than_clients_read_is_replaced_by_an_error(*, is_deferred: bool) -> None:
    def small_or_large(request: Command, _: Connection) -> Command | Coroutine[None, None, Command]:
        size = MAX_FRAME if request.body else 0
        response = request.response(ResponseCode.SUCCESS, body=bytes(size))
        return asyncio.sleep(0, response) if is_deferred else response

    async with serving({ECHO: handler_of(small_or_large)}) as server, RawPeer.connected(server) as peer:
        refused = await peer.ask(request(ECHO, 1, body=b"large"))
        assert refused.code == ResponseCode.SYSTEM_ERROR
        assert "request less at once" in (refused.remark or "")
        assert (await peer.ask(request(ECHO, 2))).code == ResponseCode.SUCCESS
