"""Pages of lists, the cache, the audit log, and settings of the console."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from orbitmq.admin.errors import InvalidRequestError, UnreachableError
from orbitmq.dashboard import audit as audit_module
from orbitmq.dashboard.audit import AuditLog
from orbitmq.dashboard.background import Ahead
from orbitmq.dashboard.cache import MAX_ENTRIES, Cache
from orbitmq.dashboard.config import ClusterTarget, DashboardConfig, parse_targets
from orbitmq.dashboard.listing import Query, page_of
from orbitmq.dashboard.widgets.text import ago, moment, number, parse_moment, share, size

if TYPE_CHECKING:
    from pathlib import Path

SORTS = {"length": len}


def test_a_page_is_searched_sorted_and_cut() -> None:
    names = ["orders", "payments", "order-events", "audit"]
    page = page_of(names, Query(search="ORDER", sort="length", descending=True, size=1), text=str, sorts=SORTS)
    assert (page.rows, page.total) == (["order-events"], 2)
    assert page_of(names, Query(page=3, size=2), text=str, sorts=SORTS).rows == []


@pytest.mark.parametrize("query", [Query(page=0), Query(size=0), Query(size=501), Query(sort="color")])
def test_an_invalid_page_is_refused(query: Query) -> None:
    with pytest.raises(InvalidRequestError):
        page_of(["a"], query, text=str, sorts=SORTS)


async def test_concurrent_reads_of_a_key_share_one_computation() -> None:
    cache, calls, seconds = Cache(lambda: now[0]), [], 5.0
    now = [100.0]

    async def compute() -> int:
        calls.append(1)
        await asyncio.sleep(0)
        return len(calls)

    assert await asyncio.gather(*(cache.get("a", seconds, compute) for _ in range(5))) == [1] * 5
    now[0] += 4.9
    assert await cache.get("a", seconds, compute) == 1
    now[0] += 0.2
    assert await cache.get("a", seconds, compute) == 2
    cache.clear()
    assert await cache.get("a", seconds, compute) == 3


async def test_errors_are_not_kept_and_entries_are_limited() -> None:
    cache = Cache(lambda: 0.0)

    async def fail() -> int:
        raise UnreachableError("127.0.0.1:1", "refused")

    async def work() -> int:
        return 7

    with pytest.raises(UnreachableError):
        await cache.get("a", 60.0, fail)
    assert await cache.get("a", 60.0, work) == 7
    for key in range(MAX_ENTRIES + 10):
        await cache.get(key, 60.0, work)
    assert len(cache._entries) <= MAX_ENTRIES


def test_the_audit_log_is_kept_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "MAX_ENTRIES", 10)
    path = tmp_path / "audit.jsonl"
    log = AuditLog(path)
    for at in range(50):
        log.record("ann", "127.0.0.1", "prod", "delete topic", f"topic-{at}")
    assert [entry.target for entry in log.entries()][:2] == ["topic-49", "topic-48"]
    assert len(path.read_bytes().splitlines()) <= 20
    with path.open("ab") as file:
        file.write(b'{"time_ms": 1}\n\xff\n')
    again = AuditLog(path)
    assert again.entries()[0].target == "topic-49"


def test_clusters_have_names() -> None:
    assert parse_targets(["prod=a:1;b:2", "test=c:3"]) == (
        ClusterTarget("prod", "a:1;b:2"),
        ClusterTarget("test", "c:3"),
    )
    assert parse_targets(["a:1"]) == (ClusterTarget("default", "a:1"),)
    for wrong in (["prod=a:1", "prod=b:1"], ["pr/od=a:1"], ["prod="], []):
        with pytest.raises(InvalidRequestError):
            parse_targets(wrong)


@pytest.mark.parametrize(
    "options", [{"login": False, "host": "0.0.0.0"}, {"access_key": "a"}, {"history_mib": 5000}]
)
def test_settings_that_would_be_unsafe_or_senseless_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        DashboardConfig(targets=parse_targets(["a:1"]), data="x", **options)  # type: ignore[arg-type]


def test_figures_are_readable() -> None:
    assert (number(1234567), number(0.125), number(1234.5)) == ("1,234,567", "0.12", "1,234")
    assert (size(512), size(1536), size(5 << 30)) == ("512 B", "1.5 KiB", "5.0 GiB")
    assert (share(0.5), share(-1)) == ("50%", "unknown")
    assert (moment(0), ago(0)) == ("–", "never")
    assert moment(10**18) == str(10**18)


def test_times_are_given_as_dates_or_before_now() -> None:
    assert parse_moment("") is None
    assert parse_moment("1795063458946") == 1795063458946
    hour, now = parse_moment("-1h"), parse_moment("-0s")
    assert hour is not None
    assert now is not None
    assert 3_590_000 < now - hour < 3_610_000
    for wrong in ("yesterday", "-1y", "2026-13-01"):
        with pytest.raises(ValueError, match="a time is"):
            parse_moment(wrong)


async def test_an_old_value_serves_while_the_next_is_computed() -> None:
    now = [100.0]
    cache, may_end = Cache(lambda: now[0]), asyncio.Event()
    values = iter(range(1, 10))

    async def compute() -> int:
        if now[0] > 100:
            await may_end.wait()
        return next(values)

    assert await cache.get("a", 5.0, compute, may_be_old=True) == 1
    now[0] = 110.0
    assert await cache.get("a", 5.0, compute, may_be_old=True) == 1
    may_end.set()
    await asyncio.sleep(0)
    assert await cache.get("a", 5.0, compute) == 2
    cache.clear(keep="a")
    assert await cache.get("a", 5.0, compute, may_be_old=True) == 2
    cache.clear()
    assert await cache.get("a", 5.0, compute, may_be_old=True) == 4


async def test_what_takes_long_is_computed_less_often() -> None:
    now = [100.0]
    cache, calls = Cache(lambda: now[0]), []

    async def compute() -> int:
        calls.append(1)
        now[0] += 10
        return len(calls)

    assert await cache.get("a", 1.0, compute) == 1
    now[0] += 49
    assert await cache.get("a", 1.0, compute) == 1
    now[0] += 2
    assert await cache.get("a", 1.0, compute) == 2


async def test_a_read_in_the_background_waits_for_those_of_viewers() -> None:
    ahead, order = Ahead(), []
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def listed() -> str:
        begun.set()
        await may_end.wait()
        order.append("list")
        return "rows"

    async def background() -> None:
        await ahead.pause()
        order.append("background")

    waiting = asyncio.create_task(ahead.of(listed)())
    await begun.wait()
    behind = asyncio.create_task(background())
    await asyncio.sleep(0)
    may_end.set()
    assert await waiting == "rows"
    await behind
    assert order == ["list", "background"]
    await ahead.pause()
