"""File descriptor limit: the number of connections that leaves enough descriptors for files."""

from __future__ import annotations

import logging
import resource

log = logging.getLogger("orbitmq.remoting")

MAX_RESERVED = 8192
"""Maximum of the descriptors reserved for files by default: a mapped file takes two."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of this process to its hard limit, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError) as error:
            log.warning("remoting: cannot raise the file descriptor limit, it stays at %d: %s", soft, error)
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def connections_allowed(maximum: int, reserved: int = 0) -> int:
    """Number of connections beside ``reserved`` descriptors for files; 0 reserves half, at most 8,192."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return maximum
    return max(1, min(maximum, limit - (reserved or min(limit // 2, MAX_RESERVED))))
