"""The table of how far groups have come."""

from __future__ import annotations

import pytest

from orbitmq.broker.offsets.table import OffsetTable
from orbitmq.protocol.bodies import ConsumerOffsetSerializeWrapper, DataVersion
from orbitmq.store.config_tables import CONSUMER_OFFSETS
from orbitmq.testing import ManualClock, MemoryDisk
from support import paths
from support.broker.client_registry_harness import CONFIG_DIR, T0, writer_on

GROUP, TOPIC = "CG_a", "TopicA"
DATA = paths.DATA / "config"
FILE = f"{CONFIG_DIR}/consumerOffset.json"


def table(disk: MemoryDisk | None = None, clock: ManualClock | None = None, version_step: int = 500) -> OffsetTable:
    return OffsetTable(writer_on(disk or MemoryDisk()), clock or ManualClock(T0), version_step)


async def saved(offsets: OffsetTable, disk: MemoryDisk) -> ConsumerOffsetSerializeWrapper:
    """The contents of the disk after one iteration of the timer."""
    offsets.persist()
    await offsets._writer.saved()
    return ConsumerOffsetSerializeWrapper.decode(disk.read(FILE))


def test_the_offset_of_a_group_is_its_last_commit() -> None:
    offsets = table()
    assert offsets.query(GROUP, TOPIC, 0) == -1
    assert offsets.commit(GROUP, TOPIC, 0, 7)
    assert offsets.commit(GROUP, TOPIC, 3, 0)
    assert offsets.commit("CG_b", TOPIC, 0, 9)
    assert offsets.commit(GROUP, "TopicB", 0, 1)
    assert [offsets.query(GROUP, TOPIC, queue_id) for queue_id in range(4)] == [7, -1, -1, 0]
    assert offsets.of_group(GROUP, TOPIC) == {0: 7, 3: 0}
    assert offsets.of_group("CG_c", TOPIC) == {}
    assert offsets.topics_of(GROUP) == {TOPIC, "TopicB"}
    assert offsets.groups_of(TOPIC) == {GROUP, "CG_b"}


def test_a_group_may_go_back() -> None:
    offsets = table()
    offsets.commit(GROUP, TOPIC, 0, 7)
    offsets.commit(GROUP, TOPIC, 0, 5, "192.0.2.7:4711")
    assert offsets.query(GROUP, TOPIC, 0) == 5


def test_a_negative_offset_is_accepted_and_not_stored() -> None:
    offsets = table()
    assert offsets.commit(GROUP, TOPIC, 0, -1)
    assert offsets.topics_of(GROUP) == set()
    offsets.commit(GROUP, TOPIC, 0, 4)
    assert offsets.commit(GROUP, TOPIC, 0, -1)
    assert offsets.query(GROUP, TOPIC, 0) == 4


def test_the_pull_offset_is_the_committed_one_until_the_first_pull() -> None:
    offsets = table()
    assert offsets.pull_offset(GROUP, TOPIC, 0) == -1
    offsets.commit(GROUP, TOPIC, 0, 4)
    assert offsets.pull_offset(GROUP, TOPIC, 0) == 4
    offsets.commit_pull(GROUP, TOPIC, 0, 9)
    assert offsets.pull_offset(GROUP, TOPIC, 0) == 9
    assert offsets.query(GROUP, TOPIC, 0) == 4
    offsets.commit_pull(GROUP, "TopicB", 0, 1)
    assert offsets.topics_of(GROUP) == {TOPIC}


def test_a_reset_holds_commits_back_until_the_queue_is_pulled() -> None:
    offsets = table()
    offsets.commit(GROUP, TOPIC, 0, 9)
    assert not offsets.pending_resets
    offsets.reset(GROUP, TOPIC, 0, 2)
    offsets.reset(GROUP, TOPIC, 1, 0)
    assert offsets.query(GROUP, TOPIC, 0) == 2
    assert not offsets.commit(GROUP, TOPIC, 0, 10)
    assert offsets.commit("CG_b", TOPIC, 0, 10)
    assert offsets.query(GROUP, TOPIC, 0) == 2
    assert offsets.take_reset("CG_b", TOPIC, 0) is None
    assert offsets.take_reset(GROUP, TOPIC, 0) == 2
    assert offsets.take_reset(GROUP, TOPIC, 0) is None
    assert offsets.commit(GROUP, TOPIC, 0, 3)
    assert offsets.pending_resets
    assert offsets.take_reset(GROUP, TOPIC, 1) == 0
    assert not offsets.pending_resets


def test_a_clone_is_where_the_other_group_is_and_goes_its_own_way() -> None:
    offsets = table()
    offsets.commit(GROUP, TOPIC, 0, 4)
    offsets.commit(GROUP, "TopicB", 1, 5)
    offsets.commit("CG_b", TOPIC, 7, 8)
    offsets.clone(GROUP, "CG_b", TOPIC)
    assert offsets.topics_of("CG_b") == {TOPIC}
    assert offsets.of_group("CG_b", TOPIC) == {0: 4}
    offsets.commit("CG_b", TOPIC, 0, 6)
    assert offsets.query(GROUP, TOPIC, 0) == 4
    offsets.clone(GROUP, "CG_c")
    assert offsets.topics_of("CG_c") == {TOPIC, "TopicB"}
    offsets.clone("CG_unknown", "CG_d", TOPIC)
    assert offsets.topics_of("CG_d") == set()


@pytest.mark.parametrize("by", ["group", "topic"])
def test_removal_of_a_group_or_topic_removes_all_its_offsets(by: str) -> None:
    offsets = table()
    for group, topic in ((GROUP, TOPIC), (GROUP, "TopicB"), ("CG_b", TOPIC)):
        offsets.commit(group, topic, 0, 4)
        offsets.commit_pull(group, topic, 0, 5)
        offsets.reset(group, topic, 0, 3)
    offsets.commit_pull(GROUP, "TopicC", 0, 5)
    if by == "group":
        offsets.remove_group(GROUP)
    else:
        offsets.remove_topic(TOPIC)
    kept = f"{TOPIC}@CG_b" if by == "group" else f"TopicB@{GROUP}"
    body = offsets.as_body()
    assert list(body.offset_table) == list(offsets.pending_resets) == [kept]
    assert body.pull_offset_table is not None
    assert set(body.pull_offset_table) == ({kept} if by == "group" else {kept, f"TopicC@{GROUP}"})
    topic, _, group = kept.partition("@")
    assert body.group_topic_map == {group: [topic]}
    assert offsets.groups_of(topic) == {group}


def test_an_unknown_group_or_topic_can_be_removed() -> None:
    offsets = table()
    offsets.remove_group(GROUP)
    offsets.remove_topic(TOPIC)
    assert offsets.as_body().offset_table == {}


async def test_the_table_is_written_only_if_it_has_changed() -> None:
    disk = MemoryDisk()
    offsets = table(disk)
    offsets.persist()
    await offsets._writer.saved()
    assert disk.stat(FILE) is None
    offsets.commit(GROUP, TOPIC, 0, 4)
    assert (await saved(offsets, disk)).offset_table == {f"{TOPIC}@{GROUP}": {0: 4}}
    disk.remove(FILE)
    offsets.commit(GROUP, TOPIC, 0, 4)
    offsets.persist()
    await offsets._writer.saved()
    assert disk.stat(FILE) is None
    offsets.commit_pull(GROUP, TOPIC, 0, 8)
    assert (await saved(offsets, disk)).pull_offset_table == {f"{TOPIC}@{GROUP}": {0: 8}}


async def test_the_table_is_loaded_after_a_restart_without_pending_resets() -> None:
    disk = MemoryDisk()
    offsets = table(disk)
    offsets.commit(GROUP, TOPIC, 0, 4)
    offsets.commit_pull(GROUP, TOPIC, 0, 6)
    offsets.reset(GROUP, TOPIC, 1, 2)
    written = await saved(offsets, disk)
    again = table(disk, ManualClock(T0 + 1000))
    again.load()
    assert again.as_body() == written == offsets.as_body()
    assert again.data_version == DataVersion(0, 0, T0)
    assert again.query(GROUP, TOPIC, 1) == 2
    assert not again.pending_resets


def test_a_new_table_has_the_time_it_was_made_as_its_version() -> None:
    offsets = table()
    offsets.load()
    assert offsets.data_version == DataVersion(0, 0, T0)


def test_so_many_commits_make_another_version() -> None:
    clock = ManualClock(T0)
    offsets = table(clock=clock, version_step=3)
    clock.advance(5)
    for _ in range(2):
        offsets.commit(GROUP, TOPIC, 0, 4)
    assert offsets.data_version.counter == 0
    offsets.commit(GROUP, TOPIC, 0, 4)
    assert offsets.data_version == DataVersion(1, 0, T0 + 5)
    for _ in range(3):
        offsets.commit(GROUP, TOPIC, 0, 4)
    assert offsets.data_version.counter == 2


@pytest.mark.parametrize("name", ["basic", "ipv6", "killed"])
async def test_the_file_of_a_real_broker_is_read_and_written_again_as_it_was(name: str) -> None:
    disk = MemoryDisk()
    data = (DATA / name / "consumerOffset.json").read_bytes()
    disk.write(FILE, data)
    offsets = table(disk)
    offsets.load()
    before = CONSUMER_OFFSETS.shape.decode(data)
    assert _comparable(offsets.as_body()) == _comparable(before)
    offsets.commit("CG_new", TOPIC, 0, 1)
    offsets.remove_group("CG_new")
    assert _comparable(await saved(offsets, disk)) == _comparable(before)


def test_negative_offsets_of_a_real_broker_count_as_none() -> None:
    disk = MemoryDisk()
    disk.write(FILE, b'{"offsetTable":{"T_order@CG_goord":{0:4,2:-1}}}')
    offsets = table(disk)
    offsets.load()
    assert offsets.of_group("CG_goord", "T_order") == {0: 4}
    assert offsets.query("CG_goord", "T_order", 2) == -1


def _comparable(body: ConsumerOffsetSerializeWrapper) -> object:
    topics = {group: sorted(names) for group, names in (body.group_topic_map or {}).items()}
    return body.offset_table, body.pull_offset_table, topics, body.data_version
