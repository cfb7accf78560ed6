"""The commands of operators as a user types them, against one cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from orbitmq import Message, Producer
from orbitmq.cli import app_with
from support.cli.command import WIDTH, Ran

if TYPE_CHECKING:
    from pathlib import Path


class Shell:
    """Runs commands against one cluster."""

    def __init__(self, name_server: str, contexts: Path) -> None:
        self.name_server = name_server
        self.environment = {**WIDTH, "NAMESRV_ADDR": name_server, "ORBITMQ_CONTEXTS": str(contexts)}

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
        with Producer(self.name_server, group="shop") as producer:
            return [
                producer.send(
                    Message(topic, f"body {number}", keys=f"key-{number}", tags="AB"[number % 2])
                ).message_id
                for number in range(count)
            ]
