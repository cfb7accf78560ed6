from collections.abc import Callable, Sequence, Sized
from mmap import mmap
from typing import TypeAlias, type_check_only

from orbitmq.kernel.ends import Count, QueueEnd
from orbitmq.store.consume_queue import ConsumeQueue
from orbitmq.store.disk import Buffer
from orbitmq.store.index_entries import Column

def advise(buffer: mmap, start: int, end: int, step: int, /, *advices: int) -> None: ...
def take_large(buffer: mmap, start: int, end: int, size: int, /) -> None: ...
def gather(
    units: bytes, buffer: Buffer, base: int, end: int, most_bytes: int, copied: int, copied_each: int, /
) -> tuple[int, int, int, int, bytes | None] | None: ...
def hash_keys(keys: list[bytes], /) -> bytes: ...
def put_entries(
    buffer: Buffer, slots: int, first: int, begin: int, hashes: Column, offsets: Column, timestamps: Column, /
) -> int: ...

# Whether the entries of an index file before the next one make what else is in it.
def is_sound(
    buffer: Buffer, slots: int, next_entry: int, begin_offset: int, end_offset: int, used_slots: int, /
) -> bool: ...

# Makes the slots of an index file anew from its entries up to an offset, as long as they ascend. Gives the number
# of the first entry that is none of them, the offset of the last one that is, and the number of slots in use.
def cut_entries(
    buffer: Buffer, slots: int, next_entry: int, begin_offset: int, offset: int, /
) -> tuple[int, int, int]: ...
def follow(timer_log: Buffer, base: int, position: int, skip_to: int, most: int, /) -> tuple[bytes, int, int]: ...

# What a queue got whose messages nobody has counted yet: its topic and id, the queue offset of the first record,
# the units of all, their bytes, and in how many requests they came.
Run: TypeAlias = tuple[str, int, int, bytes, int, int]

# What came of a run for its queues, which have their units already: such runs; queues that had nothing to write
# before; queues whose tail is to be written out now; queues that got something, with the tags code of the last, if
# is_heard; number and bytes of the messages that were counted.
Entered: TypeAlias = tuple[
    Sequence[Run], Sequence[ConsumeQueue], Sequence[ConsumeQueue], Sequence[tuple[ConsumeQueue, int]], int, int
]

# Of what one connection sent: bytes of the frames that were taken, their number, and the answers.
Piece: TypeAlias = tuple[int, int, bytes]

# The new position in the log's file, what came to the queues, hash and offset for each key in the index, the offset
# of the last record, and topics with the number of half messages for each.
Stored: TypeAlias = tuple[int, Entered, bytes, bytes, int, list[tuple[str, int]]]

# What the types below have in common.
@type_check_only
class Lanes:
    # The topic and queue id for which the last run ended, because they have no lane, whether messages were to wait
    # there, and whether a queue is needed.
    @property
    def missing(self) -> tuple[str, int, bool, bool] | None: ...
    # Without a queue a lane is for messages that wait elsewhere.
    # With a counter its messages are counted there, and not told.
    def add_lane(
        self,
        topic: str,
        field: bytes,
        queue_id: int,
        magic: int,
        queue: QueueEnd | None,
        is_parking: bool,
        count: Count | None = None,
        /,
    ) -> None: ...
    def clear_lanes(self) -> None: ...

# Stores sends to queues that have a lane. If they are to be shown later (is_deferred), queues get the numbers of
# new messages, and neither they nor the index their places.
class SendRuns(Lanes):
    def __init__(
        self,
        *,
        languages: tuple[bytes, ...],
        json_parts: tuple[bytes, ...],
        binary_parts: tuple[bytes, ...],
        timed_json_parts: tuple[bytes, ...],
        timed_binary_parts: tuple[bytes, ...],
        language: int,
        version: int,
        added: bytes,
        store_host: bytes,
        kept_flags: int,
        max_body: int,
        max_properties: int,
        is_indexing: bool,
        crc32: Callable[..., int],
        broker_name: bytes,
        precision: int,
        longest: int,
        delays: tuple[int, ...],
        batch_json: tuple[bytes, ...],
        batch_binary: bytes,
        is_deferred: bool,
    ) -> None: ...
    # Stores the sends that each of the bytes begins with, up to the first frame that is something else. With the
    # bytes comes the address that sent them.
    def take(
        self,
        received: list[tuple[bytes, bytes]],
        log: Buffer,
        position: int,
        limit: int,
        base: int,
        now: int,
        is_heard: bool,
        /,
    ) -> tuple[list[Piece], Stored]: ...

# Number of messages, sizes of the records where they waited, the new position in the log's file, what came to the
# queues, hash and offset for each key in the index, and the offset of the last record.
Delivered: TypeAlias = tuple[int, int, int, Entered, bytes, bytes, int]

# Stores messages that waited for a time or a delay in queues that have a lane.
class Deliveries(Lanes):
    def __init__(
        self,
        *,
        store_host: bytes,
        max_body: int,
        max_properties: int,
        is_indexing: bool,
        crc32: Callable[..., int],
    ) -> None: ...
    # Delivers the messages whose units are at these positions of the timer log, as long as they are in the given
    # file of it, their records in that of the log between first and end, and nothing is unusual about them.
    def deliver(
        self,
        positions: bytes,
        timer_log: Buffer,
        timer_base: int,
        source: Buffer,
        source_base: int,
        first: int,
        end: int,
        most_bytes: int,
        log: Buffer,
        position: int,
        limit: int,
        base: int,
        now: int,
        is_heard: bool,
        /,
    ) -> Delivered: ...
    # The same for delayed messages, by the units of the queue that they wait in.
    def deliver_units(
        self,
        units: bytes,
        source: Buffer,
        source_base: int,
        first: int,
        end: int,
        log: Buffer,
        position: int,
        limit: int,
        base: int,
        now: int,
        is_heard: bool,
        /,
    ) -> Delivered: ...

# Bytes of the frames that were taken, their number, the new position in the log's file, the answers, what came to
# the queues, hash and offset for each key in the index, the offset of the last record, and what was settled: topic,
# queue, group, time of the pop and number of messages.
Acknowledged: TypeAlias = tuple[
    int, int, int, bytes, Entered, bytes, bytes, int, list[tuple[str, int, str, int, int]]
]

# Stores acknowledgements of messages of queues that have a lane.
class AckRuns(Lanes):
    def __init__(
        self,
        *,
        languages: tuple[bytes, ...],
        json_parts: tuple[bytes, ...],
        store_host: bytes,
        max_body: int,
        max_properties: int,
        is_indexing: bool,
        crc32: Callable[..., int],
        revive_topic: bytes,
        revive_queues: int,
        precision: int,
        longest: int,
    ) -> None: ...
    # Stores the acknowledgements that data begins with, up to the first frame that is something else.
    def take(
        self, data: bytes, log: Buffer, position: int, limit: int, base: int, now: int, is_heard: bool, /
    ) -> Acknowledged: ...

# For each pull that was answered what its lane was given as its place, where the next one begins, number and bytes
# of its records, how far the group has come, or -1, and the answer.
Pulled: TypeAlias = tuple[tuple[str, str, int], int, int, int, int, bytes]

# Answers pulls that find messages, from queues that have a lane.
class PullRuns:
    def __init__(
        self,
        *,
        languages: tuple[bytes, ...],
        json_parts: tuple[bytes, ...],
        binary_parts: tuple[bytes, ...],
        remark: bytes,
        language: int,
        version: int,
        most: int,
        most_bytes: int,
        least_bytes: int,
        copied: int,
        near: int,
        warm: dict[int, float],
        warm_size: int,
    ) -> None: ...
    # The kind of pull for which the last run ended, because it has no lane: its key, and code, group, topic, queue
    # id, flags, expression, version of the subscription and kind of expression.
    @property
    def missing(self) -> tuple[bytes, int, str, str, int, int, str | None, int, str | None] | None: ...
    @property
    def lane_count(self) -> int: ...
    def add_lane(
        self,
        key: bytes,
        queue: QueueEnd,
        read: Callable[[int, int], bytes],
        topic_sys_flag: int,
        group_sys_flag: int,
        place: tuple[str, str, int],
        /,
    ) -> None: ...
    # Pulls of this kind are left to the general path.
    def close_lane(self, key: bytes, /) -> None: ...
    def clear_lanes(self) -> None: ...
    # Answers the pulls that data begins with, up to the first frame that is something else, and gives the size of
    # their frames. Records are given from first to end if they are no farther than window from that end, and if
    # gap says that nothing has to be fetched for them, or it need not be asked: they are so near to the end, or in
    # parts of the log that are warm until later than now.
    # Those before checked_from are checked.
    def take(
        self,
        data: bytes,
        first: int,
        end: int,
        window: int,
        checked_from: int,
        file_size: int,
        buffer_at: Callable[[int], Buffer | None],
        gap: Callable[[bytes], Sized],
        /,
    ) -> tuple[int, list[Pulled]]: ...

# The new position in the log's file, number of records, when the last one with a time was stored, offset and time
# of the last one, what came to the queues, and for each key in the index hash, offset and time.
Walked: TypeAlias = tuple[int, int, int, int, int, Entered, bytes, bytes, bytes]

# Takes records of the log that belong to queues that have a lane.
class LogRuns(Lanes):
    def __init__(self, *, is_indexing: bool, delays: tuple[int, ...], avoided: bytes | None) -> None: ...
    # Takes the plain records that follow each other and begin between position and limit: into their queues from
    # one offset on, and into the index from another.
    def take(
        self,
        log: Buffer | memoryview,
        position: int,
        limit: int,
        base: int,
        queued_from: int,
        indexed_from: int,
        check_crc: bool,
        is_heard: bool,
        /,
    ) -> Walked: ...
