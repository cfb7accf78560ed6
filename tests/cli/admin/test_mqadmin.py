"""``orbitmq mqadmin`` prints of our servers what Apache's ``mqadmin`` prints of Apache's.

The commands and Apache's output are those of ``tests/conformance/servers``: here our tool runs instead of the
Java one, so no JVM is needed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from conformance.servers.admin_script import SETTINGS, Script, read_transcript
from conformance.servers.our_tool import OurTool, comparable
from conformance.servers.processes import serving
from orbitmq.cli.admin.mqadmin.command import parse, run_command
from orbitmq.cli.admin.mqadmin.specs import SPECS, UNSUPPORTED, function_name, spec_named
from support.paths import DATA

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXPECTED = read_transcript(DATA / "mqadmin" / "transcript.txt")

OURS = {**SETTINGS, "enablePropertyFilter": "false", "recallMessageEnable": "false"}
"""Our servers with the settings of Apache's that are recorded; these two are on by default in ours."""


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
    assert comparable(command, printed[command]) == comparable(command, EXPECTED[command])


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
        (["remappingStaticTopic"], "does not work here"),
        (["topicList", "-n", "127.0.0.1:1"], "RemotingConnectException"),
    ):
        assert run_command(arguments) == 1
        captured = capsys.readouterr()
        assert text in captured.out + captured.err, arguments
    assert run_command([]) == 0
    assert "updateTopic" in capsys.readouterr().out
    assert run_command(["help", "topicList"]) == 0
    assert "clusterModel" in capsys.readouterr().out
