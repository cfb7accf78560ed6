"""Our ``mqadmin`` in the place of Apache's, for the script that was recorded with Apache's."""

from __future__ import annotations

import contextlib
import io
import re
import threading

from conformance.servers.admin_script import TOPIC
from conformance.servers.processes import BROKER_NAME
from orbitmq import Consumer, Message, Producer
from orbitmq.cli.admin.mqadmin.command import run_command
from orbitmq.protocol.bodies import MessageQueue

DIFFERENT = [
    (re.compile(pattern, re.MULTILINE), text)
    for pattern, text in (
        # Our client is written in Python, and sends messages of another size.
        (r"\bPYTHON\b", "JAVA"),
        (r"(?<=offsetMsgId=BROKER)[0-9A-F]+", "*"),
        (r"^((?:commitLogMaxOffset|putMessageSizeTotal|msgGetTotalTodayNow) :) \d+$", r"\1 *"),
        (r"(?<=NUMBER\) )\d+(?= NUMBER NUMBER (?:true|false)$)", "*"),
        # Our tool reads without a consumer group, so there is none of tools afterwards.
        (r"^(?:TOOLS_CONSUMER .*|%RETRY%TOOLS_CONSUMER)\n?", ""),
        (r"(?<=\] OK, )\d+$", "*"),
        # Our client commits offsets of empty queues too, those of the retry topic among them.
        (r"^%RETRY%AdminGroup (?:AdminGroup )?broker-a .*\n?", ""),
        (r"^AdminTopic \w+ broker-a \d 0 0 0 -\n?", ""),
        # A warning of the consumer that runs in this process.
        (r"^pull: .*\n?", ""),
    )
]
"""Where the output differs because of the client, not of the tool."""


class OurTool:
    """Our ``mqadmin`` in this process, and clients for it to report about, in the place of Apache's."""

    def __init__(self, nameserver: str) -> None:
        self._nameserver = nameserver
        self._clients: dict[str, Consumer | Producer] = {}

    def run(self, *arguments: str) -> str:
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            run_command([arguments[0], "-n", self._nameserver, *arguments[1:]])
        return out.getvalue()

    def consume(self, group: str, topic: str, count: int) -> None:
        done = threading.Semaphore(0)
        consumer = Consumer(
            self._nameserver,
            group=group,
            instance_name="Consumer",
            consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        )
        consumer.on(topic)(lambda message: done.release())
        self._clients[group] = consumer
        consumer.start()
        for _ in range(count):
            assert done.acquire(timeout=60)

    def produce(self, group: str, topic: str, body: str) -> None:
        producer = Producer(self._nameserver, group=group, instance_name="Producer")
        self._clients[group] = producer
        producer.start()
        producer.send(Message(topic, body), queue=MessageQueue(topic, BROKER_NAME, 0))

    def stop(self, group: str) -> None:
        client = self._clients.pop(group)
        client.close()
        if isinstance(client, Consumer):
            # Ours follows the reset at once and consumes everything again, which Apache's was stopped before.
            self.run("resetOffsetByTime", "-g", group, "-t", TOPIC, "-s", "0")


def comparable(command: str, text: str) -> list[str]:
    """The lines of an output that do not depend on the client."""
    for pattern, replacement in DIFFERENT:
        text = pattern.sub(replacement, text)
    lines = text.rstrip("\n").splitlines()
    # Two of the names share a bucket of Java's hash table.
    return sorted(lines) if command == "getNamesrvConfig" else lines
