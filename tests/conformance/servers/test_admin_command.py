"""Our tools of operators on a real Apache RocketMQ: ``orbitmq mqadmin`` prints what Apache's own prints of it."""

from __future__ import annotations

import os
import tarfile
from typing import TYPE_CHECKING

import pytest

from conformance.servers.admin_script import SETTINGS, Script, read_transcript
from conformance.servers.our_tool import OurTool, comparable
from conformance.servers.processes import serving
from support.cli.operator_shell import Shell
from support.paths import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from conformance.servers.processes import Serving

EXPECTED = read_transcript(DATA / "mqadmin" / "transcript.txt")


@pytest.fixture(scope="module")
def server(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    folder = tmp_path_factory.mktemp("apache")
    before = os.getcwd()
    os.chdir(folder)  # consumerStatus writes files where it runs
    try:
        with serving(folder / "server", SETTINGS, apache=True) as running:
            yield running
    finally:
        os.chdir(before)


@pytest.fixture(scope="module")
def printed(server: Serving) -> dict[str, str]:
    script = Script(server, OurTool(server.nameserver))  # type: ignore[arg-type]
    script.play()
    return script.printed


@pytest.fixture
def shell(server: Serving, printed: dict[str, str], tmp_path: Path) -> Shell:
    """Commands after the script, which takes the cluster to be new."""
    return Shell(server.nameserver, tmp_path / "contexts.json")


@pytest.mark.parametrize("command", EXPECTED)
def test_our_mqadmin_prints_what_apaches_prints(printed: dict[str, str], command: str) -> None:
    assert comparable(command, printed[command]) == comparable(command, EXPECTED[command])


def test_topics_groups_and_messages_are_administered(shell: Shell) -> None:
    shell.ok("topic", "create", "orders", "-q", 2, "--type", "fifo")
    assert shell.value("topic", "list", "orders")[0]["type"] == "FIFO"
    shell.ok("topic", "alter", "orders", "-q", 3)
    assert shell.value("topic", "describe", "orders")["brokers"][0]["writeQueues"] == 3
    sent = shell.send("orders", 4)
    assert sorted(shell.ok("message", "query", "orders", "-f", r"%i\n").out.split()) == sorted(sent)
    shell.ok("group", "create", "billing", "--max-retries", 2)
    shell.ok("group", "reset", "billing", "-t", "orders", "--to", "earliest", "--yes")
    assert shell.value("lag", "billing")["lag"] == 4
    shell.ok("group", "skip", "billing", "--yes")
    assert shell.value("lag", "billing")["lag"] == 0
    assert [one["group"] for one in shell.value("top", "--once", "--interval", 0.1)].count("billing") == 1
    shell.ok("config", "set", "flushDelayOffsetInterval=9999")
    assert shell.value("config", "get", "^flushDelayOffset")[0]["value"] == "9999"


def test_health_definitions_and_bundles_work(shell: Shell, tmp_path: Path) -> None:
    quiet = ("--disk-warning", 0, "--disk-critical", 0)
    assert shell.run("check", *quiet).code == 0
    file = tmp_path / "definitions.json"
    shell.ok("definitions", "export", file)
    assert shell.run("definitions", "diff", file).code == 0
    shell.ok("topic", "alter", "OtherTopic", "-q", 5)
    assert shell.run("definitions", "diff", file).code == 1
    shell.ok("definitions", "import", file)
    assert shell.run("definitions", "diff", file).code == 0
    bundle = tmp_path / "bundle.tar.gz"
    assert "errors.txt" in shell.ok("bundle", bundle).err
    with tarfile.open(bundle) as tar:
        assert {"health.json", "topics.json"} <= {name.partition("/")[2] for name in tar.getnames()}


def test_what_apache_does_not_have_is_one_sentence(shell: Shell) -> None:
    events = shell.run("events")
    assert (events.code, events.out) == (1, "")
    assert "not supported" in events.err
