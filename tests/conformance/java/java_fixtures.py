"""Fixtures of the tests with Apache's Java clients: servers to test, and a JVM per version of the client."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from conformance.java.java_harness import QUEUES, SETTINGS, eventually
from conformance.servers.processes import CLUSTER, Serving, against_apache, serving
from peers.apache import available
from peers.java_client import (
    BINARY_HEADERS,
    NEVER,
    NEW,
    VERSIONS,
    JavaAdmin,
    JavaClient,
    JavaProducer,
    Queue,
    unavailable,
)
from peers.java_consumers import JavaPullConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def java_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    if reason := available() if against_apache() else unavailable(NEW):
        pytest.skip(reason)
    with serving(tmp_path_factory.mktemp("server"), SETTINGS) as running:
        yield running


@pytest.fixture(scope="module", params=VERSIONS)
def java(
    request: pytest.FixtureRequest, java_server: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient]:
    """A JVM with one version of the client after the other."""
    version: str = request.param
    if reason := unavailable(version):
        pytest.skip(reason)
    home = tmp_path_factory.mktemp(f"client-{version}")
    with JavaClient(version, home=home, nameserver=java_server.nameserver) as jvm:
        yield jvm


@pytest.fixture
def other_java(java: JavaClient, tmp_path: Path) -> Iterator[JavaClient]:
    """Another JVM with the same version, which writes binary headers."""
    home = tmp_path / "other"
    with JavaClient(java.version, home=home, nameserver=java.nameserver, headers=BINARY_HEADERS) as jvm:
        yield jvm


@pytest.fixture
def notified_java(java: JavaClient, tmp_path: Path) -> Iterator[JavaClient]:
    """Another JVM with the same version, whose consumers look at their group only when the broker tells them to."""
    home = tmp_path / "notified"
    with JavaClient(java.version, home=home, nameserver=java.nameserver, rebalance_ms=NEVER) as jvm:
        yield jvm


@pytest.fixture(scope="module")
def producer(java: JavaClient) -> JavaProducer:
    return JavaProducer(java, "ProducersOfTests")


@pytest.fixture(scope="module")
def puller(java: JavaClient) -> JavaPullConsumer:
    return JavaPullConsumer(java, "PullersOfTests")


@pytest.fixture(scope="module")
def admin(java: JavaClient, java_server: Serving) -> JavaAdmin:
    return JavaAdmin(java, broker=java_server.broker_address, cluster=CLUSTER)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name for topics and groups that no other test has."""
    return re.sub(r"[^0-9A-Za-z]+", "_", request.node.name.removeprefix("test_"))[-90:].strip("_")


@pytest.fixture
def queues(name: str, producer: JavaProducer, puller: JavaPullConsumer) -> list[Queue]:
    """The queues of a new topic of that name, known to everyone."""
    producer.create_topic(name, queues=QUEUES)
    eventually(lambda: producer.queues(name))
    return eventually(lambda: puller.queues(name))
