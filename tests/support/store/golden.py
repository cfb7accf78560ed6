"""Stores written by Apache RocketMQ 5.5.0, and what Apache's own classes read in them.

Each set is a folder under ``tests/data/store``: the store itself as a tar archive, and dumps of its
records, queue units, index and offsets. Where a set was left by a killed broker the queue, index and
offset dumps show the state after recovery.
"""

from __future__ import annotations

import functools
import gzip
import json
import os
import tarfile
from typing import Any

from support.paths import DATA

SETS = ("basic", "killed", "torn", "extra", "ipv6")
"""
``basic``
    every kind of message, clean shutdown
``killed``
    SYNC_FLUSH broker killed during a burst: ``abort`` is there, queues and index lag behind the log
``torn``
    ``killed`` with a lost page: the log is zero from 704512 to the end of that file
``extra``
    BatchCQ topic, LMQ, consume queue extension with bitmaps, ``__CRC32#`` on every record
``ipv6``
    both hosts of every record are IPv6
"""

_DATA = str(DATA / "store")

_COMMON = {
    "mappedFileSizeCommitLog": "262144",
    "mappedFileSizeConsumeQueue": "20000",
    "maxHashSlotNum": "500",
    "maxIndexNum": "2000",
    "mappedFileSizeTimerLog": "4096",
    "recallMessageEnable": "true",
    "brokerName": "broker-gold",
    "brokerIP1": "127.0.0.1",
}
_SYNC = {"listenPort": "13911", "flushDiskType": "SYNC_FLUSH", "waitTimeMillsInSendQueue": "30000"}
_OWN: dict[str, dict[str, str]] = {
    "basic": {"listenPort": "12911"},
    "killed": _SYNC,
    "torn": _SYNC,
    "extra": {
        "listenPort": "12911",
        "waitTimeMillsInSendQueue": "30000",
        "enableConsumeQueueExt": "true",
        "enableCalcFilterBitMap": "true",
        "enablePropertyFilter": "true",
        "enableLmq": "true",
        "enableMultiDispatch": "true",
        "enabledAppendPropCRC": "true",
        "mappedFileSizeConsumeQueueExt": "4096",
        "mapperFileSizeBatchConsumeQueue": "460",
    },
    "ipv6": {"listenPort": "13911", "waitTimeMillsInSendQueue": "30000", "brokerIP1": "::1"},
}

Row = dict[str, Any]


def config(name: str) -> dict[str, str]:
    """The settings of a set that differ from the defaults, under their ``broker.conf`` keys."""
    return {**_COMMON, **_OWN[name]}


def unpack(name: str, directory: str | os.PathLike[str], *, with_timer: bool = False) -> str:
    """Unpack the store of a set under ``directory`` and return the path of its ``store`` folder.

    The timer wheel (38 MB, sparse) is left out unless ``with_timer``.
    """
    with tarfile.open(os.path.join(_DATA, name, "store.tar.gz")) as archive:
        members = [member for member in archive if with_timer or member.name != "store/timerwheel"]
        # Python before 3.11.4 has no filters, and later ones warn without one. The archives are our own.
        safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(directory, members, **safely)
    return os.path.join(os.fspath(directory), "store")


@functools.cache
def commit_log(name: str) -> bytes:
    """All commit log files of a set in one: a physical offset is an index into these bytes."""
    with tarfile.open(os.path.join(_DATA, name, "store.tar.gz")) as archive:
        files = sorted(
            (member for member in archive if member.name.startswith("store/commitlog/")),
            key=lambda member: member.name,
        )
        contents = [archive.extractfile(member) for member in files]
        return b"".join(content.read() for content in contents if content is not None)


@functools.cache
def expected_records(name: str) -> tuple[Row, ...]:
    """One row per commit log record in physical order, also blanks and what recovery drops.

    Keys: physicalOffset, storeSize, magic (``"0xDAA320A7"``), topic, queueId, queueOffset, flag,
    sysFlag, bornTimestamp, bornHost, storeTimestamp, storeHost, reconsumeTimes,
    preparedTransactionOffset, bodyCRC, bodyRawLength, bodyLength, bodySha256,
    bodyDecompressedSha256 (compressed bodies only), properties, msgId. The blank that ends a file
    has ``blank``: true; a record that recovery drops has ``survives``: false, and one that cannot be
    decoded ``undecodable``: true.
    """
    return _rows(name, "expected")


@functools.cache
def expected_queue_units(name: str) -> tuple[Row, ...]:
    """One row per consume queue unit after recovery.

    Keys: topic, queueId, queueOffset, physicalOffset, size, tagsCode. BatchCQ units also have
    batchNum and compactedOffset; units with an extension have extTagsCode, extMsgStoreTime and
    extBitMap (hex, if any), and their tagsCode is the resolved one while the file holds the address
    of the extension.
    """
    return _rows(name, "consumequeue")


@functools.cache
def expected_index(name: str) -> tuple[Row, ...]:
    """Rows of ``type`` ``header``, ``headerAfterRecovery`` (killed and torn) and ``query``.

    A query has topic, key, keyKind, indexType (None or ``"T"``), indexOffsets (newest first),
    messages, indexLastUpdateTimestamp and indexLastUpdatePhyoffset.
    """
    return _rows(name, "index")


@functools.cache
def expected_offsets(name: str) -> Row:
    """The log's and every queue's min and max after recovery, and the checkpoint before it."""
    with open(os.path.join(_DATA, name, "offsets.json"), encoding="utf-8") as file:
        offsets: Row = json.load(file)
    return offsets


def _rows(name: str, dump: str) -> tuple[Row, ...]:
    with gzip.open(os.path.join(_DATA, name, f"{dump}.jsonl.gz"), "rt", encoding="utf-8") as file:
        return tuple(json.loads(line) for line in file)
