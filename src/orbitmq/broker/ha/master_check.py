"""MasterCheck: compares the last record of a slave's log with the master's before anything is copied.

The HA connection has no handshake: a master that lost the end of its log, or another one under the same address,
would send bytes that do not continue the slave's. Every RocketMQ broker can be asked for the record at an offset.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingClient, RemotingError
from orbitmq.store.replication.slave_log import ReplicationError

if TYPE_CHECKING:
    from orbitmq.remoting import ClientTls
    from orbitmq.remoting.endpoint import RequestSigner
    from orbitmq.store import MessageStore

log = logging.getLogger("orbitmq.broker")

ANSWER_SECONDS = 3.0

NOT_FOUND = "can not find message"
"""The beginning of RocketMQ's remark; other refusals, such as a missing permission, say nothing about the log."""


class MasterCheck:
    """Asks a master for a record that the slave has."""

    def __init__(
        self, store: MessageStore, tls: ClientTls | None = None, signer: RequestSigner | None = None
    ) -> None:
        self._store = store
        self._signer = signer
        self._tls = tls
        self._client: RemotingClient | None = None

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def compare(self, master: str) -> None:
        """Raises ReplicationError if the master has another record, or none, where this log has its last one.

        A master that gives no answer is not judged: it may serve its HA port only.
        """
        store = self._store
        store.catch_up()
        offset = store.dispatcher.last_offset
        mine = store.record(offset) if store.log.end else None
        if mine is None:
            return
        request = Command(RequestCode.VIEW_MESSAGE_BY_ID, ext_fields={"offset": str(offset)})
        if self._client is None:
            self._client = RemotingClient(tls=self._tls, signer=self._signer)
        try:
            connection = await self._client.connection(master)
            answer = await connection.call(request, ANSWER_SECONDS)
        except RemotingError as error:
            log.info("ha: master %s cannot be compared with this log: %s", master, error)
            return
        if answer.code == ResponseCode.SUCCESS and bytes(answer.body or b"") == bytes(mine):
            return
        if answer.code != ResponseCode.SUCCESS and NOT_FOUND not in (answer.remark or ""):
            log.info("ha: master %s cannot be compared with this log: %d, %s", master, answer.code, answer.remark)
            return
        found = "has another record there" if answer.code == ResponseCode.SUCCESS else "has no record there"
        raise ReplicationError(
            f"the last record of this log is at {offset}, and master {master} {found}: it lost the end of its "
            "log, removed that part, or is not the master of this slave. Nothing is copied and nothing cut off: "
            "promote this slave, or remove its store to copy everything again"
        )
