"""What holds for all rings: a test that hangs ends, one that leaves a client open fails, and what runs in one
process when there are several.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from orbitmq.client.instance import _instances

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

WHOLE_RINGS = ("conformance",)
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


@pytest.fixture(autouse=True)
def no_client_is_left_open() -> Iterator[None]:
    """A client that nobody closed goes on in the tests after this one: this is the one that fails."""
    before = set(_instances)
    yield
    left = [instance.client_id for key, instance in _instances.items() if key not in before]
    assert not left, f"not closed: {', '.join(left)}"


class _ByRing(LoadScopeScheduling):  # type: ignore[misc]  # it has no types
    """What starts real peers starts them once: that ring is one process's. Others go file by file."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        ring = path.removeprefix("tests/").partition("/")[0]
        return ring if ring in WHOLE_RINGS else path


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    return _ByRing(config, log)
