"""Command lines of servers are read without Typer, and mean the same to it."""

from __future__ import annotations

import enum
from pathlib import Path  # noqa: TC003 - options are read from annotations
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from orbitmq.cli.server_options import for_typer, option, plain_arguments


class Colour(enum.StrEnum):
    """Something to choose from."""

    RED = "red"
    BLUE = "dark-blue"


seen: list[dict[str, Any]] = []


def run(
    place: Annotated[Path | None, option("--place", "-p", help="Where.")] = None,
    name: Annotated[str | None, option(help="Who.", show_default=False)] = None,
    wait_seconds: Annotated[int, option(min=0, max=100)] = 7,
    most: Annotated[int | None, option(min=1, max=9)] = None,
    colour: Annotated[Colour, option(help="Which.")] = Colour.RED,
    quiet: Annotated[bool, option("--quiet", "-q", hidden=True)] = False,
    loud: Annotated[bool, option(help="How.")] = False,
) -> None:
    """Run something."""
    seen.append(
        {"place": place, "name": name, "wait_seconds": wait_seconds, "most": most, "colour": colour, "quiet": quiet}
        | {"loud": loud}
    )


def said_to_typer(*words: str) -> dict[str, Any] | None:
    """What Typer makes of a command line; None if it refuses it."""
    app = typer.Typer()
    app.command()(for_typer(run))
    seen.clear()
    result = CliRunner().invoke(app, list(words))
    return seen[0] if result.exit_code == 0 and seen else None


def said_plainly(*words: str) -> dict[str, Any] | None:
    arguments = plain_arguments(run, words)
    if arguments is None:
        return None
    seen.clear()
    run(**arguments)
    return seen[0]


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("--place", "/a"),
        ("-p", "a b", "--name", "x=y"),
        ("--place=/a=b",),
        ("--wait-seconds", "0", "--most", "9"),
        ("--wait-seconds=100",),
        ("--colour", "dark-blue", "-q"),
        ("--quiet", "--name", "ü"),
    ],
)
def test_a_plain_line_means_what_it_means_to_typer(words: tuple[str, ...]) -> None:
    plain = said_plainly(*words)
    assert plain is not None
    assert plain == said_to_typer(*words)


@pytest.mark.parametrize(
    "words",
    [
        ("--help",),
        ("extra",),
        ("--no-such",),
        ("--name",),
        ("--most", "0"),
        ("--most", "10"),
        ("--most", "-1"),
        ("--most", "one"),
        ("--most", "1_0"),
        ("--wait-seconds", "+5"),
        ("--colour", "green"),
        ("--colour", "RED"),
        ("--quiet=true",),
        ("--loud",),
        ("--no-loud",),
        ("--name", "a", "--name", "b"),
        ("--name", "-x"),
        ("--name="),
        ("-pa",),
        ("-p=a",),
        ("--nam", "a"),
        ("--", "a"),
    ],
)
def test_everything_else_is_left_to_typer(words: tuple[str, ...]) -> None:
    assert plain_arguments(run, words) is None


def test_what_has_no_such_options_is_itself() -> None:
    def other(name: Annotated[str, typer.Option()] = "") -> None: ...

    assert for_typer(other) is other


def test_typer_shows_what_the_options_say() -> None:
    app = typer.Typer()
    app.command()(for_typer(run))
    shown = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"}).invoke(app, ["--help"]).stdout
    assert "Run something." in shown
    assert "0<=x<=100" in shown
    assert "Where." in shown
    assert "--quiet" not in shown
