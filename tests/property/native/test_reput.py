"""A log that is walked after a crash makes the same queues and index, by the compiled kernel and without it."""

from __future__ import annotations

import dataclasses
import zlib
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orbitmq import native
from orbitmq.protocol.message.record import blank, encode_record
from orbitmq.store.consumequeue.unit_file import file_name
from orbitmq.store.dispatch import native_reput
from orbitmq.store.recovery.abort_file import ABORT_MARK
from orbitmq.testing import ManualClock, MemoryDisk
from support.native.marks import needs_native
from support.native.twin_brokers import contents
from support.store.stores import T0, open_small

if TYPE_CHECKING:
    from orbitmq.store.commitlog.scanner import Seen

pytestmark = needs_native

ROOT = "/store"
FILE = 4096
COMPARED = "commitlog", "consumequeue", "batchconsumequeue", "index", "checkpoint", "orbitmq.floor"
BATCHED = "Batched"

topics = st.sampled_from(
    [b"Alpha"] * 4
    + [
        b"Beta",
        b"SCHEDULE_TOPIC_XXXX",
        BATCHED.encode(),
        b"%LMQ%x",
        b"%RETRY%g",
        "Grüße".encode(),
        b"\xc3",
        b"a/b",
        b"",
    ]
    + [b"T" * 127, b"%RETRY%" + b"g" * 130]
)
names = st.sampled_from(
    [b"TAGS", b"KEYS", b"UNIQ_KEY", b"DELAY", b"INNER_MULTI_DISPATCH", b"INNER_MULTI_QUEUE_OFFSET"]
)
values = st.one_of(
    st.sampled_from(
        [b"", b"a", b"TagA", b"a b  c ", b" ", b"3", b"99", b"0", b"12345678901", b"x\x01y", b"%LMQ%x,%LMQ%y"]
    ),
    st.sampled_from(["ü".encode(), b"\xff", "日本語".encode(), b"polygenelubricants", b"Q" * 40, b"0,1", b"\x00"]),
)
properties = st.one_of(
    st.integers(0, 10**6).map(lambda n: b"UNIQ_KEY\x01%032d\x02TAGS\x01T%d\x02KEYS\x01k%d l\x02" % (n, n % 3, n)),
    st.lists(
        st.one_of(
            st.tuples(names, values).map(lambda item: b"%s\x01%s\x02" % item),
            st.sampled_from([b"\x02", b"TAGS\x02", b"\x01x\x02", b"KEYS", b"OTHER\x01v\x02", b"\x00" * 600]),
        ),
        max_size=5,
    ).map(b"".join),
)


@dataclasses.dataclass(frozen=True, slots=True)
class Message:
    """What a record is made of. Its queue offset is the next one of its queue and so much more."""

    topic: bytes = b"Alpha"
    queue_id: int = 0
    ahead: int = 0
    body: bytes = b"body"
    properties: bytes = b""
    sys_flag: int = 0
    stored: int = T0
    hosts: tuple[int, int] = (8, 8)


plain = st.builds(
    Message,
    topic=st.sampled_from([b"Alpha", b"Beta"]),
    queue_id=st.integers(0, 1),
    properties=st.integers(0, 10**6).map(lambda n: b"UNIQ_KEY\x01%032d\x02TAGS\x01T%d\x02" % (n, n % 3)),
)
odd = st.builds(
    Message,
    topic=topics,
    queue_id=st.sampled_from([0, 0, 0, 1, 2, -1]),
    ahead=st.sampled_from([0] * 8 + [1, 5, -1, -3, 10**9, -(10**9)]),
    body=st.one_of(st.binary(max_size=200), st.sampled_from([b"", bytes(300), b"B" * 600])),
    properties=properties,
    sys_flag=st.sampled_from([0] * 6 + [0x4, 0x8, 0xC, 0x40, 0x80, 0x10, 0x20, 1]),
    stored=st.sampled_from([T0, T0, T0 + 5000, T0 - 10, 0, -1, 1 << 62]),
    hosts=st.sampled_from([(8, 8), (8, 8), (20, 8), (8, 20), (20, 20)]),
)
delayed = st.builds(
    Message,
    topic=st.just(b"SCHEDULE_TOPIC_XXXX"),
    properties=st.sampled_from([b"3", b"18", b"19", b"99", b"0", b"x", b"+1", b"012345678", b"1234567890"]).map(
        lambda level: b"TAGS\x01a\x02DELAY\x01%s\x02" % level
    ),
)
torn = st.builds(
    Message,
    topic=st.sampled_from([b"Alpha", b"Alp\x00a"]),
    properties=st.sampled_from(
        [b"TAGS\x01a\x00", bytes(10), b"TAGS\x01" + bytes(1100) + b"\x02", b"A\x01\x00b\x02"]
    ),
    stored=st.sampled_from([T0, 0, T0 - 10]),
)
# The first of each queue is never for the kernel.
FIRST = [Message(topic, number) for number in (0, 1) for topic in (b"Alpha", b"Beta", b"SCHEDULE_TOPIC_XXXX")]
messages = st.lists(st.one_of(plain, plain, plain, odd, delayed, torn), min_size=5, max_size=60).map(
    lambda sent: [*FIRST, *sent]
)
FIELDS = [0, 3, 4, 7, 8, 11, 12, 20, 27, 28, 35, 36, 39, 56, 63, 84, 87, 88, 91, 92, 93, 96, 97, 98, 99, 110]
"""Places in a record: size, magic, CRC, queue id, queue offset, physical offset, sysFlag, times, body, the rest."""
HARMS = [b"\x00", b"\x01", b"\x10", b"\x20", b"\x7f", b"\xff\xff", bytes(8), bytes(20), bytes(100), bytes(600)]
harms = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(FIELDS), st.sampled_from(HARMS)), max_size=3)
Harm = list[tuple[int, int, bytes]]


def log_of(sent: list[Message]) -> tuple[list[bytes], list[int]]:
    """The files of a log with these records, and where these are; what has no room in any is left out."""
    files = [b""]
    starts = []
    next_offsets: dict[tuple[bytes, int], int] = {}
    for one in sent:
        key = one.topic, one.queue_id
        queue_offset = next_offsets.get(key, 0) + one.ahead
        room = FILE - len(files[-1])
        arguments: dict[str, Any] = {
            "topic": one.topic,
            "queue_id": one.queue_id,
            "body": one.body,
            "properties": one.properties,
            "queue_offset": queue_offset,
            "sys_flag": one.sys_flag,
            "born_host": bytes(one.hosts[0]),
            "store_timestamp": one.stored,
            "store_host": bytes(one.hosts[1]),
            "version_2": len(one.topic) > 127,
        }
        record = encode_record(physical_offset=(len(files) - 1) * FILE + len(files[-1]), **arguments)
        if len(record) + 8 > room:
            files[-1] += blank(room) + bytes(room - 8)
            files.append(b"")
            record = encode_record(physical_offset=(len(files) - 1) * FILE, **arguments)
        if len(record) + 8 > FILE:
            continue
        starts.append((len(files) - 1) * FILE + len(files[-1]))
        files[-1] += record
        if one.ahead >= 0:
            next_offsets[key] = queue_offset + 1
    return [file.ljust(FILE, b"\x00") for file in files], starts


def put_log(disk: MemoryDisk, files: list[bytes]) -> None:
    for number, file in enumerate(files):
        disk.write(f"{ROOT}/commitlog/{file_name(number * FILE)}", file)


def harmed(sent: list[Message], harm: Harm) -> list[bytes]:
    """The files of a log, with these bytes written over some of its records."""
    files, starts = log_of(sent)
    log = bytearray().join(files)
    for number, field, written in harm:
        if number < len(starts):
            at = starts[number] + field
            log[at : at + len(written)] = written[: max(len(log) - at, 0)]
    return [bytes(log[at : at + FILE]) for at in range(0, len(log), FILE)]


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """A log, of which some records were known to queues and index before the crash."""

    sent: list[Message]
    harm: Harm = dataclasses.field(default_factory=list)
    known: int = 0
    is_synced: bool = True
    is_own: bool = True
    is_clean: bool = False
    has_lmqs: bool = False
    has_index: bool = True
    window: int = native_reput.WINDOW


cases = st.builds(
    Case,
    sent=messages,
    harm=harms,
    known=st.integers(0, 30),
    is_synced=st.booleans(),
    is_own=st.booleans(),
    is_clean=st.sampled_from([False, False, False, True]),
    has_lmqs=st.booleans(),
    has_index=st.sampled_from([True, True, False]),
    window=st.sampled_from([1, 500, native_reput.WINDOW]),
)


def recovered(case: Case, *, compiled: bool) -> tuple[object, ...]:
    """What a store finds and makes of the log of a case."""
    opening: dict[str, Any] = {
        "mapped_file_size_commit_log": FILE,
        "max_hash_slot_num": 7,
        "max_index_num": 30,
        "message_index_enable": case.has_index,
        "enable_lmq": case.has_lmqs,
        "enable_multi_dispatch": case.has_lmqs,
        "batch_topics": [BATCHED],
    }
    disk, clock = MemoryDisk(), ManualClock(T0 + 10_000)
    if case.known:
        put_log(disk, log_of(case.sent[: case.known])[0])
        disk.write(f"{ROOT}/abort", ABORT_MARK)
        store = open_small(ROOT, disk=disk, clock=clock, **opening)
        if case.is_synced:
            store.flush()
            store.sync_queues()
        store.abandon()
    put_log(disk, harmed(case.sent, case.harm))
    if case.is_clean:
        disk.remove(f"{ROOT}/abort")
    else:
        disk.write(f"{ROOT}/abort", ABORT_MARK if case.is_own else b"1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native, "_selected", native.load() if compiled else native.python_path())
        patch.setattr(native_reput, "WINDOW", case.window)
        store = open_small(ROOT, disk=disk, clock=clock, **opening)
    report = dataclasses.astuple(store.recovery)
    ends = [(queue.topic, queue.queue_id, queue.min_offset, queue.next_offset) for queue in store.queues.all()]
    dispatched = (
        store.dispatcher.last_offset,
        store.dispatcher.last_store_timestamp,
        store.dispatcher.index_missing_from,
    )
    store.close()
    return report, ends, dispatched, [contents(disk, f"{ROOT}/{name}") for name in COMPARED]


@given(case=cases)
@example(case=Case([Message(b"Alpha"), Message(b"Alpha"), Message(b"Alpha", sys_flag=4), Message(b"Alpha")]))
@example(case=Case([Message(properties=b"TAGS\x01a\x02TAGS\x01\x02") for _ in range(90)]))
@settings(max_examples=300, deadline=None)
def test_both_make_the_same_of_a_log(case: Case) -> None:
    assert recovered(case, compiled=True) == recovered(case, compiled=False)


@pytest.mark.parametrize("field", FIELDS)
def test_both_make_the_same_of_a_log_with_harm_anywhere(field: int) -> None:
    times = [T0, T0 + 1, T0 + 2, T0 + 2, 0, T0 + 2, T0, T0 + 1, T0 + 3, T0 + 3]
    sent = [Message(properties=b"UNIQ_KEY\x01%032d\x02KEYS\x01a b\x02" % time, stored=time) for time in times]
    for written in HARMS:
        for number in (4, 5, 9):
            case = Case(sent, [(number, field, written)])
            assert recovered(case, compiled=True) == recovered(case, compiled=False)


def test_the_kernel_takes_all_records_that_are_plain_but_the_first_of_each_queue_and_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent = [Message(queue_id=number % 3, properties=b"UNIQ_KEY\x01%032d\x02" % number) for number in range(100)]
    alone = []
    plain_learn = native_reput.NativeReput.learn

    def learn(self: native_reput.NativeReput, seen: Seen) -> None:
        alone.append(seen)
        plain_learn(self, seen)

    monkeypatch.setattr(native_reput.NativeReput, "learn", learn)
    recovered(Case(sent), compiled=True)
    # While it learns of the queues, a few more are taken one by one.
    assert len(alone) <= 10


@given(body=st.binary(max_size=700), repeated=st.integers(1, 5))
def test_a_body_has_the_crc_that_zlib_says(body: bytes, repeated: int) -> None:
    body *= repeated
    record = bytearray(
        encode_record(topic=b"Alpha", queue_id=0, body=body, born_host=bytes(8), store_host=bytes(8))
    )
    record[8:12] = (zlib.crc32(body) & 0x7FFFFFFF).to_bytes(4, "big")
    replayer = native.load().log_replayer(is_indexing=False, delays=(), avoided=None)
    # Not for a queue, so that none is needed.
    assert replayer.replay(record, 0, len(record), 0, 1, 1, True, False)[:2] == (len(record), 1)
    record[11] ^= 1
    assert replayer.replay(record, 0, len(record), 0, 1, 1, True, False)[:2] == (0, 0)
