"""Command lines of the server commands: parsed without Typer, documented by ``--help``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq.cli.server import broker, controller, nameserver, proxy, serve
from orbitmq.cli.server.listen_address import is_loopback, reachable_from
from orbitmq.cli.server.log_setup import LogFormat
from support.cli.command import run

if TYPE_CHECKING:
    from orbitmq.cli.server.arguments import ServerParser

PARSERS = {
    "broker": broker.parser,
    "controller": controller.parser,
    "nameserver": nameserver.parser,
    "proxy": proxy.parser,
    "serve": serve.parser,
}


def parsed(parser: ServerParser, *words: str) -> dict[str, object]:
    """The options that a command line sets to another value than their default."""
    given, defaults = vars(parser.parse_args(words)), vars(parser.parse_args([]))
    return {name: value for name, value in given.items() if value != defaults[name]}


def test_options_are_parsed_to_their_types() -> None:
    assert parsed(
        serve.parser(), "--data", "d", "--host", "::1", "--nameserver-port", "0", "--broker-port=65535",
        "-c", "f.conf", "--brokers", "64", "--log-format", "json",
    ) == {
        "data": Path("d"), "host": "::1", "nameserver_port": 0, "broker_port": 65535,
        "conf": Path("f.conf"), "brokers": 64, "log_format": LogFormat.JSON,
    }  # fmt: skip
    assert parsed(broker.parser(), "-n", "a:1;b:2", "--port", "1", "--name", "b", "-p", "-m", "--until-eof") == {
        "nameserver": "a:1;b:2", "port": 1, "name": "b", "print_config": True, "print_important": True,
        "until_eof": True,
    }  # fmt: skip
    assert parsed(nameserver.parser(), "--conf", "f", "--host", "h", "--port", "9", "--print-config") == {
        "conf": Path("f"), "host": "h", "port": 9, "print_config": True,
    }  # fmt: skip


def test_the_last_value_of_an_option_is_used() -> None:
    assert parsed(nameserver.parser(), "--port", "1", "--port", "2") == {"port": 2}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("extra",), "unrecognized arguments: extra"),
        (("--no-such",), "unrecognized arguments: --no-such"),
        (("--hos", "h"), "unrecognized arguments: --hos h"),
        (("--host",), "argument --host: expected one argument"),
        (("--broker-port", "65536"), "'65536' is not a number from 0 to 65535"),
        (("--broker-port", "-1"), "argument --broker-port"),
        (("--broker-port", "one"), "'one' is not a number from 0 to 65535"),
        (("--broker-port", "1_0"), "'1_0' is not a number from 0 to 65535"),
        (("--broker-port", "+5"), "'+5' is not a number from 0 to 65535"),
        (("--broker-port", "٣"), "is not a number from 0 to 65535"),
        (("--broker-port", ""), "'' is not a number from 0 to 65535"),
        (("--brokers", "0"), "'0' is not a number from 1 to 64"),
        (("--brokers", "65"), "'65' is not a number from 1 to 64"),
        (("--log-format", "JSON"), "argument --log-format: invalid"),
    ],
)
def test_a_wrong_command_line_ends_with_code_2_and_the_reason(words: tuple[str, ...], reason: str) -> None:
    ended = run("serve", *words)
    assert (ended.code, ended.out) == (2, "")
    assert reason in ended.err
    assert "usage: orbitmq serve" in ended.err


@pytest.mark.parametrize("verb", PARSERS)
def test_help_describes_every_option_and_its_default(verb: str) -> None:
    printed = run(verb, "--help")
    assert (printed.code, printed.err) == (0, "")
    assert f"usage: orbitmq {verb}" in printed.out
    text = " ".join(printed.out.split())
    for action in PARSERS[verb]()._actions:
        if action.dest == "until_eof":
            assert action.option_strings[0] not in text
            continue
        assert action.help is not None
        assert action.help in text
        assert all(option in text for option in action.option_strings)
        assert action.nargs == 0 or "[default: " in action.help or action.dest == "conf"


def test_the_list_of_commands_has_the_servers() -> None:
    text = " ".join(run("--help").out.split())
    for verb, parser in PARSERS.items():
        assert f"{verb} " in text
        assert str(parser().description)[:40] in text


@pytest.mark.parametrize(
    ("address", "clients"),
    [
        ("127.0.0.1", "this machine only"),
        ("127.8.0.1", "this machine only"),
        ("localhost", "this machine only"),
        ("::1", "this machine only"),
        ("0.0.0.0", "every machine that can connect to this one, on all network interfaces"),
        ("::", "every machine that can connect to this one, on all network interfaces"),
        ("[::]", "every machine that can connect to this one, on all network interfaces"),
        ("192.0.2.7", "every machine that can connect to 192.0.2.7"),
        ("broker.example", "every machine that can connect to broker.example"),
    ],
)
def test_the_start_message_names_the_clients_that_can_connect(address: str, clients: str) -> None:
    assert reachable_from(address).startswith(clients)
    assert is_loopback(address) == (clients == "this machine only")
