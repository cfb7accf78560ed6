"""Log injection and log floods: a name with line breaks forges no line, and a flood of warnings is a few lines."""

from __future__ import annotations

import io
import logging
import socket
from typing import TYPE_CHECKING

import pytest

from orbitmq.cli.server.log_setup import LogFormat, set_up_logs
from orbitmq.platform.log_lines import MAX_COUNTED, RateLimit, SafeFormatter, escaped
from support.broker.flood_harness import Canary, flooded_broker
from support.remoting_harness import GARBAGE, HOST

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORGED = "orders\n2026-01-01 00:00:00.000 ERROR   broker: all messages are lost\r\x1b[2J\u2028\u202e\x85"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Logged:
    """A logger of its own, and its output."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.output = io.StringIO()
        handler = logging.StreamHandler(self.output)
        handler.setFormatter(SafeFormatter("%(levelname)s %(message)s"))
        self.limit = RateLimit(handler, site_lines=10, peer_lines=3, clock=self.clock)
        handler.addFilter(self.limit)
        self.log = logging.Logger("orbitmq.test")
        self.log.addHandler(handler)

    @property
    def lines(self) -> list[str]:
        return self.output.getvalue().splitlines()


@pytest.fixture
def logged() -> Logged:
    return Logged()


@pytest.fixture
def restored_logs() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("restored_logs")
@pytest.mark.parametrize("form", list(LogFormat))
def test_a_name_with_line_breaks_forges_no_log_line(form: LogFormat, capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logs(form)
    logging.getLogger("orbitmq.broker").warning("topic %s was refused", FORGED)
    try:
        raise ValueError(FORGED)
    except ValueError:
        logging.getLogger("orbitmq.broker").exception("request failed")
    lines = capsys.readouterr().err.splitlines()

    assert not any(line.startswith("2026-01-01 00:00:00.000") for line in lines)
    assert not any(character in line for line in lines for character in "\x1b\u2028\u202e\x85")
    assert len([line for line in lines if not line.startswith(" ")]) == 2


def test_escapes_show_the_original_characters() -> None:
    assert escaped("a\nb\x00\u2028é中😀") == "a\\nb\\x00\\u2028é中😀"
    assert escaped("\ud800") == "\\ud800"
    assert escaped("x" * 5000).endswith("x... (904 characters more)")


def test_a_call_site_over_its_rate_limit_is_summed_up(logged: Logged) -> None:
    for number in range(1000):
        logged.log.warning("event %d", number)
    shown = len(logged.lines)
    logged.clock.now = 60.0
    logged.log.warning("later")

    assert shown == 10
    assert logged.lines[10:] == ["WARNING suppressed 990 similar lines; the last was: event 999", "WARNING later"]


def test_one_peer_does_not_use_up_the_lines_of_others(logged: Logged) -> None:
    for number in range(100):
        for host in ("192.0.2.1", "[2001:db8:0:0:0:0:0:1]"):
            logged.log.warning("%s is closed: %s", f"{host}:{1000 + number}", "garbage")
    logged.log.warning("%s is closed: %s", "192.0.2.7:5", "garbage")
    logged.limit.flush()

    assert len([line for line in logged.lines if line.startswith("WARNING 192.0.2.1")]) == 3
    assert [line.partition(";")[0] for line in logged.lines if "suppressed" in line] == [
        "WARNING suppressed 97 similar lines about 192.0.2.1",
        "WARNING suppressed 97 similar lines about 2001:db8:0:0:0:0:0:1",
    ]


def test_counts_are_bounded(logged: Logged) -> None:
    for number in range(3 * MAX_COUNTED):
        logged.log.warning("%s", f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}:1")

    assert len(logged.limit._counts) <= MAX_COUNTED


async def test_a_flood_of_garbage_leaves_few_lines(tmp_path: Path) -> None:
    async with flooded_broker(tmp_path) as (server, port):
        with Canary(port) as canary:
            for _ in range(500):
                with socket.create_connection((HOST, port)) as peer:
                    peer.sendall(GARBAGE)
            assert canary.send().code == 0
        assert await server.stopped() == 0

    lines = server.errors.splitlines()
    assert len(lines) < 100
    assert any("suppressed" in line and "similar" in line for line in lines)
