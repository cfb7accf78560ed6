"""An idempotent consumer as a process of its own, which kills itself at a moment that somebody has chosen.

Run as ``python idempotent_process.py <database> <name server> <group> <file> <moment>``. Without a file, work is a
row in the database, in the transaction; otherwise it is a line of the file, done with a lease. A moment is
``working 5``, when the fifth message is worked on and not finished, ``done 5``, when it is done and the broker has
not heard of it, or ``never``.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from orbitmq import Consumer, ReceivedMessage
from orbitmq.idempotent import idempotent, idempotent_with_lease

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE = 0.5

work = sa.table("work", sa.column("done", sa.String))


class Moment:
    """Ends the process as a power cut would."""

    def __init__(self, text: str) -> None:
        self._kind, _, count = text.partition(" ")
        self._left = int(count or 0)

    def came(self, kind: str) -> None:
        if kind == self._kind:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


def handler(engine: sa.Engine, group: str, path: str, moment: Moment) -> Callable[[ReceivedMessage], Any]:
    if not path:

        @idempotent(engine, group=group)
        def in_transaction(message: ReceivedMessage, connection: sa.Connection) -> None:
            connection.execute(sa.insert(work).values(done=message.text()))
            moment.came("working")

        return in_transaction

    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @idempotent_with_lease(engine, group=group, lease=LEASE)
    def with_lease(message: ReceivedMessage) -> None:
        moment.came("working")
        os.write(file, message.body + b"\n")

    return with_lease


def main() -> None:
    url, name_server, group, path, text = sys.argv[1:]
    engine = sa.create_engine(url)
    moment = Moment(text)
    handle = handler(engine, group, path, moment)
    consumer = Consumer(
        name_server,
        group=group,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
        rebalance_interval=0.5,
        rebalance_min_interval=0.02,
        persist_consumer_offset_interval=0.05,
        consume_thread_max=2,
    )

    @consumer.on("orders")
    def watched(message: ReceivedMessage) -> Any:
        result = handle(message)
        moment.came("done")
        return result

    consumer.run()
    engine.dispose()


if __name__ == "__main__":
    main()
