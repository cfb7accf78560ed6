"""Records are dumped as Apache's own classes read them, chosen by topic, queue, time, key and id."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.store import LocalDisk, StoredMessage
from orbitmq.store.commitlog.read_only import ReadOnlyLog
from orbitmq.store.tools.detect_layout import detect
from orbitmq.store.tools.dump import BodyForm, Dumped, Wanted, dump
from support.store import golden
from support.store.stores import edit_log, open_small, send

if TYPE_CHECKING:
    from pathlib import Path


def dumped(root: str | Path, form: BodyForm = BodyForm.NONE, **wanted: Any) -> list[Dumped]:
    disk = LocalDisk()
    log = ReadOnlyLog(disk, detect(disk, str(root)))
    log.load()
    try:
        return list(dump(log, Wanted(**wanted), form))
    finally:
        log.close()


def rows(found: list[Dumped]) -> list[dict[str, Any]]:
    return [one.row for one in found if one.row is not None]


def expected(name: str, **fields: Any) -> list[dict[str, Any]]:
    return [
        row
        for row in golden.expected_records(name)
        if "topic" in row and all(row[field] == value for field, value in fields.items())
    ]


@pytest.fixture(scope="module")
def basic(tmp_path_factory: pytest.TempPathFactory) -> str:
    return golden.unpack("basic", tmp_path_factory.mktemp("basic"))


@pytest.mark.parametrize("name", golden.SETS)
def test_the_whole_log_is_dumped_as_rocketmq_reads_it(name: str, tmp_path: Path) -> None:
    found = dumped(golden.unpack(name, tmp_path))
    assert rows(found) == list(golden.expected_records(name))
    assert [one.damage is not None for one in found] == [
        one.row == {**(one.row or {}), "survives": False} for one in found
    ]


def test_a_topic_and_a_queue_are_chosen(basic: str) -> None:
    assert rows(dumped(basic, topic="TopicOrder")) == expected("basic", topic="TopicOrder")
    chosen = rows(dumped(basic, topic="TopicOrder", queue_id=2))
    assert chosen == expected("basic", topic="TopicOrder", queueId=2)
    assert len(chosen) == 8


def test_a_span_of_time_is_chosen(basic: str) -> None:
    every = expected("basic")
    begin, end = every[500]["storeTimestamp"], every[2000]["storeTimestamp"]
    chosen = rows(dumped(basic, begin=begin, end=end))
    assert chosen == [row for row in every if begin <= row["storeTimestamp"] <= end]
    assert rows(dumped(basic, begin=every[-1]["storeTimestamp"] + 1)) == []
    assert rows(dumped(basic, end=every[0]["storeTimestamp"] - 1)) == []


def test_a_key_is_found_among_several(basic: str) -> None:
    row = next(row for row in expected("basic", topic="TopicKeys") if " " in row["properties"].get("KEYS", ""))
    for key in row["properties"]["KEYS"].split():
        assert row in rows(dumped(basic, topic="TopicKeys", key=key))
    assert rows(dumped(basic, key="no such key")) == []


@pytest.mark.parametrize("name", ["basic", "ipv6"])
def test_a_message_is_found_by_both_its_ids(name: str, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    row = expected(name)[10]
    assert rows(dumped(root, message_id=row["msgId"])) == [row]
    assert rows(dumped(root, message_id=row["msgId"].lower())) == [row]
    unique = row["properties"]["UNIQ_KEY"]
    assert rows(dumped(root, message_id=unique)) == [
        other for other in expected(name) if other["properties"].get("UNIQ_KEY") == unique
    ]
    assert rows(dumped(root, message_id=row["msgId"], topic="another")) == []


def test_an_id_of_another_broker_names_no_record_here(basic: str) -> None:
    row = expected("basic")[10]
    assert rows(dumped(basic, message_id="0A000001" + row["msgId"][8:])) == []


def test_bodies_are_dumped_on_request(basic: str) -> None:
    texts = rows(dumped(basic, BodyForm.AUTO, topic="TopicBig"))
    for row, plain in zip(texts, expected("basic", topic="TopicBig"), strict=True):
        body = row["body"].encode() if "body" in row else bytes.fromhex(row["bodyHex"])
        sha = plain.get("bodyDecompressedSha256", plain["bodySha256"])
        assert hashlib.sha256(body).hexdigest() == sha
        assert {key: value for key, value in row.items() if key not in {"body", "bodyHex"}} == plain
    assert any("bodyHex" in row for row in texts)
    assert all("bodyHex" in row for row in rows(dumped(basic, BodyForm.HEX, topic="TopicBig")))
    assert all("body" in row for row in rows(dumped(basic, BodyForm.TEXT, topic="TopicBig")))


def test_damage_is_named_and_the_rest_is_dumped(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 40, size=100)
    edit_log(tmp_path, offsets[5], b"\xff" * 8)
    edit_log(tmp_path, offsets[30] + 90, b"?")
    found = dumped(tmp_path)
    damages = [one.damage for one in found if one.damage is not None]
    assert [str(offsets[5]) in damages[0], str(offsets[30]) in damages[1], len(damages)] == [True, True, 2]
    whole = [row["physicalOffset"] for row in rows(found) if "topic" in row]
    assert whole == offsets[:5] + offsets[6:]
    damaged = next(row for row in rows(found) if row["physicalOffset"] == offsets[5])
    assert damaged["undecodable"] is True
    assert next(row for row in rows(found) if row["physicalOffset"] == offsets[30])["bodyIntact"] is False


def test_a_body_that_cannot_be_decompressed_is_reported(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        store.append(StoredMessage("TopicA", 0, b"not compressed", sys_flag=0x1))
    (found,) = dumped(tmp_path)
    assert found.damage is None
    assert found.row is not None
    assert "zlib" in found.row["bodyError"]
    assert found.row["bodyLength"] == len(b"not compressed")


def test_an_empty_store_has_no_rows(tmp_path: Path) -> None:
    with open_small(tmp_path):
        pass
    assert dumped(tmp_path) == []
