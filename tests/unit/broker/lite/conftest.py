"""Tests of lite topics: a pop reads all that is ready, however slow the machine is."""

from __future__ import annotations

import pytest

from orbitmq.broker.lite import pop


@pytest.fixture(autouse=True)
def _without_time_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pop, "POP_SECONDS", 60.0)
