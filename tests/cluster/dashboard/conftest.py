"""The cluster that the tests of a module of the console share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.dashboard.demo_cluster import demo_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.dashboard.demo_cluster import DemoCluster


@pytest.fixture(scope="module")  # its clients keep the thread of blocking clients alive, which other tests count
def demo() -> Iterator[DemoCluster]:
    with demo_cluster() as running:
        yield running
