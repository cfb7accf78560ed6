"""The peers that conformance tests run against, and what those peers said when a test fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from peers.apache import ApacheNameServer, available
from peers.process import RUNNING

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator


@pytest.fixture(scope="session")
def apache() -> None:
    """Skips what needs Apache RocketMQ where it cannot be run, with the reason."""
    if reason := available():
        pytest.skip(reason)


@pytest.fixture(scope="module")
def apache_nameserver(apache: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheNameServer]:
    with ApacheNameServer(tmp_path_factory.mktemp("nameserver")) as nameserver:
        yield nameserver


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        report.sections += [(f"log of {peer.name}", peer.quote()) for peer in RUNNING]
    return report
