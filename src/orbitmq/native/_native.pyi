from array import array
from collections.abc import Callable, Sized
from mmap import mmap
from typing import TypeAlias, type_check_only

import numpy as np
import numpy.typing as npt

from orbitmq.native.buffer import Buffer
from orbitmq.native.python.queue_state import Counter, QueueState
from orbitmq.native.results import (
    Acknowledged,
    Delivered,
    Gathered,
    MissingGrant,
    OffsetsServed,
    Popped,
    Pulled,
    Replayed,
    Served,
    Stored,
)

# Numbers side by side, in this machine's byte order: hashes of 32 bits, offsets and timestamps of 64.
Column: TypeAlias = array[int] | npt.NDArray[np.int32] | npt.NDArray[np.int64]

def advise(buffer: mmap, start: int, end: int, step: int, /, *advices: int) -> None: ...
def populate_huge_pages(buffer: mmap, start: int, end: int, size: int, /) -> None: ...
def gather_records(
    units: bytes,
    buffer: Buffer,
    base: int,
    end: int,
    max_bytes: int,
    copied: int,
    copied_each: int,
    queue_id: int,
    number: int,
    /,
) -> Gathered | None: ...
def guard_maps() -> None: ...

# The code in the JSON header that begins at this position of frames; -1 if it cannot be found.
def request_code(data: bytes, at: int, /) -> int: ...

# The size of the frames at the front of data that users have signed, and the right for whose lack the next frame is
# not among them. A right is for an address, a user, a code, a topic and a group; ``users`` has keys by name.
def verify_requests(
    data: bytes, source: bytes, users: dict[bytes, bytes], grants: set[bytes], /
) -> tuple[int, MissingGrant | None]: ...

# The key of a user for verify_requests; users without need_grant may do everything.
def signing_key(secret: bytes, needs_grant: bool, /) -> bytes: ...
def hash_keys(keys: list[bytes], /) -> bytes: ...
def put_entries(
    buffer: Buffer, slots: int, first: int, begin: int, hashes: Column, offsets: Column, timestamps: Column, /
) -> int: ...

# True if the entries of an index file before next_entry produce its slots and its header.
def is_sound(
    buffer: Buffer, slots: int, next_entry: int, begin_offset: int, end_offset: int, used_slots: int, /
) -> bool: ...

# Rebuilds the slots of an index file from its entries up to an offset, as long as their offsets ascend. Returns the
# number of the first entry that is dropped, the offset of the last one that stays, and the number of slots in use.
def cut_entries(
    buffer: Buffer, slots: int, next_entry: int, begin_offset: int, offset: int, /
) -> tuple[int, int, int]: ...

# Returns positions of timer log units, the position at which the chain left the file or ended, and the number of
# units passed.
def follow_timer_chain(
    timer_log: Buffer, base: int, position: int, skip_to: int, max_units: int, /
) -> tuple[bytes, int, int]: ...

# Base of all types that append or dispatch: the routes, by topic and queue id.
@type_check_only
class RouteTable:
    # The route for whose lack the last call ended: topic, queue id, if it is for deferred messages, and if it needs
    # a queue. None if the last call ended for another reason.
    @property
    def missing_route(self) -> tuple[str, int, bool, bool] | None: ...
    # field is the topic as records have it, with its length in front. Without a queue a route is for the real queue
    # of deferred messages. With a counter its messages are counted natively and not reported.
    def add_route(
        self,
        topic: str,
        field: bytes,
        queue_id: int,
        magic: int,
        queue: QueueState | None,
        is_deferral: bool,
        counter: Counter | None = None,
        /,
    ) -> None: ...
    def clear_routes(self) -> None: ...

# Appends sends to queues that have a route. With dispatches_later queues only get the numbers of new messages, and
# neither units nor index entries.
class SendBatcher(RouteTable):
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
        dispatches_later: bool,
        unique_ids: Callable[[], str],
        answers_later: bool,
    ) -> None: ...
    # Appends the sends that each chunk begins with, up to its first frame that is anything else. A chunk comes with
    # the address of its sender.
    def append(
        self,
        received: list[tuple[bytes, bytes]],
        log: Buffer,
        position: int,
        limit: int,
        base: int,
        now: int,
        has_listeners: bool,
        /,
    ) -> tuple[list[Served], Stored]: ...

# Appends due messages of the timer or of a delay level to real queues that have a route.
class DeferredDelivery(RouteTable):
    def __init__(
        self,
        *,
        store_host: bytes,
        max_body: int,
        max_properties: int,
        is_indexing: bool,
        crc32: Callable[..., int],
    ) -> None: ...
    # Delivers the messages whose units are at these positions of the timer log, as long as the units are in the
    # given file of it, the records between first and end in that of the log, and nothing about them is special.
    def deliver(
        self,
        positions: bytes,
        timer_log: Buffer,
        timer_base: int,
        source: Buffer,
        source_base: int,
        first: int,
        end: int,
        max_bytes: int,
        log: Buffer,
        position: int,
        limit: int,
        base: int,
        now: int,
        has_listeners: bool,
        /,
    ) -> Delivered: ...
    # The same for messages of a delay level, by the units of its queue.
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
        has_listeners: bool,
        /,
    ) -> Delivered: ...

# Appends acknowledgements of messages of queues that have a route.
class AckBatcher(RouteTable):
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
    # Appends the acknowledgements that data begins with, up to the first frame that is anything else.
    def append(
        self, data: bytes, log: Buffer, position: int, limit: int, base: int, now: int, has_listeners: bool, /
    ) -> Acknowledged: ...

# Serves pops that find messages, from topics that have a route.
class PopServer(RouteTable):
    # ``state`` is called with the names of a route; it returns the group's offsets by queue id, or None if the pop
    # is for the Python path.
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
        broker_name: bytes,
        precision: int,
        longest: int,
        most: int,
        most_bytes: int,
        filtered: int,
        goes_down: bool,
        state: Callable[[tuple[str, str]], dict[int, int] | None],
    ) -> None: ...
    @property
    def route_count(self) -> int: ...
    # Queues in the order of their ids, each with its read; group and topic; and tags codes of four bytes each, or
    # None if all messages are wanted.
    def add_pop_route(
        self,
        key: bytes,
        queues: tuple[tuple[QueueState, Callable[[int, int], bytes]], ...],
        names: tuple[str, str],
        codes: bytes | None,
        /,
    ) -> None: ...
    def close_pop_route(self, key: bytes, /) -> None: ...
    # Serves the pop that data begins with, from the queue that draw says on. Records are given from first to end as
    # by PullServer.answer, but none before checked_from. None, and nothing is changed, if it is for the Python
    # path.
    def pop(
        self,
        data: bytes,
        revive_queue: int,
        draw: int,
        first: int,
        end: int,
        window: int,
        checked_from: int,
        file_size: int,
        buffer_at: Callable[[int], Buffer | None],
        log: Buffer,
        position: int,
        limit: int,
        base: int,
        now: int,
        has_listeners: bool,
        /,
    ) -> Popped | None: ...

# Answers pulls that find messages, from queues that have a route.
class PullServer:
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
        filtered: int,
    ) -> None: ...
    # The route for whose lack the last call ended: its key, and code, group, topic, queue id, flags, expression,
    # version of the subscription and type of expression.
    @property
    def missing_route(self) -> tuple[bytes, int, str, str, int, int, str | None, int, str | None] | None: ...
    # True if the last call ended because its answers reached the bytes that a peer may leave unread.
    @property
    def is_full(self) -> bool: ...
    @property
    def route_count(self) -> int: ...
    # With codes the route's pulls get only records with these tags codes, of four bytes each.
    def add_route(
        self,
        key: bytes,
        queue: QueueState,
        read: Callable[[int, int], bytes],
        topic_sys_flag: int,
        group_sys_flag: int,
        group_and_queue: tuple[str, str, int],
        suggested_broker_id: int,
        codes: bytes | None,
        /,
    ) -> None: ...
    # Leaves pulls of this kind to the Python path.
    def close_route(self, key: bytes, /) -> None: ...
    def clear_routes(self) -> None: ...
    # Answers the pulls that data begins with, up to the first frame that is anything else; returns the bytes of
    # their frames. Records are given from first to end if they are no farther than window from that end, and if
    # they are resident: so near to the end, or in parts of the log that are warm until later than now, or
    # cold_ranges returns nothing to fetch. Records before checked_from are checked.
    def answer(
        self,
        data: bytes,
        first: int,
        end: int,
        window: int,
        checked_from: int,
        file_size: int,
        buffer_at: Callable[[int], Buffer | None],
        cold_ranges: Callable[[bytes], Sized],
        /,
    ) -> tuple[int, list[Pulled]]: ...

# Reads and changes consumer offsets of groups and topics that have a route.
class OffsetServer:
    def __init__(
        self, *, languages: tuple[bytes, ...], json_parts: tuple[bytes, ...], language: int, version: int
    ) -> None: ...
    # The route for whose lack the last call ended: its key, the group and the topic.
    @property
    def missing_route(self) -> tuple[bytes, str, str] | None: ...
    # Offsets by queue id, which are changed in place.
    def add_route(self, key: bytes, offsets: dict[int, int], /) -> None: ...
    def clear_routes(self) -> None: ...
    # Serves the commits and queries that data begins with, up to the first frame that is anything else. An offset
    # that is not there yet, or would go back, is for the Python path.
    def serve(self, data: bytes, /) -> OffsetsServed: ...

# Dispatches records of the log to queues that have a route, and to the index.
class LogReplayer(RouteTable):
    def __init__(self, *, is_indexing: bool, delays: tuple[int, ...], avoided: bytes | None) -> None: ...
    # Dispatches the plain records that follow each other and begin between position and limit: to their queues from
    # one offset on, and to the index from another.
    def replay(
        self,
        log: Buffer | memoryview,
        position: int,
        limit: int,
        base: int,
        queued_from: int,
        indexed_from: int,
        check_crc: bool,
        has_listeners: bool,
        /,
    ) -> Replayed: ...
