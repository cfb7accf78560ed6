"""The pytest plugin, in runs of pytest of its own: fixtures, isolation, and no cost for those who do not use it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.client.cluster_harness import nothing_left

if TYPE_CHECKING:
    from collections.abc import Callable

pytest_plugins = ["pytester"]

PLUGIN = "orbitmq.testing.pytest_plugin"

INI = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"

SENDING = """
import asyncio
import struct

import pytest

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command


async def send(cluster, body, topic="orders"):
    host, port = cluster.address("broker-a").split(":")
    fields = {
        "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "0", "h": "0", "i": "", "j": "0",
    }
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(Command(RequestCode.SEND_MESSAGE_V2, 1, ext_fields=fields, body=body).encode())
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    await reader.readexactly(size)
    writer.close()
    await writer.wait_closed()


def bodies(cluster, topic="orders"):
    return [message.body for message in cluster.messages(topic)]

"""


@pytest.fixture
def runs(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    """Runs a test file in a pytest of its own, with the plugin as users have it, and looks for what is left."""
    # Twice is refused, and where the package is installed with its entry point it is there already.
    is_installed = bool(importlib.metadata.entry_points(group="pytest11", name="orbitmq"))
    loading = () if is_installed else ("-p", PLUGIN)

    def run(test: str, *options: str) -> pytest.RunResult:
        pytester.makeini(INI)
        pytester.makepyfile(SENDING + test)
        with nothing_left():
            return pytester.runpytest_inprocess(*loading, "--strict-markers", "-p", "no:cacheprovider", *options)

    return run


def test_each_test_has_a_cluster_of_its_own(runs: Callable[..., pytest.RunResult]) -> None:
    result = runs("""
addresses = set()

@pytest.mark.parametrize("number", range(3))
def test_alone(orbitmq, number):
    asyncio.run(send(orbitmq, b"%d" % number))
    assert bodies(orbitmq) == [b"%d" % number]
    addresses.add(orbitmq.name_server)

def test_that_they_were_three():
    assert len(addresses) == 3
""")
    result.assert_outcomes(passed=4)


def test_the_cluster_of_the_run_is_shared(runs: Callable[..., pytest.RunResult]) -> None:
    result = runs("""
def test_one(orbitmq_cluster):
    asyncio.run(send(orbitmq_cluster, b"one"))

def test_two(orbitmq_cluster, orbitmq):
    assert bodies(orbitmq_cluster) == [b"one"]
    assert bodies(orbitmq) == []
""")
    result.assert_outcomes(passed=2)


def test_a_mark_says_what_the_cluster_is_like(
    runs: Callable[..., pytest.RunResult], pytester: pytest.Pytester
) -> None:
    pytester.makeconftest("""
import pytest

@pytest.fixture(scope="session")
def orbitmq_options():
    return {"settings": {"flushDiskType": "SYNC_FLUSH", "messageDelayLevel": "3d"}}
""")
    result = runs("""
@pytest.mark.orbitmq(brokers=2, settings={"messageDelayLevel": "1s"})
def test_marked(orbitmq):
    assert orbitmq.names == ["name-server-a", "broker-a", "broker-b"]

def test_plain(orbitmq):
    assert orbitmq.names == ["name-server-a", "broker-a"]
    asyncio.run(send(orbitmq, b"safe"))
    orbitmq.kill()
    orbitmq.start("broker-a")
    assert bodies(orbitmq) == [b"safe"]
""")
    result.assert_outcomes(passed=2)


def test_a_failing_test_leaves_nothing_behind(runs: Callable[..., pytest.RunResult]) -> None:
    result = runs("""
def test_failing(orbitmq):
    orbitmq.wait_until_consumed("billing", timeout=0.05)

@pytest.mark.orbitmq(settings={"noSuch": "1"})
def test_not_even_starting(orbitmq):
    pass
""")
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*TimeoutError: the group 'billing' has not consumed everything in 0.05 s: *"])
    result.stdout.fnmatch_lines(["*ConfigError: noSuch=1: a broker has no such setting"])


def test_coroutines_use_it_too(runs: Callable[..., pytest.RunResult]) -> None:
    result = runs("""
async def test_in_a_loop(orbitmq):
    await send(orbitmq, b"x")
    assert bodies(orbitmq) == [b"x"]
    with pytest.raises(TimeoutError):
        await orbitmq.until_consumed("billing", timeout=0.05)
""")
    result.assert_outcomes(passed=1)


def test_it_needs_no_other_plugin(runs: Callable[..., pytest.RunResult]) -> None:
    result = runs(
        """
def test_plain(orbitmq):
    assert orbitmq.messages("orders") == []
""",
        *("-p", "no:asyncio", "-p", "no:timeout"),
    )
    result.assert_outcomes(passed=1)


def test_fixtures_are_listed_with_what_they_are(runs: Callable[..., pytest.RunResult]) -> None:
    result = runs("", "--fixtures")
    result.stdout.fnmatch_lines(["orbitmq_cluster*", "*A cluster that all tests of the run share.", "orbitmq*"])
    runs("", "--markers").stdout.fnmatch_lines(["@pytest.mark.orbitmq(name_servers=1, brokers=1, *"])


def test_a_run_that_does_not_use_it_imports_nothing_of_it() -> None:
    program = (
        f"import sys, pytest; before = set(sys.modules); import {PLUGIN};"
        "print(*sorted(name for name in set(sys.modules) - before if not name.startswith('orbitmq')));"
        "print(*sorted(name for name in sys.modules if name.startswith('orbitmq')))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    others, ours = said.splitlines()
    assert others == ""
    assert ours == f"orbitmq orbitmq.testing {PLUGIN}"


def test_producers_and_consumers_of_the_cluster_are_closed_with_it(runs: Callable[..., pytest.RunResult]) -> None:
    result = runs("""
from orbitmq import Message

def test_orders(orbitmq):
    seen = []
    consumer = orbitmq.consumer("billing")

    @consumer.on("orders")
    def handle(message):
        seen.append(message.body)

    consumer.start()
    orbitmq.producer(group="shop").send(Message("orders", b"42"))
    orbitmq.wait_until_consumed("billing")
    assert seen == [b"42"]
    assert bodies(orbitmq) == [b"42"]
    assert orbitmq.dead_letters("billing") == []
""")
    result.assert_outcomes(passed=1)
