"""The suite's other systems: requests to Kafka, the isolation of RabbitMQ, and which loads there are.

No server is started here.
"""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from support.paths import PROJECT

ROOT = PROJECT
# The benchmarks are no part of what is installed.
sys.path.append(str(ROOT))

from bench.figures import Size  # noqa: E402
from bench.suite import kafka, rabbitmq  # noqa: E402
from bench.suite.others import LOADS, PROTOCOLS, OtherSystems  # noqa: E402
from bench.suite.scenario import System  # noqa: E402


def test_a_topic_of_kafka_is_requested_with_its_partitions() -> None:
    assert kafka.create_topic("Tü", 8) == (
        b"\0\0\0\x01\0\x03T\xc3\xbc\0\0\0\x08\0\x01\0\0\0\0\0\0\0\0\0\0\x75\x30\0"
    )


def test_a_topic_that_kafka_did_not_make_has_an_error() -> None:
    for code in (0, 36, -1):
        answer = struct.pack(">ii", 0, 1) + b"\0\x01T" + struct.pack(">hh", code, -1)
        assert kafka.created(answer) == code


def test_every_partition_says_whether_it_has_a_leader() -> None:
    assert kafka.list_offsets("T", 2) == (
        b"\xff\xff\xff\xff\0\0\0\x01\0\x01T\0\0\0\x02" + struct.pack(">iqiq", 0, -1, 1, -1)
    )
    partitions = struct.pack(">ihqq", 0, 0, -1, 5) + struct.pack(">ihqq", 1, 6, -1, -1)
    assert kafka.errors(b"\0\0\0\x01\0\x01T\0\0\0\x02" + partitions) == [0, 6]


def test_rabbitmq_is_reported_to_be_missing_in_one_sentence(tmp_path: Path) -> None:
    message = rabbitmq.unavailable_at(tmp_path / "rabbitmq-server", os.defpath)
    assert message is not None
    assert "apt-get install rabbitmq-server" in message
    assert "\n" not in message


def test_rabbitmq_without_erlang_is_missing_too(tmp_path: Path) -> None:
    script = tmp_path / "rabbitmq-server"
    script.touch(mode=0o755)
    assert rabbitmq.unavailable_at(script, str(tmp_path)) is not None
    for name in ("erl", "epmd"):
        (tmp_path / name).touch(mode=0o755)
    assert rabbitmq.unavailable_at(script, str(tmp_path)) is None


def test_rabbitmq_keeps_to_its_folder_and_to_this_machine(tmp_path: Path) -> None:
    printed = rabbitmq.surroundings(tmp_path, 4000, 4001)
    files = {name: value for name, value in printed.items() if name.endswith(("_FILE", "_BASE")) or name == "HOME"}
    assert len(files) == 8
    assert all(Path(value).is_relative_to(tmp_path) for value in files.values())
    assert printed["ERL_EPMD_ADDRESS"] == "127.0.0.1"
    assert "listeners.tcp.default = 127.0.0.1:4002" in rabbitmq.configuration(4002)


def test_every_system_has_a_protocol_and_is_in_the_loads_that_all_can_do() -> None:
    assert set(PROTOCOLS) == set(System)
    shared = [load.name for load in LOADS if load.systems == frozenset(System)]
    assert [name.split(",")[0] for name in shared] == ["send 128 B", "send 128 B", "send 1 KiB", "consume 128 B"]


def test_loads_have_names_of_their_own_and_what_is_read_is_not_sent_to() -> None:
    assert len({load.name for load in LOADS}) == len(LOADS)
    read = {load.topic for load in LOADS if load.reads}
    assert len(read) == sum(load.reads for load in LOADS)
    assert read.isdisjoint(load.topic for load in LOADS if not load.reads)


@pytest.mark.parametrize("size", Size)
def test_the_scenario_is_for_every_system(size: Size) -> None:
    scenario = OtherSystems(size)
    assert scenario.systems == frozenset(System)
    assert scenario.space > 0


@pytest.mark.skipif(shutil.which("go") is None, reason="the raw load is written in Go, which is not on the PATH")
def test_the_raw_load_writes_and_reads_the_frames_of_each_protocol() -> None:
    done = subprocess.run(
        ["go", "test", "./..."],
        check=False,
        cwd=ROOT / "bench" / "server" / "load",
        env={**os.environ, "GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
