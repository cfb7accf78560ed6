"""Unsupported settings: replication and storage features that do not exist here.

A broker that ignored them would lose messages, or expose them, while its operator believes otherwise. So it refuses
to start, with the key and a hint.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.platform.settings import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_NO_ROCKSDB = "RocksDB is not built, and what it holds cannot be read"


def _is_true(text: str) -> bool:
    return text.lower() == "true"


def _is_set(text: str) -> bool:
    return bool(text)


@dataclasses.dataclass(frozen=True, slots=True)
class Unsupported:
    """A setting, its refused values, and the reason."""

    key: str
    is_refused: Callable[[str], bool]
    reason: str


UNSUPPORTED = (
    Unsupported(
        "enableDLegerCommitLog",
        _is_true,
        "DLedger is not built; give false, and brokerRole=SYNC_MASTER for copies on other machines",
    ),
    Unsupported(
        "duplicationEnable",
        _is_true,
        "the duplication service is not built; give false, and brokerRole=SLAVE to the copy",
    ),
    Unsupported(
        "messageStorePlugIn", _is_set, "plug-ins of the store are not built, nor is tiered storage; leave it out"
    ),
    Unsupported("storeType", lambda text: text != "default", "queues are kept in plain files here; give default"),
    Unsupported("configManagerVersion", lambda text: text != "v1", f"{_NO_ROCKSDB}; give v1"),
    Unsupported("popConsumerKVServiceEnable", _is_true, f"{_NO_ROCKSDB}; give false"),
    Unsupported("timerRocksDBEnable", _is_true, f"{_NO_ROCKSDB}; give false"),
    Unsupported("transRocksDBEnable", _is_true, f"{_NO_ROCKSDB}; give false"),
)


def refuse_unsupported(texts: Mapping[str, str]) -> None:
    """Raise ConfigError for the first setting that requests an unsupported feature."""
    for one in UNSUPPORTED:
        text = texts.get(one.key)
        if text is not None and one.is_refused(text):
            raise ConfigError(f"{one.key}={text}: {one.reason}")
