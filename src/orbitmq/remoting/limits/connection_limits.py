"""Limits of connections: sizes, counts and timeouts of everything that a peer controls."""

from __future__ import annotations

import dataclasses

from orbitmq.protocol.command.frame import MAX_FRAME

MAX_HEADER_BYTES = 256 * 1024
"""Of an answer: that to a pop names an offset for each of thousands of queues."""

MAX_REQUEST_HEADER_BYTES = 64 * 1024
"""The longest header of a legitimate request is a send with full properties: 32,767 bytes; names, group and topic
take about 1 KiB more. Lists (registrations, heartbeats, acknowledgements) are in bodies. Twice as much leaves room
for properties that are a little too long, which are answered with MESSAGE_ILLEGAL and not with a closed connection.
In JSON every one of these bytes may be an escape of six, which counts as one."""


_MAY_BE_0 = {"reserved_descriptors", "connections_per_address"}


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server or client. Times are in seconds, of the loop's clock."""

    connections: int = 65536
    """Of one server, those that have not sent anything yet included; fewer where RLIMIT_NOFILE leaves no more.

    One more takes the place of the oldest one that has not sent anything, or is closed at once.
    """

    connections_per_address: int = 0
    """Of one address that is not of this machine; 0 is half of ``connections``."""

    reserved_descriptors: int = 0
    """File descriptors that connections leave to files; 0 is half of RLIMIT_NOFILE, at most 8,192."""

    frame_bytes: int = MAX_FRAME
    """Maximum frame size, length field included; a longer one closes its connection."""

    header_bytes: int = MAX_HEADER_BYTES
    """Maximum header size, escapes of JSON counted as one byte; a longer one closes its connection."""

    frame_seconds: float = 30.0
    """Time for a frame from first to last byte, and a second more for each ``frame_bytes_per_second`` of it."""

    frame_bytes_per_second: int = 65536
    """Minimum rate of a long frame: 4 MiB get 94 s, 16 MiB get 286 s."""

    deferred_responses: int = 65535
    """Deferred responses of one connection; at this limit, reading from it pauses until half are complete.

    A consumer holds one pull for each queue that it reads, over one connection, so this has to be large: a
    connection that is not read from cannot send its heartbeat either. It is what the Java client allows itself.
    """

    calls: int = 65535
    """Calls in flight on one connection; a further call is refused."""

    write_high_bytes: int = 1 << 20
    """Unsent bytes that make a connection unwritable: reading from it pauses until a quarter is left.

    Several usual pull responses (256 KiB) fit, so that a consumer at full speed does not make it flap.
    """

    write_max_bytes: int = 64 << 20
    """Unsent bytes that close the connection: four frames of the largest size."""

    stalled_seconds: float = 60.0
    """An unwritable connection to which no byte was sent for this long is closed."""

    idle_seconds: float = 120.0
    """A connection on which nothing was read or written for this long is closed, as by RocketMQ."""

    handshake_seconds: float = 10.0
    """Time from the first byte for a PROXY header and a TLS handshake."""

    closing_seconds: float = 10.0
    """Time for a closing connection to send what is left."""

    sweep_seconds: float = 0.1
    """Interval of the sweep, which expires calls and reviews a tenth of the connections."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not getattr(self, field.name) > 0 and field.name not in _MAY_BE_0:
                raise ValueError(f"{field.name} must be more than 0, not {getattr(self, field.name)}")
        if self.write_max_bytes < self.write_high_bytes:
            raise ValueError("write_max_bytes must not be less than write_high_bytes")
