"""The SDK needs neither numpy, nor the libraries of servers and of the command line."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.testing import ThreadCluster

LIGHT = """
import sys
for name in ("numpy", "typer", "rich", "re2", "mmh3", "lark", "cryptography", "prometheus_client"):
    sys.modules[name] = None
import orbitmq, orbitmq.aio
for name in orbitmq.__all__:
    getattr(orbitmq, name)
from orbitmq import Consumer, LitePullConsumer, Message, Producer, SimpleConsumer
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
"""


def test_clients_work_without_the_libraries_of_servers(orbitmq: ThreadCluster) -> None:
    command = [sys.executable, "-c", LIGHT, orbitmq.name_server]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_importing_the_producer_loads_no_heavy_library() -> None:
    code = (
        "import sys; from orbitmq import Producer; "
        "print([n for n in ('numpy.linalg', 'typer', 'rich', 're2', 'lark', 'cryptography') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120)
    assert done.stdout == "[]\n"
