"""``orbitmq store inspect`` shows what a store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.cli.command import run, run_apart
from support.store import golden
from support.store.stores import TOPIC, open_small, send

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["basic", "extra", "ipv6"])
def test_queues_and_log_are_those_of_the_broker(name: str, tmp_path: Path) -> None:
    shown = run("store", "inspect", golden.unpack(name, tmp_path), "--json").json
    expected = golden.expected_offsets(name)
    assert (shown["log"]["minOffset"], shown["log"]["maxOffset"]) == (
        expected["minPhyOffset"],
        expected["maxPhyOffset"],
    )
    found = [
        [queue[name] for name in ("topic", "queueId", "type", "minOffset", "maxOffset")]
        for queue in shown["queues"]
    ]
    wanted = [[queue[name] for name in ("topic", "queueId", "type", "min", "max")] for queue in expected["queues"]]
    assert sorted(found) == sorted(wanted)
    checkpoint = {name: value for name, value in expected["checkpoint"].items() if name in shown["checkpoint"]}
    assert shown["checkpoint"] == {**shown["checkpoint"], **checkpoint}
    records = [row for row in golden.expected_records(name) if "topic" in row]
    assert shown["log"]["firstTimestamp"] == records[0]["storeTimestamp"]
    assert shown["log"]["lastTimestamp"] == records[-1]["storeTimestamp"]
    assert shown["state"] == "closed"


def test_a_store_left_by_a_crash_says_so(tmp_path: Path) -> None:
    root = golden.unpack("killed", tmp_path)
    shown = run("store", "inspect", root, "--json").json
    assert shown["state"] == "crashed"
    assert shown["abort"].isdigit()
    assert shown["log"]["maxOffset"] == golden.expected_offsets("killed")["maxPhyOffset"]
    assert shown["config"] == {"topics": 27, "groups": 9, "consumerOffsets": 3}
    assert "not closed properly" in run("store", "inspect", root).out


def test_people_see_files_queues_and_times(tmp_path: Path) -> None:
    ran = run("store", "inspect", golden.unpack("basic", tmp_path), "--all")
    assert ran.code == 0
    for text in ("closed properly", "offsets 0 to 928374", "TopicBulk", "2,998 messages", "20261115201136956"):
        assert text in ran.out
    assert "see --all" not in ran.out
    assert "see --all" in run("store", "inspect", golden.unpack("basic", tmp_path)).out


def test_an_index_that_cannot_be_told_is_shown_with_a_warning(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 5)
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "20260101000000000").write_bytes(bytes(40 + 4 * 51 + 20 * 100))
    assert "give --conf" in run("store", "inspect", tmp_path).out
    settings = run("store", "inspect", tmp_path, "--json").json["settings"]
    assert settings["maxHashSlotNum"] is None
    conf = tmp_path / "broker.conf"
    conf.write_text("maxHashSlotNum=51\nmaxIndexNum=100\n")
    assert run("store", "inspect", tmp_path, "--conf", conf, "--json").json["settings"]["maxHashSlotNum"] == 51


def test_a_store_open_in_another_process_says_so(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 250)
        store.sync_queues()
        shown = run_apart("store", "inspect", tmp_path, "--json").json
    assert shown["state"] == "open"
    assert shown["holder"] > 0
    assert [(queue["topic"], queue["maxOffset"]) for queue in shown["queues"]] == [(TOPIC, 250)]


def test_a_new_store_is_empty(tmp_path: Path) -> None:
    with open_small(tmp_path):
        pass
    shown = run("store", "inspect", tmp_path, "--json").json
    assert (shown["queues"], shown["index"], shown["log"]["files"]) == ([], [], [])
    assert run("store", "inspect", tmp_path).code == 0


def test_a_missing_log_file_is_named(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 60, size=200)
    (tmp_path / "commitlog" / f"{4096:020d}").unlink()
    (fault,) = run("store", "inspect", tmp_path, "--json").json["faults"]
    assert fault["offset"] == 4096
