"""A real file system that is full: the store refuses messages, loses none, and lives to take them again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from faults.store.filling_process import TOPIC, config
from orbitmq.protocol.message.properties import parse
from orbitmq.store import LocalDisk, MessageStore
from orbitmq.store.tools.detect_layout import survey
from orbitmq.store.tools.verify import verify
from support.store.stores import read_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of four megabytes."""
    if os.geteuid() != 0:
        pytest.skip("only root can mount a small file system")
    directory = tmp_path / "small"
    directory.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(directory)]
    try:
        mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    yield directory
    subprocess.run(["umount", str(directory)], check=True)


def check(directory: str, kind: str, count: int) -> None:
    """All messages are there, whole and in order, and found by their keys."""
    disk = LocalDisk()
    with MessageStore.open(config(directory, kind), disk=disk) as store:
        records = read_all(store, TOPIC)
        assert [record.body.split(b":")[0] for record in records] == [b"%d" % number for number in range(count)]
        assert all(record.body_is_intact for record in records)
        assert [parse(record.properties)["UNIQ_KEY"] for record in records] == [f"u{n}" for n in range(count)]
        for number in range(0, count, 17):
            assert len(store.query(TOPIC, f"u{number}").records) == 1
    assert verify(disk, survey(disk, directory)).is_sound
    disk.close()


@pytest.mark.parametrize("end", ["closed", "killed"])
@pytest.mark.parametrize("kind", ["plain", "sync", "pool"])
def test_a_store_survives_a_full_disk_and_continues_with_free_space(small_disk: Path, kind: str, end: str) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(1_700_000))
    directory = str(small_disk / "store")
    source = os.path.join(os.path.dirname(__file__), "filling_process.py")
    command = [sys.executable, source, directory, kind]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def heard(word: str) -> int:
            assert process.stdout is not None
            line = process.stdout.readline().split()
            assert line[:1] == [word], f"the process ended with {process.wait()}"
            return int(line[1])

        full = heard("full")
        assert full > 50
        ballast.unlink()
        process.stdin.write("\n")
        process.stdin.flush()
        count = heard("done")
        assert count > full
        if end == "killed":
            process.kill()
        # Closing properly, or recovering, needs room for a few small files.
        subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
        if end == "closed":
            process.stdin.write("\n")
            process.stdin.flush()
    assert process.returncode == (-signal.SIGKILL if end == "killed" else 0)
    check(directory, kind, count)
