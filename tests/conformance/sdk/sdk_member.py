"""A member of a consumer group as a process of its own, so that it can be killed. It writes down what it does.

Arguments: the name server, the group, the topic, and the file that gets a line for each message and for each change
of its queues. SIGTERM makes it leave the group.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from orbitmq import Consumer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq import MessageQueue, ReceivedMessage

QUEUES = b"queues"
"""Begins a line that tells which queues the member has."""


def main() -> None:
    name_server, group, topic, path = sys.argv[1:]
    journal = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell_queues(of: str, everything: Sequence[MessageQueue], mine: Sequence[MessageQueue]) -> None:
        if of == topic:
            ids = [b"%d" % queue.queue_id for queue in mine]
            os.write(journal, b" ".join([QUEUES, *ids]) + b"\n")

    consumer = Consumer(
        name_server,
        group=group,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        rebalance_interval=2.0,
        rebalance_min_interval=0.2,
        message_queue_listener=tell_queues,
    )

    @consumer.on(topic)
    def note(message: ReceivedMessage) -> None:
        os.write(journal, message.body + b"\n")

    consumer.run()


if __name__ == "__main__":
    main()
