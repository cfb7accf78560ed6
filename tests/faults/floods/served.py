"""Measures how other clients are served while a broker processes one long request."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import ResponseCode

if TYPE_CHECKING:
    from orbitmq.protocol.command.command import Command
    from support.broker.requests import Talker


async def served_before(
    flooding: Talker, request: Command, other: Talker, *, most: int = 2000
) -> tuple[Command, int]:
    """The response to a long request, and the number of pulls of another client that were answered before it."""
    opaque = flooding.posts(request)
    served = 0
    while opaque not in flooding.answers and served < most:
        answer = await other.pulls(0, most=1)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        served += 1
    return await flooding.answer_to(opaque), served
