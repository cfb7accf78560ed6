"""Compressed bodies: which compression the sysFlag names, and both directions of each.

Brokers store and hand out compressed bodies as they are; only clients and tools come here.
"""

from __future__ import annotations

import enum
import sys
import zlib
from typing import TYPE_CHECKING

from orbitmq.lazy_import import lazy_module
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.flags import COMPRESSED, COMPRESSION_MASK

if TYPE_CHECKING:
    import lz4.frame as lz4_frame
    from backports import zstd

    inflater = zlib.decompressobj
    _INFLATE_ERRORS: tuple[type[Exception], ...] = (zlib.error,)
else:
    lz4_frame = lazy_module("lz4.frame")
    zstd = lazy_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
    try:
        # isal inflates 60 kB in 59 µs, zlib in 166. It compresses to other bytes than zlib, though, and
        # has no level 5, so compression stays with zlib.
        from isal import isal_zlib

        inflater, _INFLATE_ERRORS = isal_zlib.decompressobj, (isal_zlib.error, zlib.error)
    except ImportError:
        inflater, _INFLATE_ERRORS = zlib.decompressobj, (zlib.error,)

DEFAULT_LEVEL = 5
"""RocketMQ's clients compress at this level by default."""

MAX_BODY_SIZE = 64 * 1024 * 1024
"""What a body may grow to. Clients refuse to send more than 4 MiB (``maxMessageSize``) before they
compress; this leaves a factor of 16 to those who raised it, and is what one hostile message may cost."""

_STEP = 1024 * 1024
"""LZ4 output is taken in steps of this size, because the library allocates a step before it knows
whether it needs it."""


class Compression(enum.IntEnum):
    """The compressions, each with its bits in the sysFlag."""

    LZ4 = 0x100
    ZSTD = 0x200
    ZLIB = 0x300


def compression_of(sys_flag: int) -> Compression:
    """The compression that a sysFlag names; without a name it is zlib, the only one before 5.0."""
    kind = sys_flag & COMPRESSION_MASK
    try:
        return Compression(kind) if kind else Compression.ZLIB
    except ValueError as error:
        raise ProtocolError(f"compression type {kind >> 8} is not known") from error


def compressed_flag(sys_flag: int, kind: Compression) -> int:
    """The sysFlag of the same message with a body compressed in this way."""
    return sys_flag & ~COMPRESSION_MASK | COMPRESSED | kind


def compress(body: bytes | memoryview, kind: Compression = Compression.ZLIB, level: int = DEFAULT_LEVEL) -> bytes:
    """Compress a body into the format that Java clients write. LZ4 has no levels there."""
    if kind is Compression.ZLIB:
        return zlib.compress(body, level)
    if kind is Compression.LZ4:
        # Not lz4.frame.compress: it shrinks the block size in the header to fit the body, and Java
        # always writes independent blocks of 4 MiB without size and checksums.
        packer = lz4_frame.LZ4FrameCompressor(block_size=lz4_frame.BLOCKSIZE_MAX4MB, block_linked=False)
        frame: bytes = packer.begin() + packer.compress(body) + packer.flush()
        return frame
    # Java flushes the stream before it closes it, which ends the frame with an empty block.
    stream = zstd.ZstdCompressor(level=level)
    data = stream.compress(body) + stream.flush(stream.FLUSH_BLOCK)
    return data + stream.flush(stream.FLUSH_FRAME)


def decompress(body: bytes | memoryview, sys_flag: int, limit: int = MAX_BODY_SIZE) -> bytes:
    """The plain body of a message with this sysFlag, of at most ``limit`` bytes."""
    data = bytes(body)
    if not sys_flag & COMPRESSED:
        return data
    kind = compression_of(sys_flag)
    if kind is Compression.ZLIB:
        return _inflate(data, limit)
    parts: list[bytes] = []
    size = 0
    while data:
        # As in Java, one body may be several frames, and what follows the last must be none.
        frame, data = (_read_lz4 if kind is Compression.LZ4 else _read_zstd)(data, limit - size)
        parts.append(frame)
        size += len(frame)
    if not parts:
        raise ProtocolError("the compressed body is empty")
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _inflate(data: bytes, limit: int) -> bytes:
    """One zlib stream. What follows it is ignored, as in Java."""
    stream = inflater()
    try:
        body = stream.decompress(data, limit + 1)
    except _INFLATE_ERRORS as error:
        raise ProtocolError(f"the body is not a zlib stream: {error}") from error
    if len(body) > limit:
        raise _too_large(limit)
    if not stream.eof:
        raise _truncated()
    return body


def _read_lz4(data: bytes, limit: int) -> tuple[bytes, bytes]:
    """The first LZ4 frame, and what follows it."""
    stream = lz4_frame.LZ4FrameDecompressor()
    parts = []
    size = 0
    try:
        while True:
            part = stream.decompress(data, min(_STEP, limit - size + 1))
            data = b""
            parts.append(part)
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            if stream.eof:
                return b"".join(parts), stream.unused_data or b""
            if stream.needs_input:
                raise _truncated()
    except (RuntimeError, EOFError) as error:
        raise ProtocolError(f"the body is not an LZ4 frame: {error}") from error


def _read_zstd(data: bytes, limit: int) -> tuple[bytes, bytes]:
    """The first zstd frame, and what follows it."""
    stream = zstd.ZstdDecompressor()
    parts = []
    size = 0
    try:
        while True:
            part = stream.decompress(data, limit - size + 1)
            data = b""
            parts.append(part)
            size += len(part)
            if size > limit:
                raise _too_large(limit)
            if stream.eof:
                return b"".join(parts), stream.unused_data
            if stream.needs_input:
                raise _truncated()
    except zstd.ZstdError as error:
        raise ProtocolError(f"the body is not a zstd frame: {error}") from error


def _too_large(limit: int) -> ProtocolError:
    return ProtocolError(f"the body is larger than {limit} bytes when decompressed")


def _truncated() -> ProtocolError:
    return ProtocolError("the compressed body ends too early")
