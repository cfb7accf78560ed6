"""What this machine's disk makes belongs to one user, and below a data directory no link is followed."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.platform.local_disk import LocalDisk
from orbitmq.store import DiskFaultError
from support.paths import PROJECT
from support.store.stores import offsets_of, open_small, read_all, send

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Callable, Iterator

UNIT_FILE = PROJECT / "deploy" / "orbitmq.service"


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """The usual umask, whatever the one of the test run is."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(root: pathlib.Path) -> dict[str, int]:
    return {str(path.relative_to(root)): stat.S_IMODE(path.lstat().st_mode) for path in root.rglob("*")}


def test_everything_a_store_makes_is_for_its_user_alone(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "new" / "store"
    with open_small(root) as store:
        send(store, 30, size=1000, KEYS="k")
    found = modes(tmp_path)
    assert {"new", "new/store", "new/store/commitlog", "new/store/lock", "new/store/checkpoint"} <= found.keys()
    wrong = {
        name: oct(mode) for name, mode in found.items() if mode != (0o700 if (tmp_path / name).is_dir() else 0o600)
    }
    assert wrong == {}


def test_existing_directories_and_files_keep_their_permissions(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "store"
    with open_small(root) as store:
        send(store)
    root.chmod(0o750)
    (root / "checkpoint").chmod(0o640)
    with open_small(root) as store:
        send(store)
    assert stat.S_IMODE(root.stat().st_mode) == 0o750
    assert stat.S_IMODE((root / "checkpoint").stat().st_mode) == 0o640


def test_the_unit_file_sets_the_umask() -> None:
    lines = UNIT_FILE.read_text().splitlines()
    assert "UMask=0077" in lines
    assert "StateDirectoryMode=0700" in lines


OPERATIONS: dict[str, Callable[[LocalDisk, str], object]] = {
    "list": lambda disk, path: disk.list(path),
    "stat": lambda disk, path: disk.stat(path),
    "read": lambda disk, path: disk.read(path),
    "write": lambda disk, path: disk.write(path, b"x"),
    "create": lambda disk, path: disk.create(path, 10),
    "pread": lambda disk, path: disk.pread(path, 0, 1),
    "pwrite": lambda disk, path: disk.pwrite(path, 0, b"x"),
    "zero": lambda disk, path: disk.zero(path, 0),
    "map": lambda disk, path: disk.map(path),
    "sync": lambda disk, path: disk.sync(path),
    "sync_dir": lambda disk, path: disk.sync_dir(path),
    "lock": lambda disk, path: disk.lock(path),
}


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("place", ["link", "folder/link", "linked/file"])
def test_no_operation_follows_a_link_below_the_data_directory(
    tmp_path: pathlib.Path, operation: str, place: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_bytes(b"theirs")
    root = tmp_path / "root"
    (root / "folder").mkdir(parents=True)
    (root / "link").symlink_to(elsewhere / "file")
    (root / "folder" / "link").symlink_to(elsewhere / "file")
    (root / "linked").symlink_to(elsewhere)
    disk = LocalDisk()
    disk.refuse_links(str(root))
    with pytest.raises(OSError) as refused:
        OPERATIONS[operation](disk, str(root / place))
    assert refused.value.errno == errno.ELOOP
    assert (elsewhere / "file").read_bytes() == b"theirs"
    disk.close()


def test_removing_a_link_leaves_what_it_leads_to(tmp_path: pathlib.Path) -> None:
    (tmp_path / "target").write_bytes(b"theirs")
    (tmp_path / "root" / "sub").mkdir(parents=True)
    (tmp_path / "root" / "link").symlink_to(tmp_path / "target")
    (tmp_path / "root" / "linked").symlink_to(tmp_path)
    disk = LocalDisk()
    disk.refuse_links(str(tmp_path / "root"))
    disk.remove(str(tmp_path / "root" / "link"))
    assert not (tmp_path / "root" / "link").is_symlink()
    behind = str(tmp_path / "root" / "linked" / "target")
    with pytest.raises(OSError) as refused:
        disk.remove(behind)
    assert refused.value.errno == errno.ELOOP
    with pytest.raises(OSError) as refused:
        disk.rename(behind, str(tmp_path / "root" / "mine"))
    assert refused.value.errno == errno.ELOOP
    assert (tmp_path / "target").read_bytes() == b"theirs"


def test_a_store_with_a_link_in_it_is_refused_with_its_path(tmp_path: pathlib.Path) -> None:
    root = tmp_path / "store"
    with open_small(root) as store:
        send(store)
    (root / "commitlog").rename(tmp_path / "moved")
    (root / "commitlog").symlink_to(tmp_path / "moved")
    with pytest.raises(DiskFaultError, match=f"follows no symbolic links below a data directory: {root}/commitlog"):
        open_small(root)


def test_the_root_and_the_configured_log_directories_may_be_links(tmp_path: pathlib.Path) -> None:
    real, log = tmp_path / "real", tmp_path / "other-disk"
    real.mkdir()
    log.mkdir()
    (tmp_path / "store").symlink_to(real)
    (real / "commitlog").symlink_to(log)
    settings: dict[str, Any] = {"store_path_commit_log": str(tmp_path / "store" / "commitlog")}
    with open_small(tmp_path / "store", **settings) as store:
        offsets = send(store, 20, size=500)
    assert list(log.iterdir())
    with open_small(tmp_path / "store", **settings) as store:
        assert offsets_of(read_all(store)) == offsets
