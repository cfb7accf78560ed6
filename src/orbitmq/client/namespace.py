"""Namespaces: the application's topic ``orders`` is ``tenant%orders`` on brokers."""

from __future__ import annotations

from orbitmq.protocol.names import (
    DLQ_PREFIX,
    NAMESPACE_SEPARATOR,
    RETRY_PREFIX,
    SYSTEM_GROUP_PREFIX,
    is_system_topic,
)


def wrap(namespace: str, name: str) -> str:
    """The broker's name of a topic or group. System names have no namespace."""
    prefix, bare = _split_prefix(name)
    start = namespace + NAMESPACE_SEPARATOR
    if not namespace or not bare or bare.startswith(start) or _is_system(name) or _is_system(bare):
        return name
    return f"{prefix}{start}{bare}"


def unwrap(namespace: str, name: str) -> str:
    """The application's name of a topic or group."""
    if not namespace:
        return name
    prefix, bare = _split_prefix(name)
    return prefix + bare.removeprefix(namespace + NAMESPACE_SEPARATOR)


def _split_prefix(name: str) -> tuple[str, str]:
    """The prefixes of a retry or dead letter topic, which stay in front, and the rest."""
    bare = name.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)
    return name[: len(name) - len(bare)], bare


def _is_system(name: str) -> bool:
    return is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX)
