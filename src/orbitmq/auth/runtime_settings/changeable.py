"""Settings that may change over the network: numbers and switches, and the texts of an allow list.

A path, an address, a class or a credential never may: the sender of a request would choose which files the server
writes, which hosts it talks to, or who is let in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.auth.settings import AUTH_KEYS
from orbitmq.platform.secret_settings import is_secret
from orbitmq.platform.settings import ConfigError, settings_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from _typeshed import DataclassInstance

CHANGEABLE_TEXTS = frozenset(
    (
        *("regionId", "msgTraceTopicName", "defaultMessageRequestMode", "messageDelayLevel", "deleteWhen"),
        *("archiveFullPolicy", "archiveGroup", "archiveTopics", "timerCheckMetricsWhen", "metricsLabel"),
        "productEnvName",
    )
)
"""Texts that name neither a file nor a host."""


def check_changeable(
    requested: Mapping[str, str], now: Mapping[str, str], kinds: Iterable[type[DataclassInstance]]
) -> None:
    """Raise ConfigError for the first setting that may not change this way. Its present value may be repeated."""
    known = {key: one for kind in kinds for key, one in settings_of(kind).items()}
    for key, text in requested.items():
        if any(ord(character) < 32 or ord(character) == 127 for character in key + text):
            raise ConfigError(f"{key!r}: control characters are not allowed")
        one = known.get(key)
        # Unknown keys have no effect, but those of a file may be another program's.
        if key not in now and one is None and not _is_tls(key):
            continue
        default = "" if one is None else str(one.default)
        if text == now.get(key, default):
            continue
        if one is None or key in AUTH_KEYS or _is_tls(key) or is_secret(key):
            raise _refusal(key)
        if one.kind is str and key not in CHANGEABLE_TEXTS:
            raise _refusal(key)


def _is_tls(key: str) -> bool:
    return key.startswith("tls.") or key == "useTLS"


def _refusal(key: str) -> ConfigError:
    return ConfigError(f"{key} cannot be changed over the network: set it in the settings file, and start again")
