"""Workers of Spark's that are given many tasks do not look at the same objects after each of them."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import pytest

from orbitmq.spark.sessions.worker_warmup import settle

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def _unsettled() -> Iterator[None]:
    settle.cache_clear()
    yield
    settle.cache_clear()
    gc.unfreeze()


def test_a_worker_that_goes_on_leaves_what_it_has_out_of_collections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    settle()
    assert gc.get_freeze_count() > 0


def test_only_what_was_there_before_the_first_task_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    settle()
    count = gc.get_freeze_count()
    later = [[number] for number in range(1000)]
    settle()
    # Some of what is left out may be gone by now.
    assert gc.get_freeze_count() < count + len(later) // 2
    assert gc.is_tracked(later)


def test_a_process_that_is_no_worker_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    before = gc.get_freeze_count()
    settle()
    assert gc.get_freeze_count() == before
