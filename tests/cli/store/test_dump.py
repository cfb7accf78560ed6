"""``orbitmq store dump`` prints records for machines and people and goes on behind damage."""

from __future__ import annotations

import datetime
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from orbitmq.store import StoredMessage
from support.cli.command import run
from support.store import golden
from support.store.stores import T0, edit_log, open_small, send

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory) -> str:
    return golden.unpack("basic", tmp_path_factory.mktemp("basic"))


def test_the_json_lines_are_what_rocketmqs_own_classes_read(basic: str) -> None:
    ran = run("store", "dump", "--json", basic)
    assert ran.code == 0
    assert ran.lines == list(golden.expected_records("basic"))


def test_a_torn_end_is_reported_and_ends_with_code_1(tmp_path: Path) -> None:
    ran = run("store", "dump", golden.unpack("torn", tmp_path), "--json")
    assert ran.code == 1
    assert ran.lines == list(golden.expected_records("torn"))
    assert "the log ends at offset 703868" in ran.err


def test_damage_in_the_middle_is_reported_and_passed(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 20)
    edit_log(tmp_path, offsets[4], b"\xff" * 8)
    ran = run("store", "dump", tmp_path, "--json")
    assert ran.code == 1
    assert len([row for row in ran.lines if "topic" in row]) == 19
    assert ran.err.count("\n") == 1
    assert f"offset {offsets[4]}" in ran.err
    people = run("store", "dump", tmp_path)
    assert "not a record" in people.out


def test_filters_are_combined(basic: str) -> None:
    ran = run("store", "dump", basic, "--json", "--topic", "TopicTags", "--queue", "1", "--limit", "3")
    assert [(row["topic"], row["queueId"], row["queueOffset"]) for row in ran.lines] == [
        ("TopicTags", 1, 0),
        ("TopicTags", 1, 1),
        ("TopicTags", 1, 2),
    ]
    (found,) = run("store", "dump", basic, "--json", "--id", ran.lines[1]["msgId"]).lines
    assert found == ran.lines[1]
    assert run("store", "dump", basic, "--json", "--id", found["properties"]["UNIQ_KEY"]).lines == [found]


@pytest.mark.parametrize("spelling", ["ms", "utc", "local"])
def test_times_are_taken_in_several_spellings(spelling: str, tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 3)
        store.clock.advance(1500)  # type: ignore[attr-defined]
        send(store, 2)
    moment = datetime.datetime.fromtimestamp((T0 + 1500) / 1000, datetime.UTC)
    text = {
        "ms": str(T0 + 1500),
        "utc": moment.isoformat().replace("+00:00", "Z"),
        "local": moment.astimezone().replace(tzinfo=None).isoformat(),
    }[spelling]
    assert len(run("store", "dump", tmp_path, "--json", "--from", text).lines) == 2
    assert len(run("store", "dump", tmp_path, "--json", "--to", text).lines) == 5
    assert len(run("store", "dump", tmp_path, "--json", "--to", str(T0)).lines) == 3


def test_bodies_are_extra_fields(basic: str) -> None:
    options = ("store", "dump", basic, "--json", "--topic", "TopicPlain", "--limit", "1")
    (plain,) = run(*options).lines
    (text,) = run(*options, "--body", "auto").lines
    (in_hex,) = run(*options, "--body", "hex").lines
    assert text == {**plain, "body": "plain body q0 #0"}
    assert in_hex == {**plain, "bodyHex": b"plain body q0 #0".hex()}


def test_people_see_topic_place_time_and_body(basic: str) -> None:
    ran = run("store", "dump", basic, "--topic", "TopicKeys", "--limit", "2")
    assert "TopicKeys 0:0" in ran.out
    assert "keys" in ran.out
    assert "2026-11-15" in ran.out or "2026-11-16" in ran.out


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.append(StoredMessage("TopicA", 0, b"\x1b[2Jgone\x07"))
    for form in ("auto", "text"):
        out = run("store", "dump", tmp_path, "--body", form).out
        assert "\x1b" not in out
        assert "\\x1b[2Jgone" in out


def test_nothing_found_is_said_to_people(basic: str) -> None:
    ran = run("store", "dump", basic, "--topic", "none")
    assert (ran.code, ran.out, ran.err) == (0, "", "orbitmq: no record matches\n")
    assert run("store", "dump", basic, "--topic", "none", "--json").out == ""


def test_a_reader_that_stops_early_is_no_error(basic: str) -> None:
    command = [sys.executable, "-m", "orbitmq", "store", "dump", "--json", basic]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0
