"""``orbitmq tour``: a store is filled, read, verified, crashed and recovered before your eyes."""

import contextlib
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import Console

from orbitmq.cli.console import complain, for_people, many, plain_errors, safe, size_text
from orbitmq.cli.tour_writer import TOPIC, config_for
from orbitmq.protocol.message_id import UniqueIdFactory
from orbitmq.protocol.properties import encode, find
from orbitmq.protocol.record import decode_record, iter_records
from orbitmq.store import GetStatus, LocalDisk, MessageStore, StoreError, SystemClock
from orbitmq.store.layout import survey
from orbitmq.store.verify import Report, verify

TOPICS = ("orders", "payments", "clicks")
QUEUES = 4
ACKNOWLEDGED = 400
"""Messages that the writer has acknowledged when it is killed, at least."""


def tour(
    directory: Annotated[
        str | None, typer.Option("--dir", help="Make the store here and keep it; else it is temporary.")
    ] = None,
    messages: Annotated[int, typer.Option(min=100, help="How many messages to store.")] = 50_000,
    seed: Annotated[int, typer.Option(help="The same seed makes the same messages.")] = 7,
) -> None:
    """Fill a store, read it back, verify it, kill a writer in the middle and recover."""
    with plain_errors(), _place(directory) as root:
        console = for_people()
        console.print(f"[bold]A tour of OrbitMQ's store[/] in {safe(root)}\n")
        keys = _fill(console, root, messages, seed)
        _read_back(console, root, messages, keys, seed)
        _check(console, root)
        acknowledged = _crash(console, root)
        _recover(console, root, acknowledged)
        if directory is not None:
            console.print(
                f"\nThe store stays in {safe(root)}; look at it with [bold]orbitmq store inspect {safe(root)}[/]."
            )


@contextlib.contextmanager
def _place(directory: str | None) -> Iterator[str]:
    if directory is None:
        with tempfile.TemporaryDirectory(prefix="orbitmq-tour-") as folder:
            yield os.path.join(folder, "store")
        return
    if os.path.exists(directory) and os.listdir(directory):
        raise StoreError(f"{directory} is not empty: give a directory that is, or one that does not exist")
    yield directory


def _say(console: Console, what: str, figures: str) -> None:
    console.print(f"[green]✓[/] {what:<46} [cyan]{figures}[/]")


def _rate(count: float, seconds: float, unit: str) -> str:
    return f"{count / max(seconds, 1e-9):,.0f} {unit}/s"


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise StoreError(f"the tour found a fault, please report it: {what}")


def _fill(console: Console, root: str, messages: int, seed: int) -> list[str]:
    """Store the messages; returns their keys in order."""
    rng = random.Random(seed)
    new_id = UniqueIdFactory(bytes((127, 0, 0, 1)), os.getpid(), seed, SystemClock().now_ms)
    prepared = []
    for number in range(messages):
        topic = rng.choice(TOPICS)
        body = b'{"number":%d,"text":"%s"}' % (number, rng.randbytes(rng.randrange(20, 120)).hex().encode())
        tag = rng.choice(("new", "paid", "sent"))
        properties = encode({"UNIQ_KEY": new_id(), "KEYS": f"key-{number}", "TAGS": tag})
        prepared.append((topic, rng.randrange(QUEUES), body, properties))
    began = time.perf_counter()
    with MessageStore.open(config_for(root)) as store:
        for topic, queue_id, body, properties in prepared:
            store.append(topic, queue_id, body, properties)
        appended = time.perf_counter() - began
        size = store.log.end
    closed = time.perf_counter() - began
    _say(console, f"{many(messages, 'message')} appended", f"{_rate(messages, appended, 'messages')}")
    _say(console, "synced and closed", f"{size_text(size)} of log in {closed:.2f} s")
    return [f"key-{number}" for number in range(messages)]


def _read_back(console: Console, root: str, messages: int, keys: list[str], seed: int) -> None:
    rng = random.Random(seed + 1)
    with MessageStore.open(config_for(root)) as store:
        began = time.perf_counter()
        count = 0
        for topic in TOPICS:
            for queue_id in range(QUEUES):
                offset = store.min_offset(topic, queue_id)
                while (result := store.get(topic, queue_id, offset)).status is GetStatus.FOUND:
                    count += result.count
                    offset = result.next_begin_offset
        seconds = time.perf_counter() - began
        _require(count == messages, f"{count} of {messages} messages were read")
        _say(console, "all read back by queue, every CRC checked", _rate(count, seconds, "messages"))

        chosen = rng.sample(keys, min(1000, len(keys)))
        began = time.perf_counter()
        records = [(key, record) for key in chosen for record in _by_key(store, key)]
        seconds = time.perf_counter() - began
        _require(len(records) == len(chosen), f"{len(records)} of {len(chosen)} keys were found")
        _say(console, f"{many(len(chosen), 'key')} looked up in the index", _rate(len(chosen), seconds, "look-ups"))

        decoded = [decode_record(record) for _, record in records]
        began = time.perf_counter()
        for record in decoded:
            _require(
                store.reader.by_message_id(store.message_id(record.physical_offset)) is not None, "an id is lost"
            )
        seconds = time.perf_counter() - began
        _say(console, f"{many(len(decoded), 'message')} found by id", _rate(len(decoded), seconds, "look-ups"))

        began = time.perf_counter()
        for record in decoded:
            offset = store.reader.offset_by_time(record.topic, record.queue_id, record.store_timestamp) or 0
            _require(offset <= record.queue_offset, "a time led behind its message")
        seconds = time.perf_counter() - began
        _say(
            console, f"{many(len(decoded), 'time')} found in their queue", _rate(len(decoded), seconds, "look-ups")
        )


def _by_key(store: MessageStore, key: str) -> list[memoryview]:
    """The records with exactly this key; the index may lead to others of the same hash."""
    candidates = [record for topic in TOPICS for record in store.query(topic, key).records]
    return [one for one in candidates if find(decode_record(one).properties, b"KEYS") == key.encode()]


def _verified(root: str) -> tuple[Report, float]:
    disk = LocalDisk()
    began = time.perf_counter()
    report = verify(disk, survey(disk, root))
    return report, time.perf_counter() - began


def _check(console: Console, root: str) -> None:
    report, seconds = _verified(root)
    _require(report.is_sound, f"damage: {dict(report.findings.counts)}")
    _say(
        console,
        "verified: CRCs, queue units, index",
        f"{size_text(report.record_bytes / max(seconds, 1e-9))}/s, {many(report.index_entries, 'key')}",
    )


def _crash(console: Console, root: str) -> int:
    """Kill a process that is appending; returns how many messages it had acknowledged."""
    start = "import sys; from orbitmq.cli.tour_writer import write_until_killed; write_until_killed(sys.argv[1])"
    command = [sys.executable, "-c", start, root]
    acknowledged = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:  # noqa: S603 (our own module)
        assert writer.stdout is not None
        try:
            for line in writer.stdout:
                acknowledged = int(line)
                if acknowledged >= ACKNOWLEDGED:
                    break
        finally:
            writer.kill()
        # What it wrote before it died counts as acknowledged too.
        for line in writer.stdout:
            if line.endswith("\n"):
                acknowledged = int(line)
    _require(acknowledged >= ACKNOWLEDGED, "the writer ended by itself")
    _say(console, "a writer under SYNC_FLUSH killed with SIGKILL", f"{many(acknowledged, 'message')} acknowledged")
    report, _ = _verified(root)
    _require(report.is_sound, f"the crash left damage: {dict(report.findings.counts)}")
    waiting = f"{many(report.units_to_write, 'queue unit')}, {many(report.keys_to_write, 'key')} to write"
    _say(console, "what the crash left, before recovery", waiting)
    return acknowledged


def _recover(console: Console, root: str, acknowledged: int) -> None:
    began = time.perf_counter()
    with MessageStore.open(config_for(root)) as store:
        seconds = time.perf_counter() - began
        report = store.recovery
        found = []
        offset = 0
        while (result := store.get(TOPIC, 0, offset)).status is GetStatus.FOUND:
            found += [record.body for part in result.slices for record in iter_records(part)]
            offset = result.next_begin_offset
    expected = [b"payment %d" % number for number in range(len(found))]
    _require(found == expected and len(found) >= acknowledged, f"{len(found)} of {acknowledged} messages survived")
    _say(console, "recovered", f"{many(report.records, 'record')} walked in {seconds * 1000:.0f} ms")
    _say(console, "every acknowledged message is there", f"{acknowledged} acknowledged, {len(found)} found")
    after, _ = _verified(root)
    if not after.is_sound:
        complain(f"recovery left damage: {dict(after.findings.counts)}")
        raise typer.Exit(1)
    _say(console, "verified again", f"{many(after.records, 'record')}, nothing damaged")
