"""Queues and index built by tasks equal those of the broker; errors are one sentence."""

from __future__ import annotations

import itertools
import os
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.message.record import HEADS, encode_record
from orbitmq.spark.pipelines.rebuild.job import rebuild_with
from orbitmq.spark.pipelines.rebuild.log_chunks import LogChunk, cut
from orbitmq.spark.pipelines.rebuild.reader import Reading
from orbitmq.spark.pipelines.spark_job import PipelineError
from orbitmq.store import LocalDisk, StoredMessage, StoreError, StoreLockedError
from orbitmq.store.commitlog.mapped_files import LogFiles
from orbitmq.store.consumequeue.ext import is_ext_address
from orbitmq.store.tools.detect_layout import NotAStoreError, survey
from orbitmq.store.tools.rebuild import SCRATCH
from orbitmq.store.tools.verify import verify
from support.cli.command import fingerprint, run
from support.spark.rebuild_harness import QUEUES, assert_built_alike, one_by_one, rebuilt
from support.store import golden
from support.store.stores import LOG_FILE, TOPIC, edit_log, open_small, read_all, send, tree

if TYPE_CHECKING:
    from pathlib import Path

CONF = {"maxHashSlotNum": "50", "maxIndexNum": "100", "mappedFileSizeConsumeQueue": "200"}


def index_of(root: str | Path) -> list[bytes]:
    return [contents for _, contents in sorted(tree(root, "index").items())]


# The bytes of Apache RocketMQ


@pytest.mark.parametrize("chunk_bytes", [None, 3000])
@pytest.mark.parametrize("name", ["basic", "ipv6", "extra"])
def test_queues_and_index_are_byte_for_byte_those_of_the_broker(
    name: str, chunk_bytes: int | None, tmp_path: Path
) -> None:
    root = golden.unpack(name, tmp_path)
    before, index, names = tree(root, *QUEUES), index_of(root), os.listdir(os.path.join(root, "index"))
    log = tree(root, "commitlog")
    for folder in QUEUES:
        shutil.rmtree(os.path.join(root, folder), ignore_errors=True)
    rebuilt(root, golden.config(name), chunk_bytes=chunk_bytes)
    after = tree(root, *QUEUES)
    assert after.keys() == before.keys()
    for path, contents in before.items():
        if is_ext_address(int.from_bytes(contents[12:20], "big", signed=True)):
            continue  # written without the extension, which readers take as well
        assert after[path] == contents, path
    assert index_of(root) == index
    assert sorted(os.listdir(os.path.join(root, "index"))) == sorted(names)
    assert tree(root, "commitlog") == log


@pytest.mark.parametrize("chunk_bytes", [None, 3000])
@pytest.mark.parametrize("name", golden.SETS)
def test_a_store_of_apache_is_built_as_by_the_broker_itself(
    name: str, chunk_bytes: int | None, tmp_path: Path
) -> None:
    root = golden.unpack(name, tmp_path)
    assert_built_alike(root, tmp_path / "beside", golden.config(name), chunk_bytes=chunk_bytes)
    assert verify(LocalDisk(), survey(LocalDisk(), root)).is_sound


# What the log decides


def test_a_body_that_is_a_record_does_not_lead_the_walk_astray(tmp_path: Path) -> None:
    """A record within a body that has its own offset passes for a record to a reader that starts before it."""
    host = bytes([127, 0, 0, 1, 0, 0, 42, 159])
    with open_small(tmp_path / "store") as store:
        for number in range(12):
            inner = encode_record(
                topic=b"inner",
                queue_id=0,
                body=b"x" * (number * 17),
                physical_offset=store.log.end + HEADS[0].size,
                store_timestamp=1 << 50,
                born_host=host,
                store_host=host,
            )
            store.append(StoredMessage(TOPIC, 0, inner))
    files = LogFiles(LocalDisk(), (str(tmp_path / "store" / "commitlog"),), LOG_FILE, writable=False)
    files.load()
    layout = survey(LocalDisk(), str(tmp_path / "store"))
    reading = Reading(layout.config, frozenset(), 1 << 60, str(tmp_path / "parts"))
    fooled = [
        read
        for chunk in cut(files, 2, 60)
        if not chunk.is_exact and (read := reading.read(chunk)).runs and read.runs[0].topic == "inner"
    ]
    files.close()
    assert fooled, "no body of this test looks like a record any more"
    summary = assert_built_alike(tmp_path / "store", tmp_path / "beside", CONF, chunk_bytes=60)
    assert summary.facts["records"] == 12


def test_a_queue_with_gaps_is_put_together_as_the_broker_does(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        send(store, 25)
        store.delete_topic(TOPIC)
        send(store, 12)
        send(store, 20, queue_id=1)
    # As where RocketMQ deleted the topic: nothing says so but the numbers of its records.
    os.remove(tmp_path / "store" / "config" / "orbitmqDeletedTopics.json")
    summary = assert_built_alike(tmp_path / "store", tmp_path / "beside", CONF, chunk_bytes=700)
    assert summary.facts["queues_with_gaps"] == 1


def test_queue_offsets_go_on_where_the_oldest_record_is_no_more(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        send(store, 60, size=200, KEYS="key")
    os.remove(tmp_path / "store" / "commitlog" / f"{0:020d}")
    with open_small(tmp_path / "store") as store:
        low, high = store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)
    assert rebuilt(tmp_path / "store", CONF, check=True).is_good
    assert_built_alike(tmp_path / "store", tmp_path / "beside", CONF)
    with open_small(tmp_path / "store") as store:
        assert (store.min_offset(TOPIC, 0), store.max_offset(TOPIC, 0)) == (low, high)


def test_names_of_further_index_files_are_the_times_of_their_first_records(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for number in range(120):
            send(store, KEYS=f"a{number} b{number}")
    names = sorted(os.listdir(tmp_path / "index"))
    contents = index_of(tmp_path)
    for name in names[1:]:
        os.remove(tmp_path / "index" / name)
    rebuilt(tmp_path, CONF)
    found = sorted(os.listdir(tmp_path / "index"))
    assert len(found) == len(names) > 2
    assert found[0] == names[0]
    assert index_of(tmp_path) == contents


def test_a_store_without_index_gets_none(tmp_path: Path) -> None:
    with open_small(tmp_path / "store", message_index_enable=False) as store:
        send(store, 20, KEYS="key")
    assert_built_alike(tmp_path / "store", tmp_path / "beside", {**CONF, "messageIndexEnable": "false"})
    assert not (tmp_path / "store" / "index").exists()


# Checking, writing elsewhere, keeping


def test_a_check_changes_nothing_and_names_what_differs(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        for number in range(60):
            send(store, queue_id=number % 3, KEYS=f"key{number}")
    before = fingerprint(tmp_path)
    assert rebuilt(tmp_path, CONF, check=True).is_good
    after = fingerprint(tmp_path)
    assert {path: found[0] for path, found in after.items()} == {path: found[0] for path, found in before.items()}
    victim = tmp_path / "consumequeue" / TOPIC / "1" / f"{200:020d}"
    victim.write_bytes(victim.read_bytes()[:20] + bytes(180))
    os.remove(tmp_path / "consumequeue" / TOPIC / "2" / f"{0:020d}")
    index = tmp_path / "index" / min(os.listdir(tmp_path / "index"))
    index.write_bytes(index.read_bytes()[:-1] + b"?")
    checked = rebuilt(tmp_path, CONF, check=True)
    assert not checked.is_good
    printed = checked.facts["first_differences"]
    assert printed[0].startswith(f"consumequeue/{TOPIC}/1/{200:020d}: unit 1 is empty and should be (offset ")
    assert printed[1] == f"consumequeue/{TOPIC}/2/{0:020d} is missing"
    assert printed[2].startswith(f"index/{index.name} differs from byte ")
    assert checked.facts["differences"] == 3
    assert not (tmp_path / SCRATCH).exists()


def test_another_directory_gets_what_was_built_and_the_store_stays_as_it_was(tmp_path: Path) -> None:
    root, out = golden.unpack("basic", tmp_path), tmp_path / "out"
    before = {path: found[0] for path, found in fingerprint(root).items()}
    rebuilt(root, to=str(out))
    assert {path: found[0] for path, found in fingerprint(root).items()} == before
    assert tree(out, "consumequeue") == tree(root, "consumequeue")
    assert index_of(out) == index_of(root)
    assert sorted(os.listdir(out)) == ["consumequeue", "index"]


def test_what_was_replaced_can_be_kept(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 30, KEYS="key")
    queues = list(tree(tmp_path, "consumequeue").values())
    rebuilt(tmp_path, CONF, keep=True)
    assert list(tree(tmp_path, "consumequeue.before-rebuild").values()) == queues
    assert (tmp_path / "index.before-rebuild").is_dir()
    with pytest.raises(PipelineError, match="from an earlier rebuild: remove it"):
        rebuilt(tmp_path, CONF, keep=True)
    with open_small(tmp_path) as store:
        assert len(read_all(store)) == 30


# Refusals


def test_a_log_that_is_damaged_in_its_middle_is_refused(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        offsets = send(store, 40, size=100)
    before = tree(tmp_path, ".")
    for at, damage, reason in (
        (offsets[7], b"\xff" * 8, "no record starts here"),
        (offsets[20] + 90, b"?", "the body fails its CRC"),
    ):
        edit_log(tmp_path, at, damage)
        for chunk_bytes in (None, 150):
            with pytest.raises(PipelineError, match=rf"damaged at offset \d+ \({reason}\).*orbitmq store rebuild"):
                rebuilt(tmp_path, CONF, chunk_bytes=chunk_bytes)
        edit_log(tmp_path, at, before[f"commitlog/{at - at % LOG_FILE:020d}"][at % LOG_FILE :][: len(damage)])
    assert tree(tmp_path, ".") == before
    assert not (tmp_path / SCRATCH).exists()


def test_damage_at_the_very_end_only_ends_the_log(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        offsets = send(store, 40, size=100)
    edit_log(tmp_path / "store", offsets[-1] + 90, b"?")
    assert_built_alike(tmp_path / "store", tmp_path / "beside", CONF, chunk_bytes=300)


def test_an_open_store_is_not_rebuilt(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store)
        with pytest.raises(StoreLockedError, match="stop that one"):
            rebuilt(tmp_path)


def test_a_store_without_a_log_is_left_alone(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 20)
    shutil.rmtree(tmp_path / "commitlog")
    before = tree(tmp_path, ".")
    with pytest.raises(StoreError, match="no log"):
        rebuilt(tmp_path)
    assert tree(tmp_path, ".") == before


def test_a_log_with_a_missing_file_is_refused(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 120, size=100)
    os.remove(tmp_path / "commitlog" / f"{LOG_FILE:020d}")
    with pytest.raises(StoreError, match="is missing"):
        rebuilt(tmp_path)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"check": True, "to": "out"}, "give one of them"),
        ({"check": True, "keep": True}, "nothing is"),
        ({"to": "store"}, "the store itself"),
        ({"to": "taken"}, "has a index already"),
        ({"to": "file"}, "is a file"),
    ],
)
def test_what_does_not_go_together_is_reported(options: dict[str, Any], words: str, tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        send(store, 5)
    (tmp_path / "taken" / "index").mkdir(parents=True)
    (tmp_path / "file").touch()
    if "to" in options:
        options = {**options, "to": str(tmp_path / options["to"])}
    with pytest.raises(PipelineError, match=words):
        rebuilt(tmp_path / "store", **options)


def test_a_directory_that_is_no_store_is_not_made_one(tmp_path: Path) -> None:
    with pytest.raises(NotAStoreError):
        rebuilt(tmp_path / "nothing")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NotAStoreError):
        rebuilt(tmp_path / "empty")
    assert sorted(os.listdir(tmp_path)) == ["empty"]
    assert not os.listdir(tmp_path / "empty")


def test_a_failed_task_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 60, size=100, KEYS="key")
    before = tree(tmp_path, ".")

    def failing(task: Any, items: Any, doing: str) -> Any:
        if "written" in doing:
            task(items[0])
            raise KeyboardInterrupt
        return one_by_one(task, items, doing)

    with pytest.raises(KeyboardInterrupt):
        rebuild_with(failing, 2, str(tmp_path), conf=CONF)
    assert tree(tmp_path, ".") == before
    assert not (tmp_path / SCRATCH).exists()


def test_a_task_that_is_done_twice_makes_the_same_files(tmp_path: Path) -> None:
    with open_small(tmp_path / "store") as store:
        send(store, 25)
        store.delete_topic(TOPIC)
        for number in range(40):
            send(store, queue_id=number % 2, KEYS=f"key{number}")

    def twice(task: Any, items: Any, doing: str) -> Any:
        one_by_one(task, items, doing)
        return one_by_one(task, items, doing)

    shutil.copytree(tmp_path / "store", tmp_path / "again")
    rebuild_with(twice, 2, str(tmp_path / "store"), conf=CONF, chunk_bytes=500)
    rebuilt(tmp_path / "again", CONF)
    for folder in (*QUEUES, "index"):
        assert tree(tmp_path / "store", folder) == tree(tmp_path / "again", folder)


# The command, as far as it goes without Spark


def test_a_dry_run_says_what_would_be_done_and_does_nothing(tmp_path: Path) -> None:
    root = golden.unpack("basic", tmp_path)
    before = fingerprint(root)
    ran = run("pipeline", "rebuild", root, "--dry-run", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["would_replace"] == ["consumequeue", "index"]
    assert ran.json["queue_file_bytes"] == 20000
    assert ran.json["assumed"] == []
    assert fingerprint(root) == before


@pytest.mark.parametrize("arguments", [["--dry-run"], []])
def test_bad_input_is_one_sentence_before_spark_starts(arguments: list[str], tmp_path: Path) -> None:
    ran = run("pipeline", "rebuild", tmp_path / "none", *arguments)
    assert (ran.code, ran.err) == (1, f"orbitmq: there is no directory {tmp_path / 'none'}\n")
    with open_small(tmp_path / "store") as store:
        send(store, 5)
    (tmp_path / "bad.conf").write_bytes(b"\xff\xfe")
    ran = run("pipeline", "rebuild", tmp_path / "store", "--broker-conf", tmp_path / "bad.conf", *arguments)
    assert ran.code == 1
    assert ran.err == f"orbitmq: {tmp_path / 'bad.conf'} is not a text file in UTF-8: give a broker.conf\n"
    ran = run("pipeline", "rebuild", tmp_path / "store", "--conf", "memory=1g", *arguments)
    assert ran.code == 1
    assert "is not a setting of Spark" in ran.err


def test_chunks_cover_the_whole_log(tmp_path: Path) -> None:
    with open_small(tmp_path) as store:
        send(store, 120, size=100)
    files = LogFiles(LocalDisk(), (str(tmp_path / "commitlog"),), LOG_FILE, writable=False)
    files.load()
    for size in (1, 100, LOG_FILE - 1, LOG_FILE, 10 * LOG_FILE):
        chunks: list[LogChunk] = cut(files, 2, size)
        assert [chunk.number for chunk in chunks] == list(range(len(chunks)))
        assert chunks[0].start == 0
        assert chunks[-1].end == files.limit
        assert all(chunk.end == after.start for chunk, after in itertools.pairwise(chunks))
