"""Replica waits: responses that wait for slaves are made by the Python path."""

from __future__ import annotations

import pytest

from support.broker.requests import talk
from support.native.marks import needs_native


@needs_native
@pytest.mark.parametrize("role", ["ASYNC_MASTER", "SYNC_MASTER"])
async def test_pops_and_acknowledgements_that_wait_for_slaves_take_the_python_path(role: str) -> None:
    async with talk(brokerRole=role, timerWheelEnable="true", mappedFileSizeTimerLog="4096") as (broker, _):
        assert broker._fast_path is not None
        is_native = broker._fast_path._pops is not None, broker._fast_path._acks is not None
        assert is_native == ((role == "ASYNC_MASTER"),) * 2
