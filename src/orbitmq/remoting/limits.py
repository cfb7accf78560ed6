"""The limit of everything that a peer could make grow, and after how long it is given up."""

from __future__ import annotations

import dataclasses

from orbitmq.protocol.frame import MAX_FRAME


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one server or client. Times are in seconds, of the loop's clock."""

    connections: int = 65536
    """Of one server, those that have not said anything yet included. One more is closed at once."""

    frame_bytes: int = MAX_FRAME
    """The longest frame that is taken, its length field included; a longer one closes its connection."""

    owed_answers: int = 65535
    """Requests of one connection that wait for their answer; then reading from it stops until half are answered.

    A consumer holds one pull for each queue that it reads, over one connection, so this has to be large: a
    connection that is not read from cannot send its heartbeat either. It is what the Java client allows itself.
    """

    calls: int = 65535
    """Own requests on one connection that wait for their answer; a further call is refused."""

    write_high_bytes: int = 1 << 20
    """So much unsent makes a connection unwritable: nothing more is read from it until a quarter is left.

    Several usual pull answers (256 KiB) fit, so that a consumer at full speed does not make it flap.
    """

    write_most_bytes: int = 64 << 20
    """So much unsent closes the connection: four frames of the largest size."""

    stalled_seconds: float = 60.0
    """An unwritable connection on which not a byte has left for so long is closed."""

    idle_seconds: float = 120.0
    """A connection without anything read or written for so long is closed, as by RocketMQ's own peers."""

    opening_seconds: float = 10.0
    """From its first byte a connection has so long for a PROXY header and a TLS handshake."""

    closing_seconds: float = 10.0
    """So long a connection that is being closed may take to send what is left."""

    sweep_seconds: float = 0.1
    """How often time-outs of calls are looked for; a tenth of the connections are looked at each time."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if not getattr(self, field.name) > 0:
                raise ValueError(f"{field.name} must be more than 0, not {getattr(self, field.name)}")
        if self.write_most_bytes < self.write_high_bytes:
            raise ValueError("write_most_bytes must not be less than write_high_bytes")
