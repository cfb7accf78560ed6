"""The epoch file never goes back, survives damage of its newest version, and finds where two logs differ."""

import contextlib
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.store import LocalDisk
from orbitmq.store.replication.epochs import Epoch, EpochError, EpochFile, Epochs, check, common_end, decode, encode

STEPS = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=30)


@given(STEPS)
def test_epochs_and_offsets_only_grow(steps: list[tuple[int, int]]) -> None:
    epochs = Epochs()
    highest = -1
    for epoch, start in steps:
        with contextlib.suppress(EpochError):
            epochs.append(epoch, start)
        assert epochs.last_epoch >= highest
        highest = epochs.last_epoch
        check(epochs)


@given(STEPS, st.integers(0, 50))
def test_an_offset_belongs_to_the_last_epoch_that_begins_before_it(
    steps: list[tuple[int, int]], offset: int
) -> None:
    epochs = Epochs()
    for epoch, start in steps:
        with contextlib.suppress(EpochError):
            epochs.append(epoch, start)
    entries = list(epochs)
    expected = [one for one in entries if one.start <= offset]
    found = epochs.at(offset)
    assert (found[0] if found else None) == (expected[-1] if expected else None)
    assert found is None or offset < found[1]


@given(STEPS)
def test_a_file_is_read_as_it_was_written(steps: list[tuple[int, int]]) -> None:
    epochs = Epochs()
    for epoch, start in steps:
        with contextlib.suppress(EpochError):
            epochs.append(epoch, start)
    assert decode(encode(list(epochs))) == list(epochs)


@given(st.binary(max_size=60))
def test_damage_is_an_error_and_nothing_else(data: bytes) -> None:
    with contextlib.suppress(EpochError):
        decode(data)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9)), min_size=1, max_size=12))
def test_two_logs_are_cut_at_the_last_byte_that_they_share(writes: list[tuple[int, int]]) -> None:
    """Replicas become master in turn, each from the log it has, and copies begin where the rule under test says."""
    logs: list[list[int]] = [[], [], []]
    histories = [Epochs(), Epochs(), Epochs()]
    for epoch, (who, size) in enumerate(writes, 1):
        histories[who].append(epoch, len(logs[who]))
        logs[who] += [epoch] * size
        slave = (who + size) % 3
        if slave == who:
            continue
        end = common_end(histories[slave], len(logs[slave]), histories[who], len(logs[who]))
        assert end is not None
        assert logs[slave][:end] == logs[who][:end]
        histories[slave] = Epochs(histories[who])
        logs[slave] = list(logs[who])


def test_the_previous_version_counts_when_the_file_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "epochFileCheckpoint"
    file = EpochFile(LocalDisk(), str(path))
    file.load(0)
    file.append(1, 0)
    file.append(2, 100)
    assert path.read_text("ascii").splitlines()[2:] == ["1-0", "2-100"]
    path.write_bytes(b"2\n17\n1-0\n2-1")

    again = EpochFile(LocalDisk(), str(path))
    again.load(500)

    assert list(again.epochs) == [Epoch(1, 0)]


def test_epochs_behind_the_end_of_the_log_are_dropped(tmp_path: Path) -> None:
    file = EpochFile(LocalDisk(), str(tmp_path / "epochFileCheckpoint"))
    file.append(1, 0)
    file.append(2, 100)

    again = EpochFile(LocalDisk(), file.path)
    again.load(99)

    assert list(again.epochs) == [Epoch(1, 0)]


def test_an_epoch_in_which_nothing_was_written_is_replaced() -> None:
    epochs = Epochs([Epoch(1, 0), Epoch(2, 100)])
    epochs.append(3, 100)
    assert list(epochs) == [Epoch(1, 0), Epoch(3, 100)]
