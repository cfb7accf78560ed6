"""Command-line parser of the server commands.

Built on ``argparse`` and not on Typer: Typer and what it is built on take as long to import as a server does. Each
server command has one parser, which ``orbitmq --help`` and the other commands reach through ``cli/root.py``.
"""

import argparse

from orbitmq.cli.server.log_setup import LogFormat
from orbitmq.protocol.hosts import MAX_PORT


class ServerParser(argparse.ArgumentParser):
    """Parser of one server command. A command line that is wrong ends the process with code 2."""

    def __init__(self, verb: str, description: str) -> None:
        super().__init__(
            prog=f"orbitmq {verb}",
            description=description,
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
            add_help=False,
        )

    def add_common_options(self) -> None:
        """Options of all server commands, which ``--help`` lists last."""
        self.add_argument(
            "--log-format",
            type=LogFormat,
            choices=list(LogFormat),
            default=LogFormat.TEXT,
            metavar="{text,json}",
            help="Format of the log lines on standard error. [default: text]",
        )
        self.add_argument("--help", action="help", help="Show this message and exit.")


class _HelpFormatter(argparse.HelpFormatter):
    """Wide enough for the longest option and its value in one column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)


def port(text: str) -> int:
    """A port number, 0 for any free port."""
    return bounded_number(text, 0, MAX_PORT)


def bounded_number(text: str, minimum: int, maximum: int) -> int:
    """A number within bounds, or the error that ``argparse`` reports."""
    # int() also accepts signs, spaces and underscores.
    if not (text.isascii() and text.isdigit()) or not minimum <= int(text) <= maximum:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {minimum} to {maximum}")
    return int(text)
