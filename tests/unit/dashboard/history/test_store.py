"""The ring store behind the plots."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.dashboard.clusters import ClusterSet
from orbitmq.dashboard.config import DashboardConfig, parse_targets
from orbitmq.dashboard.history.sampler import Sampler
from orbitmq.dashboard.history.series import topic_series
from orbitmq.dashboard.history.store import LEVELS, HistoryStore, series_that_fit

if TYPE_CHECKING:
    from pathlib import Path

START = 1_800_000_000
"""A multiple of ten minutes."""


@pytest.fixture
def store(tmp_path: Path) -> HistoryStore:
    return HistoryStore.open(tmp_path / "history.ring", 1)


def test_samples_are_read_back_without_the_gaps(store: HistoryStore) -> None:
    for at in (0, 5, 20):
        store.write(START + at, {"a": float(at), "b": 1.0})
    found = store.read("a", START, START + 60)
    assert (found.step, found.times, found.values) == (5, [START, START + 5, START + 20], [0.0, 5.0, 20.0])
    assert store.read("c", START, START + 60).times == []


def test_coarser_levels_have_the_means(store: HistoryStore) -> None:
    for at in range(0, 1200, 5):
        store.write(START + at, {"a": float(at // 60)})
    day = store.read("a", START, START + 7200)
    assert day.step == 60
    assert day.values == [float(minute) for minute in range(20)]
    week = store.read("a", START - 172_800, START + 1200)
    assert (week.step, week.times) == (600, [START, START + 600])
    assert week.values == [4.5, 14.5]


def test_a_row_of_an_earlier_round_is_never_taken_for_a_new_one(store: HistoryStore) -> None:
    store.write(START, {"a": 1.0, "b": 1.0})
    later = START + LEVELS[0].span
    store.write(later, {"b": 2.0})
    assert store.read("a", later - 60, later).values == []
    assert store.read("b", later - 60, later).values == [2.0]


def test_history_survives_a_restart_in_a_file_of_the_same_size(tmp_path: Path) -> None:
    path = tmp_path / "history.ring"
    store = HistoryStore.open(path, 1)
    size = path.stat().st_size
    store.write(START, {"prod/group/billing/lag": 42.0})
    store.close()
    again = HistoryStore.open(path, 1)
    assert again.names() == ["prod/group/billing/lag"]
    assert again.read("prod/group/billing/lag", START, START + 5).values == [42.0]
    again.write(START + 5, {f"series {at}": 1.0 for at in range(1000)})
    again.close()
    assert path.stat().st_size == size <= 1 << 20


@pytest.mark.parametrize("content", [b"", b"something else", b"ORBHIST1" + b"\xff" * 5000])
def test_a_file_of_another_layout_is_made_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "history.ring"
    path.write_bytes(content)
    store = HistoryStore.open(path, 1)
    assert store.names() == []
    store.write(START, {"a": 1.0})
    assert store.read("a", START, START).values == [1.0]


def test_the_series_that_was_not_written_for_longest_gives_way(store: HistoryStore) -> None:
    count = series_that_fit(1)
    store.write(START, {"old": 1.0})
    store.write(START + 5, {f"series {at}": 1.0 for at in range(count - 1)})
    store.write(START + 10, {"new": 2.0})
    assert "old" not in store.names()
    assert store.read("new", START, START + 60).values == [2.0]
    assert store.read("new", START - 7200, START + 60).values == [2.0]


def test_names_of_any_length_and_script_are_kept(store: HistoryStore) -> None:
    name = "群" * 500
    store.write(START, {name: 1.0, "short": 2.0})
    assert store.read("short", START, START).values == [2.0]
    assert len(store.names()) == 2


def test_the_rate_of_a_topic_is_over_the_time_between_two_reads(tmp_path: Path, store: HistoryStore) -> None:
    config = DashboardConfig(targets=parse_targets(["a:1"]), data=str(tmp_path))
    sampler = Sampler(ClusterSet(config), store, 5.0)
    series = topic_series("default", "orders", "put_tps")
    assert sampler._topic_rates("default", {"orders": 100}, 10.0) == {}
    assert sampler._topic_rates("default", {"orders": 400}, 40.0) == {series: 10.0}
    assert sampler._topic_rates("default", {"orders": 400}, 40.0) == {}, "the same read once more"
    assert sampler._topic_rates("default", {"orders": 200}, 50.0) == {series: 0.0}, "created again"
    assert sampler._topic_rates("default", {}, 60.0) == {}
    assert sampler._topic_rates("default", {"orders": 900}, 70.0) == {}
