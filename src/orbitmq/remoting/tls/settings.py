"""RocketMQ's TLS settings, which the commands do not support yet and refuse instead of ignoring them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.platform.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

_IN_CLEAR: dict[str, tuple[str, ...]] = {
    "useTLS": ("false",),
    "tls.enable": ("false",),
    "tls.server.mode": ("disabled", "permissive"),
    "tls.server.need.client.auth": ("none",),
    "tls.server.authClient": ("false",),
}
"""The keys, with the values that mean clear text."""


def refuse_tls(texts: Mapping[str, str], server: str) -> None:
    """Raise ConfigError if settings require TLS. ``server`` is the class that supports it in Python."""
    for key, in_clear in _IN_CLEAR.items():
        text = texts.get(key, "")
        if text and text.lower() not in in_clear:
            raise ConfigError(
                f"{key}={text}: the command does not speak TLS yet; start {server}(..., tls=ServerTls(...)) of "
                f"orbitmq.remoting from Python, or put a TLS proxy in front and give {in_clear[0]}"
            )
