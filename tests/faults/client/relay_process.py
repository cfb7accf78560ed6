"""A relay as a process of its own, so that it can be killed, also by itself at a moment that somebody has chosen.

Run as ``python relay_process.py <database> <name server> <moment>``. A moment is ``send 5``, when it is about to
send its fifth message, ``sent 5``, when the broker has that one and nobody has written it down, or ``never``. It
says ``ready`` when it begins.
"""

from __future__ import annotations

import os
import signal
import sys

import sqlalchemy as sa

from orbitmq import Producer
from orbitmq.outbox import Relay


class Moment:
    """Ends the process as a power cut would."""

    def __init__(self, text: str) -> None:
        self._kind, _, count = text.partition(" ")
        self._left = int(count or 0)

    def before_send(self, _: object) -> None:
        self._came("send")

    def after_send(self, _: object) -> None:
        self._came("sent")

    def _came(self, kind: str) -> None:
        if kind == self._kind:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    url, name_server, moment = sys.argv[1:]
    engine = sa.create_engine(url)
    with Producer(name_server, group="outbox", hooks=[Moment(moment)]) as producer:
        relay = Relay(
            engine, producer, batch_size=20, poll_interval=0.02, lease=0.5, first_retry=0.05, longest_retry=0.2
        )
        os.write(sys.stdout.fileno(), b"ready\n")
        relay.run()
    engine.dispose()


if __name__ == "__main__":
    main()
