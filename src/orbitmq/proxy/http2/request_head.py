"""The header fields of a request: what HTTP/2 and gRPC ask of them."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.proxy.http2.hpack import Field

_PSEUDO = frozenset({":method", ":scheme", ":path", ":authority"})
_OF_CONNECTIONS = frozenset({"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"})


def is_malformed(fields: list[Field]) -> bool:
    """The fields break a rule of HTTP/2, for which the stream is reset."""
    if _are_wrong_names(tuple([name for name, _ in fields])):
        return True
    return ("te", "trailers") not in fields and any(name == "te" for name, _ in fields)


@functools.lru_cache(maxsize=1024)
def _are_wrong_names(names: tuple[str, ...]) -> bool:
    """Clients send the same few sequences of names again and again."""
    pseudo = 0
    for name in names:
        if name.startswith(":"):
            # All of them come first, each at most once.
            if name not in _PSEUDO or names[pseudo] != name:
                return True
            pseudo += 1
        elif name in _OF_CONNECTIONS or name != name.lower():
            return True
    own = frozenset(names[:pseudo])
    return names.count("te") > 1 or len(own) != pseudo or not own.issuperset({":method", ":scheme", ":path"})


def is_grpc(metadata: Mapping[str, str]) -> bool:
    content = metadata.get("content-type", "")
    return metadata[":method"] == "POST" and (
        content == "application/grpc" or content.startswith(("application/grpc+", "application/grpc;"))
    )
