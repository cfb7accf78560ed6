"""``orbitmq mqadmin`` prints of our servers what Apache's ``mqadmin`` prints of Apache's.

The commands and Apache's output are those of ``tests/conformance/servers``: here our tool runs instead of the
Java one, so no JVM is needed.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import threading
from typing import TYPE_CHECKING

import pytest

from conformance.servers.admin_script import SETTINGS, TOPIC, Script, read_transcript
from conformance.servers.processes import BROKER_NAME, serving
from orbitmq import Consumer, Message, Producer
from orbitmq.cli.admin.mqadmin.command import parse, run_command
from orbitmq.cli.admin.mqadmin.specs import SPECS, UNSUPPORTED, function_name, spec_named
from orbitmq.protocol.bodies import MessageQueue
from support.paths import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXPECTED = read_transcript(DATA / "mqadmin" / "transcript.txt")

OURS = {**SETTINGS, "enablePropertyFilter": "false", "recallMessageEnable": "false"}
"""Our servers with the settings of Apache's that are recorded; these two are on by default in ours."""

DIFFERENT = [
    (re.compile(pattern, re.MULTILINE), text)
    for pattern, text in (
        # Our client is written in Python, and sends messages of another size.
        (r"\bPYTHON\b", "JAVA"),
        (r"(?<=offsetMsgId=BROKER)[0-9A-F]+", "*"),
        (r"^((?:commitLogMaxOffset|putMessageSizeTotal|msgGetTotalTodayNow) :) \d+$", r"\1 *"),
        (r"(?<=NUMBER\) )\d+(?= NUMBER NUMBER (?:true|false)$)", "*"),
        # Our tool reads without a consumer group, so there is none of tools afterwards.
        (r"^(?:TOOLS_CONSUMER .*|%RETRY%TOOLS_CONSUMER)\n?", ""),
        (r"(?<=\] OK, )\d+$", "*"),
        # Our client commits offsets of empty queues too, those of the retry topic among them.
        (r"^%RETRY%AdminGroup (?:AdminGroup )?broker-a .*\n?", ""),
        (r"^AdminTopic \w+ broker-a \d 0 0 0 -\n?", ""),
        # A warning of the consumer that runs in this process.
        (r"^pull: .*\n?", ""),
    )
]
"""Where the output differs because of the client, not of the tool."""


class OurTool:
    """Our ``mqadmin`` in this process, and clients for it to report about, in the place of Apache's."""

    def __init__(self, nameserver: str) -> None:
        self._nameserver = nameserver
        self._clients: dict[str, Consumer | Producer] = {}

    def run(self, *arguments: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            run_command([arguments[0], "-n", self._nameserver, *arguments[1:]])
        return out.getvalue()

    def consume(self, group: str, topic: str, count: int) -> None:
        done = threading.Semaphore(0)
        consumer = Consumer(
            self._nameserver,
            group=group,
            instance_name="Consumer",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )
        consumer.on(topic)(lambda message: done.release())
        self._clients[group] = consumer
        consumer.start()
        for _ in range(count):
            assert done.acquire(timeout=60)

    def produce(self, group: str, topic: str, body: str) -> None:
        producer = Producer(self._nameserver, group=group, instance_name="Producer")
        self._clients[group] = producer
        producer.start()
        producer.send(Message(topic, body), queue=MessageQueue(topic, BROKER_NAME, 0))

    def stop(self, group: str) -> None:
        client = self._clients.pop(group)
        client.close()
        if isinstance(client, Consumer):
            # Ours follows the reset at once and consumes everything again, which Apache's was stopped before.
            self.run("resetOffsetByTime", "-g", group, "-t", TOPIC, "-s", "0")


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What each command of the script printed."""
    folder = tmp_path_factory.mktemp("mqadmin")
    before = os.getcwd()
    os.chdir(folder)  # consumerStatus writes files where it runs
    try:
        with serving(folder / "server", OURS, apache=False) as server:
            script = Script(server, OurTool(server.nameserver))  # type: ignore[arg-type]
            script.play()
            yield script.printed
    finally:
        os.chdir(before)


@pytest.mark.parametrize("command", EXPECTED)
def test_a_command_prints_what_apaches_tool_prints(printed: dict[str, str], command: str) -> None:
    found, expected = _lines(printed[command]), _lines(EXPECTED[command])
    if command == "getNamesrvConfig":
        # Two of the names share a bucket of Java's hash table.
        found, expected = sorted(found), sorted(expected)
    assert found == expected


def _lines(text: str) -> list[str]:
    for pattern, replacement in DIFFERENT:
        text = pattern.sub(replacement, text)
    return text.rstrip("\n").splitlines()


def test_all_commands_of_apache_are_there() -> None:
    assert len(SPECS) == 96
    for spec in SPECS.values():
        assert (spec.name in UNSUPPORTED) is not bool(spec.module)
        if spec.module:
            module = __import__(f"orbitmq.cli.admin.mqadmin.commands.{spec.module}", fromlist=["x"])
            assert callable(getattr(module, function_name(spec.name))), spec.name


def test_options_are_those_of_apache(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    spec = spec_named("UPDATETOPIC")
    assert spec is not None
    assert parse(spec, ["--topic", "t", "-b", "h:1", "-writeQueueNums", "3"]) == {"t": "t", "b": "h:1", "w": "3"}
    for arguments, text in (
        (["updateTopic", "-t", "x"], "Missing required option: [-b, -c]"),
        (["updateTopic", "-b", "h:1"], "Missing required option: t"),
        (["updateTopic", "-b", "h:1", "-t"], "Missing argument for option: t"),
        (["updateTopic", "--nothing"], "Unrecognized option: --nothing"),
        (["nothing"], "The sub command nothing not exist."),
        (["startMonitoring"], "does not work here"),
        (["topicList", "-n", "127.0.0.1:1"], "RemotingConnectException"),
    ):
        assert run_command(arguments) == 1
        captured = capsys.readouterr()
        assert text in captured.out + captured.err, arguments
    assert run_command([]) == 0
    assert "updateTopic" in capsys.readouterr().out
    assert run_command(["help", "topicList"]) == 0
    assert "clusterModel" in capsys.readouterr().out
