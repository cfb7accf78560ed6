"""The header fields of a request: what HTTP/2 and gRPC ask of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.proxy.http2.hpack import Field

_PSEUDO = frozenset({":method", ":scheme", ":path", ":authority"})
_OF_CONNECTIONS = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})


def is_malformed(fields: list[Field]) -> bool:
    """The fields break a rule of HTTP/2, for which the stream is reset."""
    pseudo = 0
    for name, value in fields:
        if name.startswith(":"):
            # All of them come first, each at most once.
            if name not in _PSEUDO or fields[pseudo][0] != name:
                return True
            pseudo += 1
        elif name in _OF_CONNECTIONS or name != name.lower() or (name == "te" and value != "trailers"):
            return True
    names = {name for name, _ in fields[:pseudo]}
    return len(names) != pseudo or not names.issuperset({":method", ":scheme", ":path"})


def is_grpc(metadata: Mapping[str, str]) -> bool:
    content = metadata.get("content-type", "")
    return metadata[":method"] == "POST" and (
        content == "application/grpc" or content.startswith(("application/grpc+", "application/grpc;"))
    )
