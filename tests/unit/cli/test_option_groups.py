"""Options of a command as dataclasses: Typer sees one option per field, and the command gets values."""

import dataclasses
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from orbitmq.cli.option_groups import option_groups


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    name: Annotated[str, typer.Argument(help="The name.")]
    count: Annotated[int, typer.Option("--count", "-c", min=1, help="The count.")] = 3


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing.")] = False


received: list[tuple[Target, Output]] = []


@option_groups
def command(target: Target, output: Output) -> None:
    """Do it."""
    received.append((target, output))


@pytest.fixture
def app() -> typer.Typer:
    received.clear()
    app = typer.Typer()
    app.command()(command)
    return app


def test_a_command_gets_its_options_as_values(app: typer.Typer) -> None:
    ran = CliRunner().invoke(app, ["orders", "-c", "7", "--quiet"])
    assert ran.exit_code == 0, ran.output
    assert received == [(Target(name="orders", count=7), Output(quiet=True))]


def test_omitted_options_have_the_defaults_of_their_fields(app: typer.Typer) -> None:
    CliRunner().invoke(app, ["orders"])
    assert received == [(Target(name="orders"), Output())]


@pytest.mark.parametrize("arguments", [[], ["orders", "--count", "0"], ["orders", "--missing"]])
def test_a_wrong_command_line_does_not_run_the_command(app: typer.Typer, arguments: list[str]) -> None:
    assert CliRunner().invoke(app, arguments).exit_code == 2
    assert received == []


def test_the_help_is_that_of_the_command_and_its_fields(app: typer.Typer) -> None:
    text = CliRunner().invoke(app, ["--help"]).output
    for part in ("Do it.", "The name.", "The count.", "Print nothing."):
        assert part in text
