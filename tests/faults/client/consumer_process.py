"""A consumer as a process of its own, so that it can be killed: it writes down what it has consumed.

Run as ``python consumer_process.py <name server> <group> <topic>``. Each line of its output is a message's body.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from orbitmq import Consumer

if TYPE_CHECKING:
    from orbitmq import ReceivedMessage


def main() -> None:
    name_server, group, topic = sys.argv[1:]
    consumer = Consumer(
        name_server,
        group=group,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        rebalance_interval=0.5,
        rebalance_min_interval=0.02,
        persist_consumer_offset_interval=0.05,
        # So that it is killed with some messages pulled that no handler has had yet.
        consume_thread_max=2,
    )

    @consumer.on(topic)
    def note(message: ReceivedMessage) -> None:
        os.write(sys.stdout.fileno(), message.body + b"\n")

    consumer.run()


if __name__ == "__main__":
    main()
