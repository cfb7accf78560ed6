"""The cluster that the tests of the console share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.dashboard.demo_cluster import demo_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.dashboard.demo_cluster import DemoCluster


@pytest.fixture(scope="package")
def demo() -> Iterator[DemoCluster]:
    with demo_cluster() as running:
        yield running
