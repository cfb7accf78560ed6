"""The pytest plugin that comes with the package: a real cluster as a fixture.

``orbitmq`` is a cluster of the test's own. It is up in milliseconds, so tests need share nothing: the topics,
groups, offsets and the time of one are never seen by another, whatever names the application under test has built
in.
``orbitmq_cluster`` is one for the whole run, for what is expensive to connect.

pytest imports this file at the start of every run wherever OrbitMQ is installed, so it imports nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.testing.cluster_thread import ThreadCluster


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "orbitmq(name_servers=1, brokers=1, settings={...}, ...): what the `orbitmq` fixture of this test is like, "
        "by the arguments of orbitmq.testing.LocalCluster",
    )


@pytest.fixture(scope="session")
def orbitmq_options() -> dict[str, Any]:
    """The arguments of ``LocalCluster`` for all tests. Override it in a conftest.py."""
    return {}


@pytest.fixture(scope="session")
def orbitmq_cluster(orbitmq_options: dict[str, Any]) -> Iterator[ThreadCluster]:
    """A cluster that all tests of the run share."""
    yield from _cluster(orbitmq_options)


@pytest.fixture
def orbitmq(request: pytest.FixtureRequest, orbitmq_options: dict[str, Any]) -> Iterator[ThreadCluster]:
    """A cluster of this test's own. ``@pytest.mark.orbitmq(brokers=2)`` says what it is like."""
    marker = request.node.get_closest_marker("orbitmq")
    reported: dict[str, Any] = {} if marker is None else marker.kwargs
    settings = {**orbitmq_options.get("settings", {}), **reported.get("settings", {})}
    yield from _cluster({**orbitmq_options, **reported, "settings": settings})


def _cluster(options: dict[str, Any]) -> Iterator[ThreadCluster]:
    try:
        from orbitmq.testing import LocalCluster  # noqa: PLC0415 - takes long, and few tests need it
    except ImportError as error:
        if "orbitmq[server]" not in str(error):
            raise
        pytest.fail(str(error), pytrace=False)

    with LocalCluster(**options) as cluster:
        yield cluster
