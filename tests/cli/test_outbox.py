"""``orbitmq outbox`` sends what a database holds, and says what waits there."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from orbitmq import Message
from orbitmq.testing import LocalCluster
from support.cli.command import run

sa = pytest.importorskip("sqlalchemy")

if TYPE_CHECKING:
    from pathlib import Path

SECONDS = 30


def url_of(folder: Path, count: int) -> str:
    """A database with so many messages in its outbox."""
    from orbitmq.outbox import Outbox

    url = f"sqlite:///{folder}/shop.db"
    engine = sa.create_engine(url)
    outbox = Outbox()
    outbox.create_table(engine)
    with engine.begin() as connection:
        for number in range(count):
            outbox.add(connection, Message("orders", b"%d" % number))
    engine.dispose()
    return url


def test_a_relay_sends_the_messages_of_the_outbox_until_a_signal(tmp_path: Path) -> None:
    url = url_of(tmp_path, 3)
    with LocalCluster() as cluster:
        command = [sys.executable, "-m", "orbitmq", "outbox", "relay", "--url", url, "-n", cluster.name_server]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as relay:
            try:
                end = time.monotonic() + SECONDS
                while len(cluster.messages("orders")) < 3 and time.monotonic() < end:
                    time.sleep(0.05)
                bodies = sorted(message.body for message in cluster.messages("orders"))
            finally:
                relay.send_signal(signal.SIGTERM)
                _, said = relay.communicate(timeout=SECONDS)
    assert (bodies, relay.returncode) == ([b"0", b"1", b"2"], 0), said.decode()


def test_the_backlog_is_printed_as_json(tmp_path: Path) -> None:
    ran = run("outbox", "status", "--url", url_of(tmp_path, 2), "--json")
    assert ran.code == 0
    assert json.loads(ran.out)["waiting"] == 2


def test_a_database_without_an_outbox_is_one_sentence(tmp_path: Path) -> None:
    ran = run("outbox", "status", "--url", f"sqlite:///{tmp_path}/none.db")
    assert ran.code == 1
    assert "the outbox 'orbitmq_outbox' cannot be used" in ran.err
