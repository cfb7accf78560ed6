"""Remarks name no directories of the server; its log does."""

from __future__ import annotations

import errno
import logging
import os

import pytest

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.remarks import hide_paths
from orbitmq.remoting.error_responses import failed
from orbitmq.store import AppendRefusedError
from orbitmq.store.errors import PutStatus
from orbitmq.testing import MemoryDisk
from support.nameserver_harness import QuietServer
from support.store.stores import open_small, send


@pytest.mark.parametrize(
    ("text", "public"),
    [
        ("cannot read /data/store/config/topics.json: gone", "cannot read topics.json: gone"),
        ("[Errno 28] No space left: '/data/store'", "[Errno 28] No space left: 'store'"),
        ("(/a/b/c.py:12)", "(c.py:12)"),
        ("a/b is no path of ours, nor is 1/2 or n/a", "a/b is no path of ours, nor is 1/2 or n/a"),
        ("no path", "no path"),
        ("http://host/path stays", "http://host/path stays"),
    ],
)
def test_of_an_absolute_path_only_the_last_name_is_left(text: str, public: str) -> None:
    assert hide_paths(text) == public


def test_a_refused_append_names_no_directory() -> None:
    assert (
        str(AppendRefusedError(PutStatus.UNKNOWN_ERROR, "in /data/store/commitlog: full")) == "in commitlog: full"
    )


def test_a_full_disk_is_logged_with_its_directory_once_and_told_without(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    store = open_small("/data/store", disk=disk)
    disk.fail("create", error=errno.ENOSPC, times=3, path_contains="commitlog")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            with pytest.raises(AppendRefusedError, match="disk that holds the commit log is full") as refused:
                send(store)
            assert "/data" not in str(refused.value)
    assert [record.getMessage() for record in caplog.records] == [
        "commit log: cannot reserve disk space, refusing messages: "
        f"/data/store/commitlog: {os.strerror(errno.ENOSPC)}"
    ]
    store.close()


def test_a_handler_that_fails_tells_no_path(caplog: pytest.LogCaptureFixture) -> None:
    request = Command(code=11, opaque=7)
    error = OSError(errno.EIO, "Input/output error", "/data/store/consumequeue/T/0")
    with caplog.at_level(logging.ERROR):
        data = failed(error, request.header, 0, "1.2.3.4:5")
    assert b"/data" not in data
    assert b"Input/output error" in data
    assert "/data/store/consumequeue/T/0" in caplog.text


@pytest.mark.parametrize(
    ("code", "body", "fields"),
    [
        (RequestCode.PUT_KV_CONFIG, None, {"namespace": "n", "key": "k", "value": "v"}),
        (RequestCode.UPDATE_NAMESRV_CONFIG, b"orderMessageEnable=true", {}),
    ],
)
def test_a_name_server_with_a_full_disk_tells_no_path(
    code: int, body: bytes | None, fields: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    server = QuietServer()
    server.disk.fail("write", error=errno.ENOSPC, times=9, path_contains="/ns/")
    with caplog.at_level(logging.ERROR):
        answer = server.ask(code, body, **fields)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "/ns" not in (answer.remark or "")
    assert any("/ns/" in record.getMessage() for record in caplog.records)
