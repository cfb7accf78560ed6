"""Command-line parser of the server commands.

Built on ``argparse`` and not on Typer: Typer and what it is built on take as long to import as a server does. Each
server command has one parser, which ``orbitmq --help`` and the other commands reach through ``cli/root.py``.
"""

import argparse
import difflib
import functools
from collections.abc import Collection, Iterable, Sequence

from orbitmq.cli.server.log_setup import LogFormat
from orbitmq.platform.settings import ConfigError
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

    def add_setting_option(self) -> None:
        """``--set KEY=VALUE``, any number of times."""
        self.add_argument(
            "--set",
            type=setting,
            action="append",
            default=[],
            metavar="KEY=VALUE",
            help="Setting by its key in the settings file, such as fileReservedTime=24. May be repeated. Overrides "
            "the file. [default: none]",
        )

    def add_tls_options(self) -> None:
        """Certificates, as shorter forms of ``--set tls.server.certPath=FILE`` and others."""
        for option, key, metavar, help_text in _TLS_OPTIONS:
            self.add_argument(
                option,
                dest="set",
                type=functools.partial(_tls_setting, key),
                action="append",
                default=argparse.SUPPRESS,
                metavar=metavar,
                help=help_text,
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


_TLS_OPTIONS = (
    ("--tls-cert", "tls.server.certPath", "FILE", "Certificate of the server, in PEM. [default: none, clear text]"),
    ("--tls-key", "tls.server.keyPath", "FILE", "Private key of the certificate, in PEM. [default: none]"),
    ("--tls-mode", "tls.server.mode", "MODE", "disabled, permissive or enforcing. [default: permissive]"),
    (
        "--tls-client-ca",
        "tls.server.trustCertPath",
        "FILE",
        "Authorities of client certificates, with --set tls.server.need.client.auth=require. [default: none]",
    ),
)


def _tls_setting(key: str, text: str) -> tuple[str, str]:
    return key, text


class _HelpFormatter(argparse.HelpFormatter):
    """Wide enough for the longest option and its value in one column."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)


def setting(text: str) -> tuple[str, str]:
    """Key and value of ``KEY=VALUE``."""
    key, equals, value = text.partition("=")
    if not key.strip() or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key.strip(), value.strip()


def check_known(sets: Sequence[tuple[str, str]], unknown: Collection[str], known: Iterable[str]) -> None:
    """Raise ConfigError for a key of ``--set`` that is among the unknown ones."""
    for key, value in sets:
        if key in unknown:
            near = difflib.get_close_matches(key, set(known) - {key}, 1)
            hint = f": did you mean {near[0]}?" if near else "; `orbitmq broker --print-config` lists all"
            raise ConfigError(f"--set {key}={value}: there is no such setting{hint}")


def port(text: str) -> int:
    """A port number, 0 for any free port."""
    return bounded_number(text, 0, MAX_PORT)


def bounded_number(text: str, minimum: int, maximum: int) -> int:
    """A number within bounds, or the error that ``argparse`` reports."""
    # int() also accepts signs, spaces and underscores.
    if not (text.isascii() and text.isdigit()) or not minimum <= int(text) <= maximum:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from {minimum} to {maximum}")
    return int(text)
