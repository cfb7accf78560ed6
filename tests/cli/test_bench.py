"""``orbitmq bench`` puts a load on a cluster, or on one of its own, and counts what it did."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import orbitmq
from orbitmq.cli.bench import load as bench_load
from orbitmq.cli.bench.suite import source_tree
from orbitmq.testing import LocalCluster
from support.cli.command import WIDTH, Ran, run, run_apart
from support.paths import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.testing import ThreadCluster

NOBODY = "127.0.0.1:1"


@pytest.fixture
def cluster() -> Iterator[ThreadCluster]:
    with LocalCluster() as cluster:
        yield cluster


def bench(cluster: ThreadCluster, *arguments: object) -> Ran:
    return run("bench", *arguments, "--topic", "load", "-n", cluster.name_server)


# Sending


@pytest.mark.parametrize(
    "shape", [(), ("--in-flight", 1), ("--batch", 10), ("--batch", 10, "--in-flight", 35), ("--batch", 1000)]
)
def test_as_many_messages_are_sent_as_were_asked_for(cluster: ThreadCluster, shape: tuple[object, ...]) -> None:
    ran = bench(cluster, "send", "--messages", 205, "--size", 32, "--json", *shape)
    assert (ran.code, ran.err) == (0, "")
    told = ran.json
    assert (told["load"], told["topic"], told["nameserver"]) == ("send", "load", cluster.name_server)
    assert (told["messages"], told["bytes"], told["failures"], told["failure"]) == (205, 205 * 32, 0, None)
    assert {len(message.body) for message in cluster.messages("load")} == {32}
    assert len(cluster.messages("load")) == 205
    latencies = list(told["latencyMs"].values())
    assert latencies == sorted(latencies)
    assert latencies[0] > 0
    assert told["rate"] == pytest.approx(205 / told["seconds"])


def test_a_load_ends_when_its_time_is_over(cluster: ThreadCluster) -> None:
    ran = bench(cluster, "send", "--seconds", 0.2, "--json")
    assert ran.code == 0
    assert ran.json["messages"] == len(cluster.messages("load"))
    assert ran.json["seconds"] >= 0.2


def test_large_bodies_are_sent_as_they_are(cluster: ThreadCluster) -> None:
    ran = bench(cluster, "send", "--messages", 3, "--size", 100_000, "--json")
    assert ran.json["bytes"] == 300_000
    assert [len(message.record.body) for message in cluster.messages("load")] == [100_000] * 3


def test_people_get_a_few_lines(cluster: ThreadCluster) -> None:
    ran = bench(cluster, "send", "--messages", 20)
    lines = ran.out.splitlines()
    assert (ran.code, ran.err, len(lines)) == (0, "", 4)
    assert lines[0].endswith(f"send load at {cluster.name_server}")
    assert "messages/s" in lines[0]
    assert lines[1].startswith("messages      20 in ")
    assert lines[2].startswith("answer after  p50 ")
    assert lines[3].split() == ["failed", "0"]


def test_ctrl_c_ends_a_load_sooner(cluster: ThreadCluster) -> None:
    command = [sys.executable, "-m", "orbitmq", "bench", "send", "--seconds", "100", "--in-flight", "1", "--json"]
    with subprocess.Popen(
        [*command, "--topic", "load", "-n", cluster.name_server],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **WIDTH},
    ) as process:
        while process.poll() is None and not cluster.messages("load"):
            pass
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (0, b"")
    assert Ran(0, out.decode(), "").json["messages"] == len(cluster.messages("load"))


def test_a_cluster_that_is_not_there_is_one_sentence() -> None:
    ran = run("bench", "send", "--seconds", 1, "-n", NOBODY)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("orbitmq: ")
    assert NOBODY in ran.err
    assert ran.err.count("\n") == 1


def test_a_topic_that_nobody_makes_is_one_sentence() -> None:
    with LocalCluster(settings={"autoCreateTopicEnable": "false"}) as cluster:
        ran = bench(cluster, "send", "--messages", 10)
    assert (ran.code, ran.out) == (1, "")
    assert "load" in ran.err
    assert ran.err.count("\n") == 1


def test_messages_that_are_refused_are_counted() -> None:
    with LocalCluster(settings={"maxMessageSize": "1000"}) as cluster:
        # The first goes alone and is small enough; a batch of such bodies is more than the broker takes.
        ran = bench(cluster, "send", "--messages", 21, "--batch", 10, "--size", 600, "--json")
        assert len(cluster.messages("load")) == 1
    assert ran.code == 1
    assert (ran.json["messages"], ran.json["failures"]) == (1, 20)
    assert ran.err == f"orbitmq: 20 messages failed, the first: {ran.json['failure']}\n"


# Consuming


@pytest.mark.parametrize("batch", [1, 32])
def test_what_is_in_a_topic_is_consumed(cluster: ThreadCluster, batch: int) -> None:
    assert bench(cluster, "send", "--messages", 300, "--size", 10).code == 0
    ran = bench(cluster, "consume", "--messages", 300, "--batch", batch, "--json")
    assert (ran.code, ran.err) == (0, "")
    told = ran.json
    assert (told["load"], told["messages"], told["bytes"], told["failures"]) == ("consume", 300, 3000, 0)


def test_a_group_goes_on_where_it_was(cluster: ThreadCluster) -> None:
    assert bench(cluster, "send", "--messages", 40).code == 0
    assert bench(cluster, "consume", "--messages", 40, "--group", "readers").code == 0
    ran = bench(cluster, "consume", "--seconds", 0.3, "--group", "readers", "--json")
    assert (ran.code, ran.json["messages"]) == (0, 0)


def test_fewer_messages_than_were_asked_for_is_a_failure(
    cluster: ThreadCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_load, "NOTHING_CAME_SECONDS", 1.0)
    assert bench(cluster, "send", "--messages", 10).code == 0
    ran = bench(cluster, "consume", "--messages", 12)
    assert ran.code == 1
    assert ran.out.splitlines()[1].startswith("messages      10 in ")
    assert ran.err == "orbitmq: 2 messages failed, the first: no message came for 1 s\n"


# A cluster of its own


@pytest.mark.parametrize("load", ["send", "consume"])
def test_without_an_address_there_is_a_cluster_for_the_time_of_the_run(tmp_path: Path, load: str) -> None:
    environment = {**os.environ, **WIDTH, "TMPDIR": str(tmp_path)}
    environment.pop("NAMESRV_ADDR", None)
    ran = run_apart("bench", load, "--messages", 500, "--json", env=environment)
    assert (ran.code, ran.err) == (0, "")
    assert (ran.json["messages"], ran.json["nameserver"]) == (500, None)
    assert list(tmp_path.iterdir()) == []


# The suite


def test_the_suite_is_run_from_the_source_tree(tmp_path: Path) -> None:
    ran = run_apart("bench", "suite", "--list", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "recovery" in ran.out


def test_an_installation_without_the_sources_says_where_the_suite_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "lib" / "site-packages" / "orbitmq" / "__init__.py"
    assert source_tree(installed) is None
    assert source_tree(Path(orbitmq.__file__)) == PROJECT
    monkeypatch.setattr(orbitmq, "__file__", str(installed))
    ran = run("bench", "suite", "--quick")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("orbitmq: the suite is part of OrbitMQ's source tree")
    assert ran.err.count("\n") == 1


def test_consuming_nothing_is_a_failure() -> None:
    ran = run("bench", "consume", "-n", NOBODY, "--seconds", 0.2)
    assert ran.code == 1
    assert "no queue of BenchmarkTest was found" in ran.err
