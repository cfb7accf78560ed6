"""The records of one buffer, found and checked, with the fields that rows and filters need.

A buffer is the answer to a pull, several of them joined, or a stretch of a commit log file. Bodies are not touched
here, and a record of many messages (an inner batch) is taken apart into one record for each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.batch import split_record
from orbitmq.protocol.message.flags import INNER_BATCH, NEED_UNWRAP
from orbitmq.protocol.message.record import MAGIC_V2, decode_record, encode_record
from orbitmq.protocol.message.record_columns import RecordColumns, follow_sizes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.protocol.message.record import Readable, Record
    from orbitmq.protocol.message.record_columns import Flags, Ints

_BATCH = NEED_UNWRAP | INNER_BATCH


class Records(RecordColumns):
    """Whole records, one message each. The fields are those of ``RecordColumns``."""

    @classmethod
    def of(cls, data: Readable, positions: Ints | None = None) -> Records:
        """The records that follow each other in a buffer, or those at these positions. Raises ProtocolError."""
        end = len(data)
        if positions is None:
            found = follow_sizes(data, 0, end)
            records = cls(data, found)
            ends_at = int(records.position[-1] + records.size[-1]) if len(found) else 0
        else:
            records, ends_at = cls(data, positions), end
        whole = records.is_consistent()
        if not bool(whole.all()):
            at = int(records.position[np.argmin(whole)])
            decode_record(data, at)
            raise ProtocolError(f"the record at {at} has a size that is none")
        if ends_at != end:
            decode_record(data, ends_at)
            raise ProtocolError(f"the records end at {ends_at} of {end} bytes")
        return taken_apart(records) if bool(are_batches(records).any()) else records

    @classmethod
    def joined(cls, buffers: Sequence[bytes | memoryview]) -> Records:
        """Whole records, each of one message, in a buffer of their own."""
        sizes = np.array([len(one) for one in buffers], np.int64)
        return cls(b"".join(buffers), np.cumsum(sizes) - sizes)


def are_batches(records: RecordColumns) -> Flags:
    """Which records hold many messages."""
    result: Flags = records.sys_flag & _BATCH == _BATCH
    return result


def taken_apart(records: RecordColumns) -> Records:
    """The same messages with each in a record of its own. Raises ProtocolError."""
    buffers: list[bytes] = []
    buffer = records.buffer
    bounds = zip(records.position.tolist(), records.ends.tolist(), are_batches(records).tolist(), strict=True)
    for start, end, is_batch in bounds:
        if is_batch:
            buffers += [_encoded(part) for part in split_record(decode_record(buffer, start, end))]
        else:
            buffers.append(bytes(buffer[start:end]))
    return Records.joined(buffers)


def _encoded(part: Record) -> bytes:
    """A record of its own for one message of a batch; it lies where the batch does."""
    return encode_record(
        topic=part.topic.encode(),
        queue_id=part.queue_id,
        body=part.body,
        properties=part.properties,
        queue_offset=part.queue_offset,
        physical_offset=part.physical_offset,
        flag=part.flag,
        sys_flag=part.sys_flag,
        born_timestamp=part.born_timestamp,
        born_host=part.born_host,
        store_timestamp=part.store_timestamp,
        store_host=part.store_host,
        reconsume_times=part.reconsume_times,
        prepared_transaction_offset=part.prepared_transaction_offset,
        version_2=part.magic == MAGIC_V2,
    )
