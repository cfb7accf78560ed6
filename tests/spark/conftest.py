"""One Spark for all tests of this ring, and a broker that its worker processes can reach.

``spark`` is a session on two threads of this machine; starting it takes seconds, so there is one for the ring.
``nameserver`` is the address of a name server with one broker, as processes of their own, for the whole ring; tests
keep out of each other's way by ``topic``, a name of their own. A test that stops brokers or moves time takes the
package's own fixture ``orbitmq``, a cluster in this process, which Spark's processes reach as well.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.spark.sessions.session import session, unavailable
from peers.process import RUNNING
from support.spark.spark_harness import SHORT_LIFE, server

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
# PySpark leaves sockets to the garbage collector; these tests cannot change that.
LEFT_TO_PYSPARK = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(HERE):
            for rule in LEFT_TO_PYSPARK:
                item.add_marker(pytest.mark.filterwarnings(rule))


@pytest.fixture
def no_client_is_left_open() -> None:
    """Not requested here: programs of Spark stay in the cluster they joined until their process ends."""


@pytest.fixture(scope="session")
def java_and_pyspark() -> None:
    """Skips what needs Spark where it cannot run, with the reason."""
    if reason := unavailable():
        pytest.skip(reason)


@pytest.fixture(scope="session")
def spark(java_and_pyspark: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two tasks at a time. A failed task is not tried again: what fails, fails in the test."""
    made = session(
        "orbitmq-tests",
        "local[2]",
        **{
            "spark.sql.warehouse.dir": tmp_path_factory.mktemp("warehouse").as_uri(),
            "spark.local.dir": str(tmp_path_factory.mktemp("spark")),
            "spark.sql.session.timeZone": "UTC",
            "spark.driver.extraJavaOptions": SHORT_LIFE,
        },
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def nameserver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """``host:port`` of a name server that knows one broker."""
    with server(tmp_path_factory.mktemp("server")) as address:
        yield address


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic that no other test uses; the first send creates it."""
    return re.sub(r"[^a-zA-Z0-9_-]+", "-", request.node.name)[:100]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += [(f"log of {peer.name}", peer.quote()) for peer in RUNNING]
    return report
