"""The SDK needs neither numpy, nor the libraries of servers and of the command line."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

import pytest

from support.paths import PROJECT

pytest_plugins = ["pytester"]

if TYPE_CHECKING:
    from orbitmq.testing import ThreadCluster

LIGHT = """
import sys
for name in ("numpy", "typer", "rich", "re2", "mmh3", "lark", "cryptography", "uvloop", "yaml"):
    sys.modules[name] = None
import orbitmq, orbitmq.aio
for name in orbitmq.__all__:
    getattr(orbitmq, name)
from orbitmq import (
    Consumer, LitePullConsumer, Message, Producer, SimpleConsumer, TransactionProducer, by_hash, trace_message
)
address, seen = sys.argv[1], []
with Producer(address) as producer:
    producer.send(Message("light", b"x" * 5000, tags="a", keys="k"))
    producer.send_batch([Message("light", str(number), tags="a") for number in range(5)])
consumer = Consumer(address, group="light", start_from="earliest")
consumer.subscribe("light", tags="a || b")
with consumer:
    for message in consumer:
        seen.append(message.body)
        if len(seen) == 6:
            break
with LitePullConsumer(address, group="light-pull", start_from="earliest") as puller:
    puller.subscribe("light", tags="a")
    next(iter(puller))
with SimpleConsumer(address, group="light-pop") as popper:
    popper.subscribe("light", tags="a")
    popper.ack(*popper.receive())
for kind in ("ZLIB", "LZ4", "ZSTD"):
    with Producer(address, group=kind, compress_type=kind) as producer:
        producer.send(Message(kind, b"x" * 5000, sharding_key="customer " * 100))
        producer.send(Message(kind, "x", keys="a"), selector=by_hash, arg="customer " * 100)
    with LitePullConsumer(address, group=kind, start_from="earliest") as puller:
        puller.subscribe(kind)
        bodies = {message.body for message in (next(iter(puller)), next(iter(puller)))}
        assert bodies == {b"x" * 5000, b"x"}, bodies
with TransactionProducer(address, group="paying", check=lambda message: None) as producer:
    with producer.transaction(Message("paid", "1")):
        pass
"""


def test_clients_work_without_the_libraries_of_servers(orbitmq: ThreadCluster) -> None:
    command = [sys.executable, "-c", LIGHT, orbitmq.name_server]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


MISSING = """
import sys
sys.modules[sys.argv.pop(1)] = None
from orbitmq.cli import main
main()
"""


@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [
        ("numpy", "serve", "server"),
        ("re2", "broker", "server"),
        ("lark", "nameserver", "server"),
        ("typer", "send", "cli"),
        ("typer", "--version", "cli"),
    ],
)
def test_a_command_without_its_extra_is_one_sentence(module: str, command: str, extra: str) -> None:
    """A server that imports numpy at its first use must not start without it."""
    run = [sys.executable, "-c", MISSING, module, command]
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert f"needs the package {module}" in done.stderr
    assert f"pip install 'orbitmq[{extra}]'" in done.stderr


def test_the_fixture_without_a_server_is_one_sentence(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys
        sys.modules["numpy"] = None
        def test_it(orbitmq):
            pass
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*needs the package numpy*pip install 'orbitmq[[]server[]]'*"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert "lazy_import.py" not in result.stdout.str()


def test_the_sdk_depends_on_little() -> None:
    """An import at the top of a module of the SDK needs a dependency, which has to be worth its size."""
    metadata = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))
    names = [re.split(r"[>=<; ]", line)[0] for line in metadata["project"]["dependencies"]]
    assert names == ["backports.zstd", "isal", "lz4", "orjson"]


def test_importing_the_producer_loads_no_heavy_library() -> None:
    code = (
        "import sys; from orbitmq import Producer; "
        "print([n for n in ('numpy.linalg', 'typer', 'rich', 're2', 'lark', 'cryptography', "
        "'orbitmq.remoting.server', 'orbitmq.protocol.bodies.replication') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\n"
