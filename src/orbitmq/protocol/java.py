"""Java's string hashes and UTF-8, which decide about bytes on the wire and on disk.

Tags codes in consume queues and key hashes in index files are ``String.hashCode``: ``h = 31 * h + c``
over UTF-16 units, kept in 32 bits. A unit of text is what Java reads in the bytes, so damaged UTF-8
must turn into the same replacement characters as there.
"""

from __future__ import annotations

import codecs
import functools
import importlib.util
import sys
from typing import TYPE_CHECKING

from orbitmq.lazy_import import lazy_module

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt
else:
    np = lazy_module("numpy")

_MASK = 0xFFFFFFFF
_SIGN = 0x80000000

_UTF_16 = "utf-16-le" if sys.byteorder == "little" else "utf-16-be"

_SHORT = 128
"""Up to here units are looped over, some 10 µs. numpy is faster from 24 units on, but to load it takes as long as
ten thousand such loops."""

_WIDEST = 512
"""The longest text that is padded for ``hash_many``; one outlier must not widen the whole table."""


@functools.cache
def _has_numpy() -> bool:
    """False where only the SDK is installed."""
    try:
        return importlib.util.find_spec("numpy") is not None
    except ValueError:
        return False


@functools.cache
def _powers() -> npt.NDArray[np.uint32]:
    """31**511 … 31**1, 1 modulo 2**32: the weights of a text of n units are the last n of them."""
    return np.array([pow(31, n, 1 << 32) for n in range(_WIDEST)][::-1], dtype=np.uint32)


def decode_utf8(data: bytes) -> str:
    """The text that Java's ``new String(data, UTF_8)`` makes; never fails."""
    return data.decode("utf-8", "orbitmq-java")


def string_hash(text: str) -> int:
    """``String.hashCode``: a signed 32-bit number."""
    if text.isascii():
        return _signed(_hash_units(text.encode("ascii")))
    return _signed(_hash_units(memoryview(text.encode(_UTF_16, "surrogatepass")).cast("H")))


_LONGEST_CACHED_TAG = 128
"""Characters or bytes of a tag whose hash is cached: 8,192 tags of 32 KB would take 256 MB."""


def tags_code(tag: str | bytes) -> int:
    """Tags code of a consume queue unit for this ``TAGS`` value: its hash; 0 without tags.

    Cached because a topic has few tags and many messages; the bounds keep a producer that puts ids or whole
    documents into tags from filling the memory.
    """
    if len(tag) > _LONGEST_CACHED_TAG:
        return _tags_code(tag)
    return _cached_tags_code(tag)


def _tags_code(tag: str | bytes) -> int:
    return string_hash(tag if isinstance(tag, str) else decode_utf8(tag))


_cached_tags_code = functools.lru_cache(maxsize=8192)(_tags_code)


def hash_many(texts: Sequence[bytes]) -> npt.NDArray[np.int32]:
    """``string_hash`` of many UTF-8 texts at once.

    One matrix product over the texts padded on the left (a leading NUL does not change the hash). At 64
    keys of 50 characters this costs 0.2 µs a key, against 2 µs one by one; a product by powers of the
    inverse of 31 over the joined texts is as fast there, but twice as slow at 8 keys.
    """
    longest = max(map(len, texts), default=0)
    if longest == 0:
        return np.zeros(len(texts), dtype=np.int32)
    if longest > _WIDEST:
        return np.array([string_hash(decode_utf8(text)) for text in texts], dtype=np.int32)
    padded = b"".join([text.rjust(longest, b"\0") for text in texts])
    if padded.isascii():
        units = np.frombuffer(padded, np.uint8).reshape(-1, longest)
    else:
        # UTF-8 never needs fewer bytes than UTF-16 needs units, so the width still suffices.
        wide = [decode_utf8(text).encode("utf-16-be").rjust(2 * longest, b"\0") for text in texts]
        units = np.frombuffer(b"".join(wide), ">u2").reshape(-1, longest)
    hashes: npt.NDArray[np.uint32] = units.astype(np.uint32) @ _powers()[_WIDEST - longest :]
    return hashes.view(np.int32)


def index_hash(text: str) -> int:
    """The hash under which an index file keeps a key: never negative, and 0 for ``Integer.MIN_VALUE``."""
    return abs(string_hash(text)) & 0x7FFFFFFF


def index_hashes(texts: Sequence[bytes]) -> npt.NDArray[np.int32]:
    """``index_hash`` of many UTF-8 texts at once."""
    # The absolute value of the smallest int32 is itself; without its sign bit it is the 0 wanted here.
    return np.abs(hash_many(texts)) & np.int32(0x7FFFFFFF)


def _hash_units(units: bytes | memoryview) -> int:
    """The unsigned hash of UTF-16 units; of bytes if every unit is below 128."""
    if len(units) <= _SHORT:
        value = 0
        for unit in units:
            value = value * 31 + unit
        return value & _MASK
    if not _has_numpy():
        return functools.reduce(lambda value, unit: (value * 31 + unit) & _MASK, units, 0)
    numbers = np.frombuffer(units, np.uint8 if isinstance(units, bytes) else np.uint16).astype(np.uint32)
    if len(numbers) <= _WIDEST:
        return int(numbers @ _powers()[_WIDEST - len(numbers) :])
    value = 0
    for start in range(0, len(numbers), _WIDEST):
        part = numbers[start : start + _WIDEST]
        value = value * pow(31, len(part), 1 << 32) + int(part @ _powers()[_WIDEST - len(part) :])
    return value & _MASK


def _signed(value: int) -> int:
    return (value ^ _SIGN) - _SIGN


def _replace_as_java(error: UnicodeError) -> tuple[str, int]:
    """Replace what is not UTF-8 as Java does.

    It differs from Python's ``replace`` in one thing: the three bytes of an encoded surrogate are one
    replacement character and not three.
    """
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start = error.object, error.start
    second, third = data[start + 1 : start + 2], data[start + 2 : start + 3]
    if data[start] == 0xED and b"\xa0" <= second <= b"\xbf":
        return "\ufffd", start + 2 + (b"\x80" <= third <= b"\xbf")
    return "\ufffd", error.end


codecs.register_error("orbitmq-java", _replace_as_java)
