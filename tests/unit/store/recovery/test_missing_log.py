"""A log whose last file is missing or empty: the store says so, and no queue offset is used twice."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from orbitmq.store import StoreDamagedError, StoredMessage
from support.store.stores import LOG_FILE, TOPIC, offsets_of, open_small, read_all, send

if TYPE_CHECKING:
    from pathlib import Path

LAST = f"{2 * LOG_FILE:020d}"


def filled(root: Path, *, is_clean: bool) -> list[int]:
    """A store with three log files; where its records lie."""
    store = open_small(root)
    offsets = send(store, 9, size=1000)
    store.flush()
    if is_clean:
        store.close()
        return offsets
    store.close()
    store = open_small(root)
    store.flush()
    store.sync_queues()
    store.abandon()
    return offsets


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("harm", ["removed", "emptied"])
def test_a_store_without_its_last_log_file_is_refused_and_stays_as_it_is(
    tmp_path: Path, harm: str, is_clean: bool
) -> None:
    offsets = filled(tmp_path, is_clean=is_clean)
    path = tmp_path / "commitlog" / LAST
    data = path.read_bytes()
    if harm == "removed":
        path.unlink()
    else:
        os.truncate(path, 0)
    for _ in range(2):
        with pytest.raises(StoreDamagedError, match=f"{LAST} is missing or empty.*acceptLostLog=true"):
            open_small(tmp_path)
    path.write_bytes(data)
    with open_small(tmp_path) as store:
        assert offsets_of(read_all(store)) == offsets


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_store_that_accepts_the_loss_reuses_no_queue_offset(
    tmp_path: Path, is_clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    offsets = filled(tmp_path, is_clean=is_clean)
    kept = [offset for offset in offsets if offset < 2 * LOG_FILE]
    (tmp_path / "commitlog" / LAST).unlink()
    with open_small(tmp_path, accept_lost_log=True) as store:
        assert store.max_offset(TOPIC, 0) == len(offsets)
        assert store.append(StoredMessage(TOPIC, 0, b"next")).queue_offset == len(offsets)
        assert offsets_of(read_all(store))[:-1] == kept
    assert f"{len(offsets) - len(kept)} queue offsets have no message" in caplog.text
    # The loss is accepted for good: the setting is not needed any more.
    with open_small(tmp_path) as store:
        assert store.append(StoredMessage(TOPIC, 0, b"more")).queue_offset == len(offsets) + 1


def test_after_an_accepted_loss_a_crash_asks_for_nothing_more(tmp_path: Path) -> None:
    filled(tmp_path, is_clean=True)
    (tmp_path / "commitlog" / LAST).unlink()
    open_small(tmp_path, accept_lost_log=True).abandon()
    store = open_small(tmp_path)
    [new] = send(store)
    store.flush()
    store.abandon()
    with open_small(tmp_path) as store:
        assert offsets_of(read_all(store))[-1] == new
        assert store.append(StoredMessage(TOPIC, 0, b"next")).queue_offset == 10
