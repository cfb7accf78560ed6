"""A crash at any step of replacing a table leaves the old or the new one readable."""

from __future__ import annotations

import errno

import pytest

from orbitmq.protocol.bodies import DataVersion, TopicConfig, TopicConfigSerializeWrapper
from orbitmq.store.config_tables import TOPICS
from orbitmq.store.errors import DiskFaultError
from orbitmq.testing import MemoryDisk, PowerCut

DIRECTORY = "/store/config"
SEEDS = range(25)
GENERATIONS = [
    TopicConfigSerializeWrapper(
        {f"topic-{number}": TopicConfig(f"topic-{number}") for number in range(20 * generation)},
        DataVersion(counter=generation),
    )
    for generation in range(5)
]
EMPTY = GENERATIONS[0]


def disk_with(generations: int) -> MemoryDisk:
    """A disk on which the table was replaced so many times."""
    disk = MemoryDisk()
    for generation in range(1, generations + 1):
        TOPICS.persist(disk, DIRECTORY, GENERATIONS[generation])
    return disk


def operations_of_a_replacement(generations: int) -> int:
    for operations in range(20):
        disk = disk_with(generations)
        disk.crash_after(operations)
        try:
            TOPICS.persist(disk, DIRECTORY, GENERATIONS[generations + 1])
        except PowerCut:
            continue
        return operations
    raise AssertionError("replacing a table takes more operations than expected")


@pytest.mark.parametrize("generations", [0, 1, 2, 3])
def test_a_power_cut_at_any_step_leaves_the_old_or_the_new_table(generations: int) -> None:
    old, new = GENERATIONS[generations], GENERATIONS[generations + 1]
    steps = operations_of_a_replacement(generations)
    assert steps >= 4
    for step in range(steps):
        for seed in SEEDS:
            disk = disk_with(generations)
            disk.crash_after(step)
            with pytest.raises(PowerCut):
                TOPICS.persist(disk, DIRECTORY, new)
            rebooted = disk.power_cut(seed)
            assert TOPICS.load(rebooted, DIRECTORY) in (old, new), f"step {step}, seed {seed}"
            # And what was found can itself be replaced, with the power failing right after.
            TOPICS.persist(rebooted, DIRECTORY, GENERATIONS[-1])
            assert TOPICS.load(rebooted.power_cut(seed), DIRECTORY) == GENERATIONS[-1]


@pytest.mark.parametrize("generations", [0, 1, 2])
def test_a_replaced_table_is_durable(generations: int) -> None:
    for seed in SEEDS:
        disk = disk_with(generations).power_cut(seed)
        assert TOPICS.load(disk, DIRECTORY) == GENERATIONS[generations]


def test_a_power_cut_while_a_useless_file_is_removed_loses_nothing() -> None:
    for seed in SEEDS:
        for step in range(2):
            disk = disk_with(2)
            disk.write(f"{DIRECTORY}/topics.json", b"{torn")
            disk.sync(f"{DIRECTORY}/topics.json")
            disk.crash_after(step)
            with pytest.raises(PowerCut):
                TOPICS.load(disk, DIRECTORY)
            assert TOPICS.load(disk.power_cut(seed), DIRECTORY) == GENERATIONS[1]


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_dir"])
@pytest.mark.parametrize("generations", [0, 1, 2])
def test_a_disk_that_refuses_at_any_step_leaves_the_old_or_the_new_table(operation: str, generations: int) -> None:
    old, new = GENERATIONS[generations], GENERATIONS[generations + 1]
    for after in range(2):
        disk = disk_with(generations)
        disk.fail(operation, after=after, error=errno.ENOSPC)
        try:
            TOPICS.persist(disk, DIRECTORY, new)
        except DiskFaultError:
            assert TOPICS.load(disk, DIRECTORY) in (old, new)
        else:
            assert TOPICS.load(disk, DIRECTORY) == new
        disk.heal()
        TOPICS.persist(disk, DIRECTORY, GENERATIONS[-1])
        assert TOPICS.load(disk, DIRECTORY) == GENERATIONS[-1]


def test_a_full_disk_leaves_the_table_and_its_backup_as_they_were() -> None:
    disk = disk_with(2)
    before = disk.read(f"{DIRECTORY}/topics.json"), disk.read(f"{DIRECTORY}/topics.json.bak")
    disk.fail("write", error=errno.ENOSPC)
    with pytest.raises(DiskFaultError):
        TOPICS.persist(disk, DIRECTORY, GENERATIONS[3])
    assert before == (disk.read(f"{DIRECTORY}/topics.json"), disk.read(f"{DIRECTORY}/topics.json.bak"))
