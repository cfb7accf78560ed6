"""One cluster of two brokers for all tests of the administrator's commands, and the command as a user types it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.testing import LocalCluster
from support.cli.operator_shell import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq.testing import ThreadCluster

PATIENT = {"waitTimeMillsInSendQueue": "60000", "osPageCacheBusyTimeOutMills": "60000"}
"""A busy machine makes brokers refuse sends that waited."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadCluster]:
    with LocalCluster(brokers=2, settings=PATIENT) as running:
        yield running


@pytest.fixture
def shell(cluster: ThreadCluster, tmp_path: Path) -> Shell:
    return Shell(cluster.name_server, tmp_path / "contexts.json")


@pytest.fixture(scope="module")
def module_shell(cluster: ThreadCluster, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """The shell of fixtures that all tests of a module share."""
    return Shell(cluster.name_server, tmp_path_factory.mktemp("contexts") / "contexts.json")
