"""Tags codes and key hashes of many records at once, for dispatch.

One by one a record costs microseconds: three searches, and a hash for each of its keys. Here the properties of
thousands of records are concatenated, ``TAGS``, ``KEYS`` and ``UNIQ_KEY`` are found by comparing the first eight
bytes of all items at once, and a hash is the difference of two running sums. The result equals that of
``Dispatcher.dispatch`` and ``KeyIndex.add``.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from orbitmq.protocol.java import decode_utf8, string_hash

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orbitmq.protocol.message.record_columns import Bytes, Flags, Ints

Hashes = npt.NDArray[np.uint32]
"""``String.hashCode`` without its sign."""

_END = 2
_NAME_END = 1
_SPACE = 0x20
_NOT_ASCII = 0x80
_WORD = 8
_LONG = 128
_MANY_LENGTHS = 12
"""Texts of up to this many lengths are hashed length by length, in a third of the time of sums over everything."""
_INVERSE_OF_31 = pow(31, -1, 1 << 32)


@dataclasses.dataclass(frozen=True, slots=True)
class RecordKeys:
    """Tags codes of records, and their index entries in order."""

    tags_code: Ints
    """For each record; 0 without tags."""
    record: Ints
    """For each entry the number of its record."""
    key_hash: npt.NDArray[np.int32]
    """For each entry, never negative."""


class Prefixes(NamedTuple):
    """Hashes of the prefixes of keys and tags of a topic's records in the index."""

    of_keys: int
    of_tags: int

    @classmethod
    def of(cls, topic: str) -> Prefixes:
        # As in the index: what UTF-8 cannot encode is a question mark.
        known = decode_utf8(topic.encode("utf-8", "replace"))
        return cls(string_hash(f"{known}#") & 0xFFFFFFFF, string_hash(f"{known}#T#") & 0xFFFFFFFF)


def keys_of(
    properties: Sequence[bytes], topic: Ints, prefixes: Iterable[Prefixes], is_indexed: Flags
) -> RecordKeys:
    """Codes and entries of records with these properties; ``topic`` is the number of each one's prefixes.

    Records that are not indexed have codes too.
    """
    table = np.array(list(prefixes), np.uint32).reshape(-1, 2)
    texts = _Properties(properties)
    count = len(properties)
    unique, keys, tags = texts.find(b"UNIQ_KEY"), texts.find(b"KEYS"), texts.find(b"TAGS")
    codes = np.zeros(count, np.int64)
    tags_hash, tags_length = texts.hashes(tags.at, tags.end)
    codes[tags.record] = tags_hash.view(np.int32)
    keys = texts.split(keys)
    runs = []
    for found, hashed, column in (
        (unique, texts.hashes(unique.at, unique.end), 0),
        (keys, texts.hashes(keys.at, keys.end), 0),
        (tags, (tags_hash, tags_length), 1),
    ):
        counted = is_indexed[found.record]
        record = found.record[counted]
        own, length = hashed[0][counted], hashed[1][counted]
        runs.append((record, table[topic[record], column] * _powers_of_31(length) + own))
    record, hashes = _interleaved(count, runs)
    # The absolute value, and 0 for the number that has none; see ``index_hashes``.
    return RecordKeys(codes, record, np.abs(hashes.view(np.int32)) & np.int32(0x7FFFFFFF))


def _interleaved(count: int, runs: Sequence[tuple[Ints, Hashes]]) -> tuple[Ints, Hashes]:
    """All entries in one sequence: grouped by record, in the order of the given sequences."""
    counts = [np.bincount(record, minlength=count) for record, _ in runs]
    total = np.sum(counts, axis=0)
    place = np.cumsum(total) - total
    hashes = np.empty(int(total.sum()), np.uint32)
    for (record, of_run), of_record in zip(runs, counts, strict=True):
        before = np.cumsum(of_record) - of_record
        hashes[place[record] + np.arange(len(record)) - before[record]] = of_run
        place += of_record
    return np.repeat(np.arange(count), total), hashes


class _Values(NamedTuple):
    """Positions of values, and their records, ascending."""

    record: Ints
    at: Ints
    end: Ints


class _Properties:
    """Concatenated properties of records, with a separator before and after each item."""

    def __init__(self, properties: Sequence[bytes]) -> None:
        mark = bytes([_END])
        self._bytes = mark.join([b"", *properties, bytes(_WORD + 1)])
        self._data: Bytes = np.frombuffer(self._bytes, np.uint8)
        lengths = np.fromiter(map(len, properties), np.int64, len(properties)) + 1
        self._starts = np.cumsum(lengths) - lengths + 1
        """Start of each record's properties."""
        marks = np.flatnonzero(self._data == _END)
        self._item_at, self._item_end = marks[:-1] + 1, marks[1:]
        everywhere: npt.NDArray[np.uint64] = np.ndarray((len(self._data) - _WORD + 1,), "<u8", self._data, 0, (1,))
        self._word = everywhere[self._item_at]

    def find(self, name: bytes) -> _Values:
        """The value of one property for each record that has it; of several the last that is not empty."""
        start = name + bytes([_NAME_END])
        compared = start[:_WORD]
        mask = np.uint64((1 << 8 * len(compared)) - 1)
        found = np.flatnonzero(self._word & mask == np.uint64(int.from_bytes(compared, "little")))
        at = self._item_at[found] + len(start)
        is_value = self._item_end[found] > at
        for place in range(_WORD, len(start)):
            is_value &= self._data[at - len(start) + place] == start[place]
        at, end = at[is_value], self._item_end[found][is_value]
        starts = self._starts
        if len(at) == len(starts) and bool((at >= starts).all()) and bool((at[:-1] < starts[1:]).all()):
            return _Values(np.arange(len(at)), at, end)
        record = np.searchsorted(starts, at, side="right") - 1
        is_last = np.append(record[1:] != record[:-1], True) if len(record) else np.zeros(0, np.bool_)
        return _Values(record[is_last], at[is_last], end[is_last])

    def split(self, values: _Values) -> _Values:
        """The values split at spaces, without empty parts."""
        spaces = np.flatnonzero(self._data == _SPACE)
        if not len(spaces) or not len(values.at):
            return values
        of = np.searchsorted(values.at, spaces, side="right") - 1
        inside = (of >= 0) & (spaces < values.end[of])
        spaces, of = spaces[inside], of[inside]
        # Values do not overlap, so sorting pairs the bounds of each part.
        at = np.sort(np.concatenate([values.at, spaces + 1]))
        end = np.sort(np.concatenate([values.end, spaces]))
        record = np.sort(np.concatenate([values.record, values.record[of]]))
        is_there = end > at
        return _Values(record[is_there], at[is_there], end[is_there])

    @functools.cached_property
    def _sums(self) -> Hashes:
        """Prefix sums of the bytes, each divided by 31 to the power of its position."""
        sums = np.zeros(len(self._data) + 1, np.uint32)
        np.cumsum(self._data * _inverse_powers(len(self._data)), out=sums[1:])
        return sums

    @functools.cached_property
    def _wide_before(self) -> Ints | None:
        """Prefix counts of bytes that are not ASCII; None if there are none."""
        if self._bytes.isascii():
            return None
        return np.append(0, np.cumsum(self._data >= _NOT_ASCII))

    def hashes(self, at: Ints, end: Ints) -> tuple[Hashes, Ints]:
        """Hashes of the texts between these positions, and their lengths in UTF-16 units."""
        lengths = end - at
        hashes = self._by_length(at, lengths)
        if hashes is None:
            hashes = (self._sums[end] - self._sums[at]) * _powers_of_31(end - 1)
        if (before := self._wide_before) is not None:
            for number in np.flatnonzero(before[at] != before[end]).tolist():
                text = decode_utf8(self._bytes[int(at[number]) : int(end[number])])
                hashes[number] = string_hash(text) & 0xFFFFFFFF
                lengths[number] = len(text.encode("utf-16-be", "surrogatepass")) // 2
        return hashes, lengths

    def _by_length(self, at: Ints, lengths: Ints) -> Hashes | None:
        """Hashes of texts of few different lengths, one length at a time; None if there are too many lengths."""
        if not len(at) or int(lengths.max()) > _LONG:
            return None
        counts = np.bincount(lengths)
        different = np.flatnonzero(counts).tolist()
        if len(different) > _MANY_LENGTHS:
            return None
        hashes = np.zeros(len(at), np.uint32)
        for length in different:
            which = slice(None) if len(different) == 1 else np.flatnonzero(lengths == length)
            texts = np.ndarray((len(self._data) - length + 1,), f"V{length}", self._data, 0, (1,))[at[which]]
            units = texts.view(np.uint8).reshape(-1, length)
            hashes[which] = units.astype(np.uint32) @ _POWERS.first(length)[::-1]
        return hashes


class _PowerTable:
    """Powers of a number modulo 2**32, computed on demand."""

    def __init__(self, base: int) -> None:
        self._base = np.uint32(base)
        self._powers = np.ones(1, np.uint32)

    def first(self, count: int) -> Hashes:
        if len(self._powers) < count:
            steps = np.full(1 << max(count, 1 << 16).bit_length(), self._base)
            steps[0] = 1
            self._powers = np.cumprod(steps, dtype=np.uint32)
        return self._powers[:count]


_POWERS = _PowerTable(31)
_INVERSES = _PowerTable(_INVERSE_OF_31)


def _inverse_powers(count: int) -> Hashes:
    return _INVERSES.first(count)


def _powers_of_31(exponents: Ints) -> Hashes:
    if not len(exponents):
        return np.zeros(0, np.uint32)
    return _POWERS.first(int(exponents.max()) + 1)[exponents]
