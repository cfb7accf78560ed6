"""HPACK (RFC 7541): header blocks to fields, and fields to blocks. Pure: bytes to values.

Blocks that are sent use no dynamic table: servers of gRPC send the same few fields again and again.
"""

from __future__ import annotations

import collections
from typing import TypeAlias

from orbitmq.proxy.http2.tables import END_OF_STRING, STATIC, huffman_codes

Field: TypeAlias = tuple[str, str]

TABLE_BYTES = 4096
"""Size of the dynamic table that clients may use, the default of HTTP/2."""

FIELD_OVERHEAD = 32
"""Bytes that an entry counts beside its name and value."""

MAX_INTEGER_BYTES = 5
"""Continuation bytes of a number; more than any size here has."""

_STATIC_SIZE = len(STATIC) - 1


class HpackError(Exception):
    """A malformed header block. The connection cannot go on: its tables are no longer the same on both sides."""


class HeaderDecoder:
    """Decodes the blocks of one connection, in order."""

    __slots__ = ("_max_bytes", "_size", "_table")

    def __init__(self) -> None:
        self._table: collections.deque[Field] = collections.deque()
        self._size = 0
        self._max_bytes = TABLE_BYTES

    def decode(self, block: bytes, limit: int) -> tuple[list[Field], bool]:
        """The fields, and False if they have more than ``limit`` bytes; then the rest is left out.

        Raises HpackError.
        """
        try:
            return self._decode(block, limit)
        except IndexError:
            raise HpackError("a header block ends within a field, or names an entry that does not exist") from None

    def _decode(self, block: bytes, limit: int) -> tuple[list[Field], bool]:
        table = self._table
        fields: list[Field] = []
        position, end, room = 0, len(block), limit
        while position < end:
            byte = block[position]
            position += 1
            if byte & 0x80:
                index = byte & 0x7F
                if index == 0x7F:
                    index, position = _integer(block, position, index)
                if index == 0:
                    raise HpackError("a field has the index 0")
                field = STATIC[index] if index <= _STATIC_SIZE else table[_STATIC_SIZE - index]
            elif byte & 0x60 == 0x20:
                self._resize(block, position, byte, is_first=not fields)
                position = _integer(block, position, 0x1F)[1] if byte & 0x1F == 0x1F else position
                continue
            else:
                is_indexed = byte & 0x40
                mask = 0x3F if is_indexed else 0x0F
                index = byte & mask
                if index == mask:
                    index, position = _integer(block, position, mask)
                if index == 0:
                    name, position = _string(block, position)
                else:
                    name = (STATIC[index] if index <= _STATIC_SIZE else table[_STATIC_SIZE - index])[0]
                value, position = _string(block, position)
                field = name, value
                if is_indexed:
                    self._insert(field)
            room -= len(field[0]) + len(field[1]) + FIELD_OVERHEAD
            if room >= 0:
                fields.append(field)
        return fields, room >= 0

    def _insert(self, field: Field) -> None:
        self._table.append(field)
        self._size += len(field[0]) + len(field[1]) + FIELD_OVERHEAD
        if self._size > self._max_bytes:
            self._evict()

    def _evict(self) -> None:
        table = self._table
        while self._size > self._max_bytes:
            name, value = table.popleft()
            self._size -= len(name) + len(value) + FIELD_OVERHEAD

    def _resize(self, block: bytes, position: int, byte: int, *, is_first: bool) -> None:
        size = byte & 0x1F
        if size == 0x1F:
            size = _integer(block, position, size)[0]
        if not is_first or size > TABLE_BYTES:
            raise HpackError("a table size is too large, or behind a field")
        self._max_bytes = size
        self._evict()


def _integer(block: bytes, position: int, value: int) -> tuple[int, int]:
    """A number whose prefix is full, and the position behind it."""
    shift = 0
    for _ in range(MAX_INTEGER_BYTES):
        byte = block[position]
        position += 1
        value += (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise HpackError("a number has too many bytes")


def _string(block: bytes, position: int) -> tuple[str, int]:
    byte = block[position]
    position += 1
    length = byte & 0x7F
    if length == 0x7F:
        length, position = _integer(block, position, length)
    end = position + length
    if end > len(block):
        raise HpackError("a header block ends within a text")
    raw = block[position:end]
    # Latin-1 keeps the number of bytes, by which both sides measure the table.
    return (huffman_decode(raw) if byte & 0x80 else raw).decode("latin-1"), end


# Huffman decoding: a byte at a time, by tables that are made when they are needed first

_Row: TypeAlias = "list[tuple[int, bytes] | None]"


class _Huffman:
    """The nodes of the code's tree, and for each of them what the next byte leads to."""

    def __init__(self) -> None:
        self.children: list[list[int]] = [[0, 0]]
        """By node: the node behind a 0 and a 1; a leaf is -1 - symbol."""
        self.rows: list[_Row] = []
        self.can_end: list[bool] = []
        """By node: it is at most seven bits of ones, with which a text is padded."""
        for (length, code), symbol in huffman_codes().items():
            self._add(length, code, symbol)
        self.rows = [[None] * 256 for _ in self.children]
        self.can_end = [False] * len(self.children)
        node = 0
        for _ in range(8):
            self.can_end[node] = True
            node = self.children[node][1]

    def _add(self, length: int, code: int, symbol: int) -> None:
        node = 0
        for bit in range(length - 1, 0, -1):
            children = self.children[node]
            side = code >> bit & 1
            if not children[side]:
                children[side] = len(self.children)
                self.children.append([0, 0])
            node = children[side]
        self.children[node][code & 1] = -1 - symbol

    def step(self, node: int, byte: int) -> tuple[int, bytes]:
        """The node behind a byte, and the bytes that end within it."""
        text = bytearray()
        at = node
        for bit in range(7, -1, -1):
            at = self.children[at][byte >> bit & 1]
            if at < 0:
                if -1 - at == END_OF_STRING:
                    raise HpackError("a text has the end of the string within it")
                text.append(-1 - at)
                at = 0
        found = at, bytes(text)
        self.rows[node][byte] = found
        return found


_HUFFMAN = _Huffman()


def huffman_decode(raw: bytes) -> bytes:
    """Raises HpackError."""
    node = 0
    rows = _HUFFMAN.rows
    row = rows[0]
    parts: list[bytes] = []
    append = parts.append
    for byte in raw:
        found = row[byte]
        if found is None:
            found = _HUFFMAN.step(node, byte)
        node, text = found
        row = rows[node]
        append(text)
    if not _HUFFMAN.can_end[node]:
        raise HpackError("a text is padded with other bits than ones")
    return b"".join(parts)


def encode(*fields: Field) -> bytes:
    """A block of fields, none of which is put into a table."""
    parts = bytearray()
    for name, value in fields:
        if name and (name, value) in STATIC:
            parts.append(0x80 | STATIC.index((name, value)))
            continue
        parts.append(0)
        for text in (name, value):
            raw = text.encode("latin-1", "replace")
            length = len(raw)
            if length < 0x7F:
                parts.append(length)
            else:
                parts.append(0x7F)
                length -= 0x7F
                while length >= 0x80:
                    parts.append(length & 0x7F | 0x80)
                    length >>= 7
                parts.append(length)
            parts += raw
    return bytes(parts)
