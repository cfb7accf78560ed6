"""POP tests: a pop reads all queues, however slow the machine is. ``tests/faults/floods`` tests the time limits."""

from __future__ import annotations

import pytest

from orbitmq.broker.pop import notification, peek, processor


@pytest.fixture(autouse=True)
def _without_time_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "POP_SECONDS", 60.0)
    monkeypatch.setattr(notification, "CHECK_SECONDS", 60.0)
    monkeypatch.setattr(peek, "PEEK_SECONDS", 60.0)
