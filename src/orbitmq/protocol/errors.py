"""The one error a decoder may raise."""


class ProtocolError(ValueError):
    """Bytes that are not what the protocol says they must be.

    Every decoder in this package raises this and nothing else on bad input, so a caller that handles it has
    handled every malformed frame, header, record and body.
    """
