"""Apache's ``mqadmin``, unmodified, prints of our servers what it prints of Apache's.

What it prints of Apache's was written down once: ``tests/data/mqadmin/transcript.txt``, which
``ORBITMQ_CONFORMANCE_PEER=apache ORBITMQ_RECORD=1 pytest tests/conformance/servers/test_mqadmin.py`` writes anew.
"""

from __future__ import annotations

import os
import re

import pytest

from conformance.servers.admin_script import SETTINGS, Script, read_transcript, write_transcript
from conformance.servers.processes import against_apache, serving
from peers.admin import AdminRunner
from support.paths import DATA

TRANSCRIPT = DATA / "mqadmin" / "transcript.txt"
EXPECTED = read_transcript(TRANSCRIPT)

PAGE_CACHE_WAIT = re.compile(r"(?<=NUMBER\) )\d+(?= NUMBER NUMBER (?:true|false)$)")
"""The column #PCWait(ms) of ``clusterList``, which is ``pageCacheLockTimeMills`` of ``brokerStatus``, and measured.

An idle broker of Apache's, where only appends are measured, says 0. Ours says by how many milliseconds its loop was
late the last time, which other processes on the machine have a part in.
"""


@pytest.fixture(scope="module")
def printed(apache: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command of the script printed."""
    folder = tmp_path_factory.mktemp("mqadmin")
    with (
        serving(folder / "server", SETTINGS) as server,
        AdminRunner(home=folder / "mqadmin", nameserver=server.nameserver) as admin,
    ):
        script = Script(server, admin)
        script.play()
    if against_apache() and os.environ.get("ORBITMQ_RECORD"):
        write_transcript(TRANSCRIPT, script.printed)
        pytest.skip(f"what Apache's servers are like is written down anew: {TRANSCRIPT}")
    return script.printed


def test_every_command_of_the_script_is_written_down(printed: dict[str, str]) -> None:
    assert list(printed) == list(read_transcript(TRANSCRIPT))


@pytest.mark.parametrize("command", EXPECTED)
def test_a_command_prints_what_it_prints_of_apaches_servers(printed: dict[str, str], command: str) -> None:
    assert _lines(printed[command]) == _lines(EXPECTED[command])


LOG_LINE = re.compile(r"^\d\d:\d\d:NUMBER (?:INFO|WARN|ERROR) ")
"""A line of mqadmin's own log, which goes to its console: on a busy machine its network threads are interrupted."""


def _lines(said: str) -> list[str]:
    return [PAGE_CACHE_WAIT.sub("*", line) for line in said.splitlines() if not LOG_LINE.match(line)]
