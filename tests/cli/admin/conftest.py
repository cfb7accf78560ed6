"""One cluster of two brokers for all tests of the administrator's commands, and the command as a user types it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from orbitmq import Message, Producer
from orbitmq.cli import app_with
from orbitmq.testing import LocalCluster
from support.cli.command import WIDTH, Ran

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq.testing import ThreadCluster

PATIENT = {"waitTimeMillsInSendQueue": "60000", "osPageCacheBusyTimeOutMills": "60000"}
"""A busy machine makes brokers refuse sends that waited."""


class Shell:
    """Runs commands against one cluster."""

    def __init__(self, cluster: ThreadCluster, contexts: Path) -> None:
        self.cluster = cluster
        self.environment = {**WIDTH, "NAMESRV_ADDR": cluster.name_server, "ORBITMQ_CONTEXTS": str(contexts)}

    def run(self, *arguments: object, stdin: str | None = None) -> Ran:
        """Run a command of ``orbitmq`` in this process."""
        words = [str(argument) for argument in arguments]
        result = CliRunner(env=self.environment).invoke(app_with([words[0]]), words, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Ran(result.exit_code, result.stdout, result.stderr)

    def ok(self, *arguments: object, stdin: str | None = None) -> Ran:
        """Run a command that succeeds."""
        ran = self.run(*arguments, stdin=stdin)
        assert ran.code == 0, ran.err
        return ran

    def value(self, *arguments: object) -> Any:
        """The JSON that a command prints."""
        return self.ok(*arguments, "-o", "json").json

    def send(self, topic: str, count: int) -> list[str]:
        """Send messages with a body, a key and one of two tags each; returns their ids."""
        with Producer(self.cluster.name_server, group="shop") as producer:
            return [
                producer.send(
                    Message(topic, f"body {number}", keys=f"key-{number}", tags="AB"[number % 2])
                ).message_id
                for number in range(count)
            ]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ThreadCluster]:
    with LocalCluster(brokers=2, settings=PATIENT) as running:
        yield running


@pytest.fixture
def shell(cluster: ThreadCluster, tmp_path: Path) -> Shell:
    return Shell(cluster, tmp_path / "contexts.json")


@pytest.fixture(scope="module")
def module_shell(cluster: ThreadCluster, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """The shell of fixtures that all tests of a module share."""
    return Shell(cluster, tmp_path_factory.mktemp("contexts") / "contexts.json")
