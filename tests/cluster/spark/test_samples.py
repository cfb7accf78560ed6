"""Sample messages of a pipeline project, which make its example run on a cluster without its topics."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from orbitmq.spark.cluster import Cluster
from orbitmq.spark.pipelines.declarative.job import EXAMPLES, init_project
from orbitmq.spark.pipelines.declarative.samples import send_samples
from orbitmq.spark.pipelines.progress import silent
from support.spark.topics import Topics, running_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def topics() -> Iterator[Topics]:
    with running_cluster() as running:
        yield Topics(running)


def messages(topics: Topics, topic: str) -> int:
    return sum(ends.max - ends.min for ends in Cluster.of(topics.nameserver).bounds([topic])[topic].values())


def test_topics_that_do_not_exist_get_the_samples_of_their_example(topics: Topics, tmp_path: Path) -> None:
    made = init_project(tmp_path / "shop", EXAMPLES)
    files = {path.stem: path for path in made if path.suffix == ".jsonl"}
    assert files.keys() == {"clicks", "orders", "payments", "customers-changes"}
    topics.make("payments")
    send_samples(tmp_path / "shop", topics.nameserver, silent())
    send_samples(tmp_path / "shop", topics.nameserver, silent())
    assert messages(topics, "clicks") == len(files["clicks"].read_text().splitlines()) > 0
    assert messages(topics, "customers-changes") > 0
    assert messages(topics, "payments") == 0


def test_a_project_without_samples_connects_to_no_cluster(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        host, port = listener.getsockname()
        send_samples(tmp_path, f"{host}:{port}", silent())
        with pytest.raises(BlockingIOError):
            listener.accept()
