"""Bytes <-> values of the RocketMQ protocol, and nothing else.

Here belong frames, headers, codes, message records, ids and bodies. Everything is pure: no socket, no file, no
clock, no logging. What a value *means* to a broker or a client (is this topic writable, where does the offset
go) does not belong here.
"""

from orbitmq.protocol.errors import ProtocolError

__all__ = ["ProtocolError"]
