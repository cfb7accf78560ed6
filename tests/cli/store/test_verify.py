"""``orbitmq store verify`` says what is damaged and where, and ends with 0 or 1."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from support.cli.command import run, run_apart
from support.store import golden
from support.store.stores import TOPIC, edit, edit_log, open_small, send

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", golden.SETS)
def test_a_store_of_rocketmq_is_sound(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    ran = run("store", "verify", root)
    assert ran.code == 0
    assert "Sound." in ran.out
    shown = run("store", "verify", root, "--json").json
    assert shown["isSound"] is True
    assert shown["log"]["records"] == golden.expected_offsets(name)["records"]


def test_the_remains_of_a_crash_are_reported_but_not_as_damage(tmp_path: Path) -> None:
    root = golden.unpack("killed", tmp_path)
    ran = run("store", "verify", root)
    assert ran.code == 0
    sentence = " ".join(ran.out.split())
    assert "The next start will scan the log from offset 262144 and end it at 774824" in sentence
    assert "write 44 queue units" in sentence
    recovery = run("store", "verify", root, "--json").json["recovery"]
    assert (recovery["unitsToWrite"], recovery["keysToWrite"], recovery["logEnd"]) == (44, 132, 774824)


def test_messages_lost_in_a_crash_are_reported(tmp_path: Path) -> None:
    sentence = " ".join(run("store", "verify", golden.unpack("torn", tmp_path)).out.split())
    assert "37 messages that were in queues are not in the log any more" in sentence


def test_damage_is_located_counted_and_ends_with_code_1(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 30, KEYS="key")
    edit_log(tmp_path, offsets[3] + 90, b"?")
    edit(tmp_path / "consumequeue" / TOPIC / "0" / f"{200:020d}", 8, b"\x01")
    ran = run("store", "verify", tmp_path)
    assert ran.code == 1
    assert "Damaged." in ran.out
    assert f"at offset {offsets[3]}" in ran.out
    assert f"consumequeue/{TOPIC}/0/{200:020d}, {TOPIC} queue 0" in ran.out
    shown = run("store", "verify", tmp_path, "--json")
    assert shown.code == 1
    assert shown.json["counts"] == {"bodyCrc": 1, "unitWrong": 1}
    body, unit = shown.json["findings"]
    assert (body["kind"], body["physicalOffset"], body["topic"], body["queueOffset"]) == (
        "bodyCrc",
        offsets[3],
        TOPIC,
        3,
    )
    assert (unit["kind"], unit["queueOffset"], unit["path"]) == (
        "unitWrong",
        10,
        str(tmp_path / "consumequeue" / TOPIC / "0" / f"{200:020d}"),
    )


def test_many_places_are_shown_when_asked_for(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 40)
    for offset in offsets[:30]:
        edit_log(tmp_path, offset + 88, b"?")
    ran = run("store", "verify", tmp_path)
    assert "… and 10 places more, see --all" in ran.out
    assert run("store", "verify", tmp_path, "--all").out.count("fails its CRC:") == 30


def test_a_store_that_another_process_writes_is_verified_beside_it(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for number in range(300):
            send(store, KEYS=f"key{number}")
            if number == 200:
                store.sync_queues()
        store.flush()
        ran = run_apart("store", "verify", tmp_path)
        assert ran.code == 0, ran.out
        assert "open in another process" in ran.out
        assert "is being written to" in ran.out
        # It did not lose its lock to the look at it.
        assert "is open in another process" in run_apart("store", "rebuild", "--yes", tmp_path).err
    assert run("store", "verify", tmp_path).code == 0


def test_a_conf_is_taken_into_account(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 5, KEYS="key")
    shutil.rmtree(tmp_path / "index")
    assert run("store", "verify", tmp_path).code == 1
    conf = tmp_path / "broker.conf"
    conf.write_text("messageIndexEnable=false\nbrokerName=unknown here\n")
    assert run("store", "verify", tmp_path, "--conf", conf).code == 0


def test_a_topic_table_that_cannot_be_read_is_no_obstacle(tmp_path: Path) -> None:
    root = golden.unpack("ipv6", tmp_path)
    for name in ("topics.json", "topics.json.bak"):
        path = os.path.join(root, "config", name)
        if os.path.exists(path):
            with open(path, "w", encoding="utf-8") as file:
                file.write("{ no json")
    ran = run("store", "verify", root)
    assert ran.code == 0
    assert "topics.json cannot be read" in ran.out


def test_brackets_and_control_characters_in_names_and_keys_are_only_text(tmp_path: Path) -> None:
    root = tmp_path / "[bold]store[/"
    with open_small(root) as store:
        send(store, 3, topic="T[red]", KEYS="[/nothing]\x1b[2J")
    index = next((root / "index").iterdir())
    edit(index, 40 + 4 * 50 + 20, b"\0\0\0\1")
    conf = tmp_path / "broker.conf"
    conf.write_text("maxHashSlotNum=50\nmaxIndexNum=100\n")
    ran = run("store", "verify", root, "--conf", conf)
    assert ran.code == 1
    assert "T[red]#[/nothing]\\x1b[2J" in ran.out
    assert str(root) in ran.out
    assert "T[red]" in run("store", "inspect", root, "--conf", conf).out
    assert "[/nothing]" in run("store", "dump", root, "--conf", conf).out
