"""A test that hangs ends, also when a library runs it again."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

AGAIN_SECONDS = 20


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    """After the time-out ring again and again.

    Hypothesis takes a time-out for a failure and runs the same example anew to make it smaller: without a second
    alarm that one hangs for ever.
    """
    told = yield
    if settings.method == "signal" and signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, AGAIN_SECONDS)
    return told
