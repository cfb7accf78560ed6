"""Check points, acknowledgements and messages that came again, as Apache's broker wrote them and as this does."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.protocol.bodies import AckMsg, ConsumerOffsetSerializeWrapper, PopCheckPoint
from orbitmq.protocol.message.pop_receipt import normal_topic, topic_kind
from orbitmq.protocol.message.properties import parse
from orbitmq.protocol.message.record import MAGIC_V2, decode_record
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store import LocalDisk
from orbitmq.store.config_tables import CONSUMER_OFFSETS
from orbitmq.testing import ManualClock
from support.broker.broker_harness import running_broker
from support.broker.pop_harness import bodies_of, let_pass, popper_of
from support.broker.requests import properties_of, stored
from support.store.golden import commit_log, config, expected_records, unpack

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.protocol.message.record import Record

REVIVE = "rmq_sys_REVIVE_LOG_DefaultCluster"
REVIVE_GROUP = "CID_RMQ_SYS_REVIVE_GROUP"
SETTINGS: dict[str, Any] = {
    key: text for key, text in config("basic").items() if key not in {"listenPort", "recallMessageEnable"}
}
QUIET: dict[str, Any] = {"reviveInterval": 10**9, "popFromRetryProbability": 0}


def apaches(topic: str) -> list[Record]:
    """Messages that Apache's broker deferred or delivered for POP under a topic."""
    rows = [row for row in expected_records("basic") if row.get("topic") == topic]
    found = [decode_record(commit_log("basic"), row["physicalOffset"]) for row in rows]
    return [record for record in found if parse(record.properties).get("TAGS") in {"ck", "ack", "bAck"}]


PARKED = apaches(TIMER_TOPIC)
BACK = next(
    decode_record(commit_log("basic"), row["physicalOffset"])
    for row in expected_records("basic")
    if str(row.get("topic", "")).startswith("%RETRY%g_pop_")
)
GROUP = PopCheckPoint.decode(PARKED[0].body).cid
TOPIC = PopCheckPoint.decode(PARKED[0].body).topic


@pytest.mark.parametrize("theirs", PARKED, ids=lambda record: f"{record.queue_offset}")
async def test_records_are_the_same_to_the_byte(theirs: Record) -> None:
    clock = ManualClock(theirs.born_timestamp)
    async with running_broker(clock=clock, store_port=12911, **(SETTINGS | QUIET)) as broker:
        journal = broker.pop.checkpoints
        assert journal is not None
        said = parse(theirs.properties)
        queue_id = int(said["REAL_QID"])
        if said["TAGS"] == "ck":
            journal.check_point(PopCheckPoint.decode(theirs.body), queue_id)
        else:
            journal.ack(AckMsg.decode(theirs.body), queue_id, int(said["TIMER_DELIVER_MS"]))
        (ours,) = stored(broker, TIMER_TOPIC)
        assert ours.body == theirs.body
        assert ours.properties == theirs.properties
        for name in ("born_timestamp", "born_host", "store_host", "flag", "sys_flag", "reconsume_times", "magic"):
            assert getattr(ours, name) == getattr(theirs, name), name


async def test_pops_of_apaches_broker_are_brought_to_their_end_here(tmp_path: Path) -> None:
    """The log ends where everything was popped and all but one message acknowledged, and the broker was killed."""
    last = PARKED[9]
    root = unpack("basic", tmp_path)
    cut(root, last.physical_offset + last.size)
    clock = ManualClock(last.store_timestamp + 100)
    async with running_broker(LocalDisk(), clock, **settings_at(root)) as broker:
        let_pass(broker, clock, 20_000)
        (ours,) = stored(broker, BACK.topic)
        assert len(BACK.topic) > 127
        assert ours.magic == BACK.magic == MAGIC_V2
        for name in ("topic", "queue_id", "queue_offset", "body", "body_crc", "reconsume_times", "born_timestamp"):
            assert getattr(ours, name) == getattr(BACK, name), name
        assert (ours.flag, ours.sys_flag) == (BACK.flag, BACK.sys_flag)
        assert ours.born_host == ours.store_host, "as in theirs"
        assert BACK.born_host == BACK.store_host
        assert properties_of(ours) == properties_of(BACK)
        assert len(ours.properties) == len(BACK.properties)
        delivered = [record for queue_id in range(8) for record in stored(broker, REVIVE, queue_id)]
        assert sorted(record.body for record in delivered) == sorted(record.body for record in PARKED[:10])
        assert broker.offsets.of_group(REVIVE_GROUP, REVIVE) == {0: 2, 1: 0}
        assert broker.topics.configs[BACK.topic].read_queue_nums == 1

        async with popper_of(broker) as client:
            (got,) = await client.gets(TOPIC, GROUP)
            assert got.body == BACK.body
            assert topic_kind(got.topic) == "1"
            assert normal_topic(got.topic, GROUP) == TOPIC


async def test_messages_that_apaches_broker_completed_are_not_redelivered(tmp_path: Path) -> None:
    root = unpack("basic", tmp_path)
    newest = max(row.get("storeTimestamp", 0) for row in expected_records("basic"))
    clock = ManualClock(newest + 1000)
    async with running_broker(LocalDisk(), clock, **settings_at(root)) as broker:
        before = [record.body for record in stored(broker, BACK.topic)]
        let_pass(broker, clock, 20_000)
        assert [record.body for record in stored(broker, BACK.topic)] == before
        async with popper_of(broker) as client:
            assert bodies_of(await client.gets(TOPIC, GROUP)) == []


def settings_at(root: str) -> dict[str, Any]:
    return {**SETTINGS, **QUIET, "storePathRootDir": root}


def cut(root: str, end: int) -> None:
    """Let the log end in its first file, as a kill would leave it, and groups be where they were then."""
    logs = sorted(os.listdir(os.path.join(root, "commitlog")))
    with open(os.path.join(root, "commitlog", logs[0]), "r+b") as file:
        size = os.path.getsize(file.name)
        file.seek(end)
        file.write(bytes(size - end))
    for name in logs[1:]:
        os.remove(os.path.join(root, "commitlog", name))
    for folder in ("timerlog", "index"):
        for name in os.listdir(os.path.join(root, folder)):
            os.remove(os.path.join(root, folder, name))
    for name in ("timercheck", "timermetrics", "timermetrics.bak", "consumerOffset.json.bak"):
        os.remove(os.path.join(root, "config", name))
    with open(os.path.join(root, "abort"), "w", encoding="utf-8") as file:
        file.write("1")
    disk = LocalDisk()
    directory = os.path.join(root, "config")
    table = CONSUMER_OFFSETS.load(disk, directory)
    kept = {
        key: queues
        for key, queues in table.offset_table.items()
        if key.partition("@")[0] not in {REVIVE, BACK.topic}
    }
    CONSUMER_OFFSETS.persist(
        disk, directory, ConsumerOffsetSerializeWrapper(offset_table=kept, data_version=table.data_version)
    )
    topics = os.path.join(directory, "topics.json")
    os.remove(topics + ".bak")
    assert os.path.exists(topics)
    disk.close()
