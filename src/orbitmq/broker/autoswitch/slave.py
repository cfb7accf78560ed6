"""AutoSwitchSlave (RocketMQ: AutoSwitchHAClient): copies the log of the master that the controller named.

The handshake shows where the logs begin to differ. If that is before the end of this one, the broker is opened
again with a shorter log; everything derived from what is cut off goes with it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.broker.ha.slave import MasterConnection, ReplicationSlave
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingClient, RemotingError
from orbitmq.remoting.processor import run_in_background
from orbitmq.store.replication.autoswitch_frames import Ack, MasterHandshake, MasterStream, SlaveHandshake, Transfer
from orbitmq.store.replication.epochs import common_end
from orbitmq.store.replication.slave_log import ReplicationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.autoswitch.term import Replica
    from orbitmq.broker.events.journal import EventJournal
    from orbitmq.broker.ha.role import ReplicaRole
    from orbitmq.remoting import ClientTls
    from orbitmq.remoting.endpoint import RequestSigner
    from orbitmq.store.background.service import StoreService
    from orbitmq.store.replication.epochs import Epoch, Epochs

log = logging.getLogger("orbitmq.broker")

HANDSHAKE_SECONDS = 5.0

ASK_SECONDS = 3.0

SEARCHES_PER_REGISTRATION = 15


class AutoSwitchSlave(ReplicationSlave):
    """Keeps the HA connection to the master of one term."""

    search_seconds = 0.2
    """The master is elected, but may still be opening its store."""

    def __init__(
        self,
        role: ReplicaRole,
        service: StoreService,
        journal: EventJournal,
        search: Callable[[], None],
        replica: Replica,
        tls: ClientTls | None = None,
        signer: RequestSigner | None = None,
    ) -> None:
        super().__init__(role, service, journal, search)
        self._search_name_servers = search
        self._search = self._look_for_master
        self.replica = replica
        self._is_truncating = False
        self._searches = 0
        self._client: RemotingClient | None = None
        self._tls = tls
        self._signer = signer

    async def stop(self) -> None:
        await super().stop()
        if self._client is not None:
            await self._client.close()

    async def _run(self) -> None:
        await self._ask_master()
        await super()._run()

    def _look_for_master(self) -> None:
        """Ask the master itself, and from time to time name servers, for the address of its HA listener."""
        if self._searches % SEARCHES_PER_REGISTRATION == 0:
            self._search_name_servers()
        self._searches += 1
        run_in_background(self._ask_master())

    async def _ask_master(self) -> None:
        if self._client is None:
            self._client = RemotingClient(tls=self._tls, signer=self._signer)
        address = self.replica.term.master_address
        try:
            answer = await self._client.call(address, Command(RequestCode.EXCHANGE_BROKER_HA_INFO), ASK_SECONDS)
        except RemotingError as error:
            log.info("ha: master %s does not tell its HA address: %s", address, error)
            return
        self._role.found_master(address, answer.ext_fields.get("masterHaAddress", ""))

    def _connect(self, address: str) -> MasterConnection:
        return AutoSwitchMasterConnection(self, address)

    def handshake(self) -> bytes:
        config = self.store.config
        return SlaveHandshake(config.sync_from_last_file, config.async_learner, self.replica.term.own_id).encode()

    def compare(self, master: MasterHandshake) -> None:
        """Compare the epochs of both logs. Raises ReplicationError unless this log continues the master's."""
        end = self.log.end
        # Named by the master in a frame that did not come to its end.
        self.replica.epochs.cut(end + 1)
        mine = self.replica.epochs.epochs
        common = common_end(mine, end, master.epochs, master.end)
        if common is None:
            raise ReplicationError(
                f"this log and the master's have no epoch in common ({_text(mine)}; {_text(master.epochs)}): they "
                "never were of one group. Nothing is copied and nothing cut off: remove the store of this slave"
            )
        if common == 0 and end > self.store.config.quarantine_max_bytes:
            raise ReplicationError(
                f"this log and the master's differ from the first byte on, and its {end} bytes are too many to be "
                "kept (quarantineMaxBytes): remove the store of this slave to have everything copied"
            )
        if common < end:
            if not self._is_truncating:
                self._is_truncating = True
                self.replica.on_truncation(common)
            raise ReplicationError(f"the end of this log, from {common} to {end}, is not in the master's: cut off")

    def accept(self, part: Transfer) -> None:
        """Append a part of the log; its epoch is on disk before."""
        if part.data:
            last = self.replica.epochs.epochs.last
            if last is None or part.epoch != last:
                self._follow(part.epoch, part.offset)
        self.log.accept(part.offset, part.data)
        confirmed = min(part.confirmed, self.log.end)
        self.store.checkpoint.confirm_phy_offset = max(self.store.checkpoint.confirm_phy_offset, confirmed)
        self.store.readable_to = max(self.store.readable_to or 0, confirmed)

    def _follow(self, epoch: Epoch, offset: int) -> None:
        epochs = self.replica.epochs
        last = epochs.epochs.last
        if last is None or (epoch.epoch > last.epoch and epoch.start >= last.start):
            epochs.append(*epoch)
            return
        known = epochs.epochs.at(offset)
        if known is None or known[0] != epoch:
            after = _text(epochs.epochs)
            raise ReplicationError(f"the master sends epoch {epoch.epoch} from {epoch.start}, after {after}")


def _text(epochs: Epochs) -> str:
    """The newest epochs, for a log line."""
    newest = list(epochs)[-3:]
    return ", ".join(f"{one.epoch} from {one.start}" for one in newest) or "none"


class AutoSwitchMasterConnection(MasterConnection):
    """The slave's end of an HA connection with a handshake."""

    def __init__(self, slave: AutoSwitchSlave, address: str) -> None:
        super().__init__(slave, address)
        self._autoswitch = slave
        self._frames = MasterStream()
        self._is_greeted = False

    def _open(self) -> None:
        """Begin with the handshake: the end of the log is reported after the answer."""
        if self._transport is not None:
            self._transport.write(self._autoswitch.handshake())
            self.last_write = self._loop.time()

    def _receive(self, data: bytes) -> None:
        for frame in self._frames.feed(data):
            if isinstance(frame, MasterHandshake):
                if self._is_greeted:
                    continue
                self._autoswitch.compare(frame)
                self._is_greeted = True
                self._autoswitch.begun(self)
                self._send(self._autoswitch.log.end)
                continue
            if not self._is_greeted:
                raise ReplicationError("the master sent a part of the log before its handshake")
            self.frames += 1
            self.flow.sent(len(frame.data), self.last_read)
            self._autoswitch.accept(frame)

    def _report(self) -> None:
        if self._is_greeted:
            super()._report()

    def _encode(self, end: int) -> bytes:
        return Ack(end).encode()

    def _heartbeat(self) -> None:
        if self._is_greeted:
            super()._heartbeat()
        elif self._loop.time() - self.last_write >= HANDSHAKE_SECONDS:
            self._open()
