"""The virtual disk agrees with the real one, and its power cuts leave what the model allows and nothing else."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import tempfile
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.testing import MemoryDisk, PowerCut

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.platform.disk import Disk

PAGE = 1024
SECTOR = 512
PAGES = 40
SIZE = PAGES * PAGE - 100
"""More than two blocks of sixteen pages, and a last page that is not full."""

PATH = "/d/file"
seeds = st.integers(0, 2**32)


# Like the real one


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    operation: str
    path: str
    other: str
    number: int
    data: bytes


paths = st.sampled_from(["a", "b", "d", "d/a", "d/b", "d/e/a", "a/x"])
calls = st.builds(
    Call,
    st.sampled_from(
        ["create", "write", "pwrite", "zero", "rename", "remove", "read", "map", "lock", "pread", "stat"]
    ),
    paths,
    paths,
    st.integers(0, 9000),
    st.binary(max_size=20),
)


def perform(disk: Disk, root: str, call: Call) -> object:
    """Do one call; returns what can be seen of it. Which errno a refusal has is checked where it matters."""
    path, other = os.path.join(root, call.path), os.path.join(root, call.other)
    try:
        match call.operation:
            case "create":
                disk.create(path, call.number)
            case "write":
                disk.write(path, call.data)
            case "pwrite":
                return disk.pwrite(path, call.number, call.data)
            case "zero":
                disk.zero(path, call.number)
            case "rename":
                disk.rename(path, other)
            case "remove":
                disk.remove(path)
            case "read":
                return disk.read(path)
            case "lock":
                disk.lock(path)()
            case "map":
                mapped = disk.map(path)
                end = min(mapped.size, call.number + len(call.data))
                start = min(call.number, end)
                mapped.reserve(start, end)
                mapped.buffer[start:end] = call.data[: end - start]
                mapped.close()
            case "stat":
                found = disk.stat(path)
                return None if found is None or found.is_dir else found.size
            case _:
                return disk.pread(path, call.number // 2, len(call.data))
    except OSError:
        return "refused"
    return "done"


def tree(disk: Disk, directory: str) -> dict[str, object]:
    """Everything below a directory."""
    found: dict[str, object] = {}
    for name in disk.list(directory):
        path = os.path.join(directory, name)
        status = disk.stat(path)
        assert status is not None
        found[name] = tree(disk, path) if status.is_dir else disk.read(path)
    return found


@settings(deadline=None, max_examples=150)
@given(st.lists(calls, max_size=25))
def test_the_virtual_disk_does_what_the_real_one_does(script: list[Call]) -> None:
    virtual, real = MemoryDisk(), LocalDisk(max_open_files=2)
    with tempfile.TemporaryDirectory() as root:
        for call in script:
            assert perform(virtual, "/root", call) == perform(real, root, call), call
            assert tree(virtual, "/root") == tree(real, root), call
        real.close()


# Contents


@dataclasses.dataclass(frozen=True, slots=True)
class Stored:
    """Bytes stored somewhere in the file, through the map or by the disk."""

    offset: int
    data: bytes
    is_mapped: bool


stores = st.builds(
    lambda offset, data, is_mapped: Stored(offset, data[: SIZE - offset], is_mapped),
    st.integers(0, SIZE - 1),
    st.binary(min_size=1, max_size=30).flatmap(lambda unit: st.integers(1, 100).map(lambda n: unit * n)),
    st.booleans(),
)
steps = st.one_of(stores, st.sampled_from(["sync", "sync by path", "fail sync", "zero", "kill"]))


class Model:
    """A file, what was stored in it, and what must be durable of that."""

    def __init__(self, seed: int) -> None:
        self.disk = MemoryDisk(seed, page_size=PAGE)
        self.disk.create(PATH, SIZE)
        self.disk.sync(PATH)
        self.disk.sync_dir("/d")
        self.mapped = self.disk.map(PATH)
        self.live = bytearray(SIZE)
        self.durable = bytearray(SIZE)
        self.lost: set[int] = set()
        """Pages that a sync failed on and that nobody has changed since."""

    def store(self, offset: int, data: bytes, *, is_mapped: bool) -> None:
        end = offset + len(data)
        touched = range(offset // PAGE, -(-end // PAGE))
        before = {page: self.page(self.live, page) for page in touched}
        self.live[offset:end] = data
        # A store of the bytes that are there already cannot be seen through a map, so it revives no page there.
        self.lost -= {page for page in touched if not is_mapped or self.page(self.live, page) != before[page]}
        if is_mapped:
            self.mapped.reserve(offset, end)
            self.mapped.buffer[offset:end] = data
        else:
            assert self.disk.pwrite(PATH, offset, data) == len(data)

    def zero(self, start: int) -> None:
        for page in range(start // PAGE, PAGES):
            if any(self.live[max(page * PAGE, start) : (page + 1) * PAGE]):
                self.lost.discard(page)
        self.live[start:] = bytes(SIZE - start)
        self.disk.zero(PATH, start)

    def changed(self) -> set[int]:
        return {page for page in range(PAGES) if self.page(self.live, page) != self.page(self.durable, page)}

    @staticmethod
    def page(image: bytearray, page: int) -> bytes:
        return bytes(image[page * PAGE : (page + 1) * PAGE])

    def sync(self, *, by_path: bool = False) -> None:
        for page in self.changed() - self.lost:
            self.durable[page * PAGE : (page + 1) * PAGE] = self.page(self.live, page)
        self.lost &= self.changed()
        if by_path:
            self.disk.sync(PATH)
        else:
            self.mapped.sync()

    def fail_sync(self) -> None:
        self.lost = self.changed()
        self.disk.fail("sync")
        with pytest.raises(OSError):
            self.mapped.sync()

    def kill(self) -> None:
        self.disk = self.disk.kill()
        self.mapped = self.disk.map(PATH)

    def run(self, script: Iterable[Stored | str]) -> None:
        for step in script:
            match step:
                case Stored():
                    self.store(step.offset, step.data, is_mapped=step.is_mapped)
                case "sync" | "sync by path":
                    self.sync(by_path=step != "sync")
                case "fail sync":
                    self.fail_sync()
                case "zero":
                    self.zero(SIZE // 2 - 7)
                case _:
                    self.kill()


@settings(deadline=None)
@given(seeds, st.lists(steps, max_size=12))
def test_what_was_stored_is_read_whatever_became_durable(seed: int, script: list[Stored | str]) -> None:
    model = Model(seed)
    model.run(script)
    assert model.disk.read(PATH) == model.live
    assert bytes(model.mapped.buffer[:]) == model.live


@settings(deadline=None)
@given(seeds, st.lists(steps, max_size=12))
def test_exactly_what_was_synced_without_failure_is_durable(seed: int, script: list[Stored | str]) -> None:
    model = Model(seed)
    model.run(script)
    assert model.disk.durable_bytes(PATH) == bytes(model.durable)


@settings(deadline=None)
@given(seeds, st.lists(steps, max_size=12))
def test_every_sector_is_old_or_new_after_a_power_cut(seed: int, script: list[Stored | str]) -> None:
    model = Model(seed)
    model.run(script)
    for cut in range(4):
        after = model.disk.power_cut(cut).read(PATH)
        assert len(after) == SIZE
        for at in range(0, SIZE, SECTOR):
            sector = slice(at, at + SECTOR)
            assert after[sector] in (model.durable[sector], model.live[sector])


@settings(deadline=None)
@given(seeds, st.lists(steps, max_size=12))
def test_a_kill_loses_nothing(seed: int, script: list[Stored | str]) -> None:
    model = Model(seed)
    model.run(script)
    after = model.disk.kill()
    assert after.read(PATH) == model.live
    assert after.durable_bytes(PATH) == bytes(model.durable)
    assert after.space("/") == model.disk.kill().space("/")


@settings(deadline=None)
@given(seeds, st.lists(stores, min_size=1, max_size=4), st.lists(steps, max_size=6))
def test_no_later_sync_makes_durable_what_a_failed_one_lost(
    seed: int, unlucky: list[Stored], later: list[Stored | str]
) -> None:
    model = Model(seed)
    model.run(unlucky)
    lost = {page: model.page(model.live, page) for page in model.changed()}
    model.fail_sync()
    model.run(later)
    model.sync()
    durable = model.disk.durable_bytes(PATH)
    assert durable is not None
    for page in model.lost:
        assert durable[page * PAGE : (page + 1) * PAGE] != model.page(model.live, page)
    untouched = [step for step in later if isinstance(step, Stored) or step == "zero"] == []
    if untouched:
        assert durable == bytes(SIZE)
        assert {page: model.page(model.live, page) for page in model.lost} == lost


@settings(deadline=None)
@given(seeds, st.lists(stores, min_size=1, max_size=8), st.integers(0, 20))
def test_a_cut_in_any_operation_spares_what_was_synced_before(
    seed: int, script: list[Stored], operations: int
) -> None:
    model = Model(seed)
    model.disk.crash_after(operations)
    promised = bytes(SIZE)
    with contextlib.suppress(PowerCut):
        for step in script:
            model.run([step])
            model.mapped.sync()
            promised = bytes(model.live)
    for cut in range(3):
        after = model.disk.power_cut(cut).read(PATH)
        assert len(after) == SIZE
        # Bytes and not sectors: the write that was interrupted has stored a part of its own.
        wrong = [at for at in range(SIZE) if after[at] not in (promised[at], model.live[at])]
        assert not wrong


# Names


NAMES = ("/a/x", "/a/y", "/b/x", "/b/y")
names = st.sampled_from(NAMES)
name_steps = st.one_of(
    st.tuples(st.just("write"), names, names),
    st.tuples(st.just("rename"), names, names),
    st.tuples(st.just("remove"), names, names),
    st.tuples(st.just("sync_dir"), st.sampled_from(["/a", "/b"]), names),
)


class NameModel:
    """Files known by their contents, which are always synced, under names that are not."""

    def __init__(self, seed: int) -> None:
        self.disk = MemoryDisk(seed)
        for directory in ("/a", "/b"):
            self.disk.create(f"{directory}/other", 0)
            self.disk.sync_dir(directory)
        self.now: dict[str, bytes] = {}
        self.possible: dict[str, set[bytes | None]] = {name: {None} for name in NAMES}
        """What each name may lead to after a power cut: everything it led to since its directory was synced."""
        self.kept: set[bytes] = set()
        """Files that were durable under some name and that nobody removed or replaced since."""
        self.count = 0

    def put(self, path: str, file: bytes | None) -> None:
        self.kept.discard(self.now.get(path, b""))
        if file is None:
            self.now.pop(path, None)
        else:
            self.now[path] = file
        self.possible[path].add(file)

    def run(self, script: Iterable[tuple[str, str, str]]) -> None:
        for operation, path, other in script:
            if operation == "write" and path not in self.now:
                self.count += 1
                self.put(path, b"%d" % self.count)
                self.disk.write(path, self.now[path])
                self.disk.sync(path)
            elif operation == "rename" and path in self.now and path != other:
                file = self.now[path]
                was_kept = file in self.kept
                self.put(other, file)
                self.put(path, None)
                self.kept |= {file} if was_kept else set()
                self.disk.rename(path, other)
            elif operation == "remove":
                self.put(path, None)
                self.disk.remove(path)
            elif operation == "sync_dir":
                self.disk.sync_dir(path)
                for name in self.possible:
                    if name.startswith(path):
                        self.possible[name] = {self.now.get(name)}
                self.kept |= {file for name, file in self.now.items() if name.startswith(path)}

    def found_after(self, disk: MemoryDisk) -> dict[str, bytes]:
        return {path: disk.read(path) for path in self.possible if disk.stat(path) is not None}


@settings(deadline=None, max_examples=300)
@given(seeds, st.lists(name_steps, max_size=20))
def test_a_name_leads_after_a_power_cut_to_something_it_led_to_since_it_was_synced(
    seed: int, script: list[tuple[str, str, str]]
) -> None:
    model = NameModel(seed)
    model.run(script)
    for cut in range(8):
        found = model.found_after(model.disk.power_cut(cut))
        for path, possible in model.possible.items():
            assert found.get(path) in possible


@settings(deadline=None, max_examples=300)
@given(seeds, st.lists(name_steps, max_size=20))
def test_a_durable_file_that_was_only_renamed_has_exactly_one_name_after_a_power_cut(
    seed: int, script: list[tuple[str, str, str]]
) -> None:
    model = NameModel(seed)
    model.run(script)
    for cut in range(8):
        files = list(model.found_after(model.disk.power_cut(cut)).values())
        assert len(set(files)) == len(files)
        assert model.kept <= set(files)


@settings(deadline=None, max_examples=300)
@given(seeds, st.lists(name_steps, max_size=20))
def test_a_kill_leaves_every_name_and_the_same_ones_durable(seed: int, script: list[tuple[str, str, str]]) -> None:
    model = NameModel(seed)
    model.run(script)
    killed = model.disk.kill()
    assert model.found_after(killed) == model.now
    for cut in range(8):
        assert tree(killed.power_cut(cut), "/") == tree(model.disk.power_cut(cut), "/")
