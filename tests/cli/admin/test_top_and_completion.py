"""``orbitmq top`` in a terminal and without one, and what a shell completes."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.cli.operator_shell import Shell

SECONDS = 60


@pytest.fixture(scope="module")
def billing(module_shell: Shell) -> None:
    """A group ``billing`` that lags six messages behind in ``orders``, and one that has consumed them."""
    module_shell.ok("topic", "create", "orders", "-q", 2)
    module_shell.send("orders", 6)
    for group, position in (("audit", "latest"), ("billing", "earliest")):
        module_shell.ok("group", "create", group)
        module_shell.ok("reset", group, "-t", "orders", "--to", position, "--yes")


def test_one_table_is_printed_without_a_terminal(shell: Shell, billing: None) -> None:
    groups = shell.value("top", "--once", "--interval", 0.1)
    assert [(one["group"], one["lag"]) for one in groups] == [("billing", 6), ("audit", 0)]
    by_name = shell.value("top", "--once", "--interval", 0.1, "--sort", "group")
    assert [one["group"] for one in by_name] == ["audit", "billing"]
    (topic,) = shell.value("top", "topics", "--once", "--interval", 0.1)
    assert (topic["topic"], topic["messages"], topic["groups"], topic["putRate"]) == ("orders", 6, 2, 0)
    assert len(shell.value("top", "brokers", "--once", "--interval", 0.1)) == 2
    lines = shell.ok("top", "--interval", 0.1, "--count", 2, "-o", "json").lines
    assert [line["groups"][0]["group"] for line in lines] == ["billing", "billing"]
    assert shell.run("top", "nonsense").code == 2
    assert shell.run("top", "--sort", "nonsense").code == 2


def test_keys_change_the_view_in_a_terminal(shell: Shell, billing: None) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "orbitmq", "top", "--interval", "0.2"]
    environment = {**os.environ, **shell.environment, "TERM": "xterm", "LINES": "24", "COLUMNS": "80"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        try:
            _read_until(ours, b"groups, by lag")
            for key, text in ((b"t", b"topics, by put rate"), (b"s", b"by messages"), (b"b", b"brokers, by")):
                os.write(ours, key)
                _read_until(ours, text)
            os.write(ours, b"p")
            _read_until(ours, b"paused")
            os.write(ours, b"q")
            # The last thing is the screen that was there before.
            _read_until(ours, b"\033[?1049l")
            assert process.wait(SECONDS) == 0
        finally:
            process.kill()
            os.close(ours)


def _read_until(terminal: int, text: bytes) -> None:
    seen = b""
    while text not in seen:
        ready, _, _ = select.select([terminal], [], [], SECONDS)
        assert ready, f"{text!r} is not in {seen!r}"
        seen += os.read(terminal, 65536)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("orbitmq topic describe ", "orders"),
        ("orbitmq group lag b", "billing"),
        ("orbitmq topic create x --broker broker-", "broker-b"),
        ("orbitmq cluster describe ", "DefaultCluster"),
        ("orbitmq topic ", "describe"),
        ("orbitmq gro", "groups"),
    ],
)
def test_a_shell_completes_names(shell: Shell, billing: None, typed: str, expected: str) -> None:
    assert expected in _completed(typed, shell.environment)


def test_completion_without_a_cluster_is_empty(shell: Shell) -> None:
    assert _completed("orbitmq topic describe ", {**shell.environment, "NAMESRV_ADDR": "127.0.0.1:1"}) == []


def _completed(typed: str, environment: Mapping[str, str]) -> list[str]:
    words = typed.split()
    at = len(words) if typed.endswith(" ") else len(words) - 1
    request = {"_ORBITMQ_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(at)}
    program = "import sys; from orbitmq.cli import main; sys.argv = ['orbitmq']; main()"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment, **request},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.stderr == ""
    return done.stdout.split()
