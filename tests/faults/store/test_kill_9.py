"""A real process is killed at random moments, again and again on the same directory."""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from faults.store.appender_process import QUEUES, TOPICS, config
from orbitmq.protocol.message.properties import parse
from orbitmq.protocol.message.record import decode_record
from orbitmq.store import LocalDisk, MessageStore
from orbitmq.store.tools.detect_layout import survey
from orbitmq.store.tools.verify import State, verify
from support.store.stores import read_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LIVES = int(os.environ.get("ORBITMQ_KILLS", "50"))

SOME = 50
"""Messages looked for by their key: of tiny index files there are many, and each look-up opens them all."""


@dataclasses.dataclass(frozen=True)
class Acknowledged:
    """A message of which the store said that it is on disk."""

    topic: str
    queue_id: int
    queue_offset: int
    key: str


@pytest.fixture
def appender() -> Iterator[subprocess.Popen[bytes]]:
    source = os.path.join(os.path.dirname(__file__), "appender_process.py")
    with subprocess.Popen([sys.executable, source], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()
    assert process.returncode == 0


def live(appender: subprocess.Popen[bytes], directory: Path, life: int, kill_after: int) -> list[Acknowledged]:
    """Let a process append, kill it after so many acknowledgements; returns all that it sent."""
    assert appender.stdin is not None
    assert appender.stdout is not None
    appender.stdin.write(f"{directory} {life}\n".encode())
    appender.stdin.flush()
    pid = int(appender.stdout.readline())
    lines: list[bytes] = []
    # The pipe is read on after the kill: what was written into it was acknowledged.
    while (line := appender.stdout.readline()) != b"dead\n":
        assert line, "the process that starts the others is gone"
        lines.append(line)
        if len(lines) == kill_after:
            os.kill(pid, signal.SIGKILL)
    assert len(lines) >= kill_after, "the process died by itself"
    found = [line.decode().split() for line in lines]
    return [Acknowledged(topic, int(queue_id), int(offset), key) for topic, queue_id, offset, key in found]


def check(store: MessageStore, acknowledged: dict[str, Acknowledged], by_key: list[Acknowledged]) -> None:
    """Everything acknowledged is in its place, everything served is whole, and some are found by their key."""
    found: dict[str, Acknowledged] = {}
    for topic in TOPICS:
        for queue_id in range(QUEUES):
            records = read_all(store, topic, queue_id)
            assert [record.queue_offset for record in records] == list(range(len(records)))
            for record in records:
                key = parse(record.properties)["UNIQ_KEY"]
                assert record.body_is_intact
                assert record.body.startswith(key.encode() + b":")
                assert key not in found, "a message is there twice"
                found[key] = Acknowledged(record.topic, record.queue_id, record.queue_offset, key)
    for key, message in acknowledged.items():
        assert found.get(key) == message
    for message in by_key:
        (hit,) = store.query(message.topic, message.key).records
        assert decode_record(hit).queue_offset == message.queue_offset


def test_nothing_acknowledged_is_lost_when_the_process_is_killed(
    tmp_path: Path, appender: subprocess.Popen[bytes]
) -> None:
    rng = random.Random(9)
    disk = LocalDisk()
    acknowledged: dict[str, Acknowledged] = {}
    for life in range(LIVES):
        new = live(appender, tmp_path, life, kill_after=rng.choice((1, 20, 150, 400)) + rng.randrange(20))
        acknowledged.update((message.key, message) for message in new)
        if life % 10 == 0:
            report = verify(disk, survey(disk, str(tmp_path)))
            assert report.state is State.CRASHED
            assert not report.findings.named
        store = MessageStore.open(config(str(tmp_path)), disk=disk)
        assert not store.recovery.clean
        assert not store.recovery.damages
        check(store, acknowledged, new[-SOME:])
        # The next life begins with a store that was closed properly, or once more with one that was not.
        if rng.random() < 0.5:
            store.close()
        else:
            store.abandon()
    assert len(acknowledged) > LIVES
    with MessageStore.open(config(str(tmp_path)), disk=disk) as store:
        check(store, acknowledged, rng.sample(list(acknowledged.values()), SOME))
    assert verify(disk, survey(disk, str(tmp_path))).is_sound
    disk.close()
