"""A producer as a process of its own, so that it can be killed: it writes down each message that was acknowledged.

Run as ``python producer_process.py <name server> <topic> <prefix>``.
"""

from __future__ import annotations

import itertools
import os
import sys

from orbitmq import Message, Producer


def main() -> None:
    name_server, topic, prefix = sys.argv[1:]
    with Producer(name_server, group="killed") as producer:
        for number in itertools.count():
            body = f"{prefix}{number}".encode()
            producer.send(Message(topic, body))
            os.write(sys.stdout.fileno(), body + b"\n")


if __name__ == "__main__":
    main()
