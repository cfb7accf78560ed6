"""Rules of all rings: time-outs, no client left open, flaky tests by name (``support.flaky``), and the distribution
of files to test processes (``support.distribution``).
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings

from orbitmq.client.instance.instance import _instances
from orbitmq.client.sync.bridge import users_of_the_sync_loop
from support.distribution import pytest_xdist_make_scheduler
from support.flaky import pytest_addoption, pytest_sessionfinish, pytest_terminal_summary

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

ALARM_INTERVAL_SECONDS = 20

# Tests assert behaviour and never times: on a busy machine any example may take seconds.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As a shell starts jobs in the background. Programs that tests interrupt would ignore it too.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Hooks of support.flaky and support.distribution.
__all__ = ["pytest_addoption", "pytest_sessionfinish", "pytest_terminal_summary", "pytest_xdist_make_scheduler"]


@pytest.hookimpl(wrapper=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> Generator[None, object, object]:
    """Repeat the alarm after the time-out.

    Hypothesis treats a time-out as a failure and runs the same example again to shrink it: without a second alarm
    that one would hang for ever.
    """
    result = yield
    if settings.method == "signal" and signal.getitimer(signal.ITIMER_REAL)[0] > 0:
        signal.setitimer(signal.ITIMER_REAL, settings.timeout, ALARM_INTERVAL_SECONDS)
    return result


@pytest.fixture(autouse=True)
def no_client_is_left_open() -> Iterator[None]:
    """An open client would go on during later tests, so the test that left it open fails."""
    before, users_before = set(_instances), users_of_the_sync_loop()
    yield
    left_open = [instance.client_id for key, instance in _instances.items() if key not in before]
    assert not left_open, f"not closed: {', '.join(left_open)}"
    assert users_of_the_sync_loop() <= users_before, "a blocking client or admin client was not closed"
