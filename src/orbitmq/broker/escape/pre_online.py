"""Pre-online of a master (RocketMQ: BrokerPreOnlineService): takes over the progress of a slave that acted for it.

Before it registers, the master announces itself to the slave, which ends to act, and fetches how far consumers,
delay levels and the timer have come there. Without that it would deliver again what the slave has delivered.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.slave_sync.master_client import MasterClient, MasterRefusedError
from orbitmq.broker.time_slices import in_slices
from orbitmq.protocol.bodies import Body, GetBrokerMemberGroupResponseBody, PopCheckPoint
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import TRANSACTION_GROUP, TRANSACTION_HALF_TOPIC
from orbitmq.remoting import RemotingClient, RemotingError
from orbitmq.store import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.pop.checkpoint import CheckpointWriter
    from orbitmq.broker.runtime import BrokerRuntime, DeferredServices, Metadata
    from orbitmq.remoting import ClientTls
    from orbitmq.remoting.endpoint import RequestSigner

log = logging.getLogger("orbitmq.broker")

MASTER_ID = 0
ASK_SECONDS = 5.0
TOTAL_SECONDS = 15.0
"""The start of a master waits at most so long."""

HANDS_OVER = "orbitmqPopCheckPoints"
"""A field of EXCHANGE_BROKER_HA_INFO: the master takes UndecidedPops. Not RocketMQ's."""


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class UndecidedPops(Body):
    """Check points whose acknowledgements come due at the master. Not RocketMQ's."""

    queues: tuple[int, ...] = ()
    """Their revive queues."""
    points: tuple[PopCheckPoint, ...] = ()

    @classmethod
    def of(cls, undecided: Iterable[tuple[int, PopCheckPoint]]) -> UndecidedPops:
        some = list(undecided)
        return cls(tuple(queue_id for queue_id, _ in some), tuple(point for _, point in some))


class PreOnline:
    """The exchange of a master with the slave that may act for it."""

    def __init__(
        self, runtime: BrokerRuntime, metadata: Metadata, deferred: DeferredServices, ha_address: str
    ) -> None:
        self._config = runtime.config
        self._role = runtime.role
        self._store = runtime.store
        self._offsets = metadata.offsets
        self._deferred = deferred
        self._ha_address = ha_address
        self.checkpoints: CheckpointWriter | None = None
        """Where check points go that the slave could not decide about; None without POP."""
        self.signer: RequestSigner | None = None
        self.tls: ClientTls | None = None

    async def run(self) -> None:
        """Take over the progress of the acting slave, if there is one. A failure is logged and ends it."""
        config = self._config
        if self._role.is_slave or not config.enable_slave_acting_master or config.skip_pre_online:
            return
        client = RemotingClient(tls=self.tls, signer=self.signer)
        try:
            async with asyncio.timeout(TOTAL_SECONDS):
                address = await self._acting_slave(client)
                if address is not None:
                    await self._take_over(client, address)
                    log.info("pre-online: took over the progress of slave %s", address)
        except (TimeoutError, MasterRefusedError, RemotingError, ProtocolError) as error:
            log.warning(
                "pre-online: the progress of a slave was not taken over, messages may come again: %s",
                str(error) or "timed out",
            )
        finally:
            await client.close()

    async def _acting_slave(self, client: RemotingClient) -> str | None:
        config = self._config
        fields = {"clusterName": config.broker_cluster_name, "brokerName": config.broker_name}
        for name_server in config.name_servers:
            try:
                command = Command(RequestCode.GET_BROKER_MEMBER_GROUP, ext_fields=dict(fields))
                answer = await client.call(name_server, command, ASK_SECONDS)
                if answer.code != ResponseCode.SUCCESS or answer.body is None:
                    continue
                group = GetBrokerMemberGroupResponseBody.decode(answer.body).broker_member_group
            except (RemotingError, ProtocolError) as error:
                log.info("pre-online: no answer from name server %s: %s", name_server, error)
                continue
            members = {} if group is None else group.broker_addrs
            slaves = sorted(broker_id for broker_id in members if broker_id != MASTER_ID)
            return members[slaves[0]] if slaves else None
        return None

    async def _take_over(self, client: RemotingClient, address: str) -> None:
        own = self._config.broker_address
        fields = {"masterHaAddress": self._ha_address, "masterFlushOffset": "0", "masterAddress": own}
        if self.checkpoints is not None:
            fields[HANDS_OVER] = "true"
        command = Command(RequestCode.EXCHANGE_BROKER_HA_INFO, ext_fields=fields)
        answer = await client.call(address, command, ASK_SECONDS)
        if answer.code != ResponseCode.SUCCESS:
            raise MasterRefusedError(f"slave {address} answered with code {answer.code}: {answer.remark}")
        if answer.body and self.checkpoints is not None:
            self._take_pops(UndecidedPops.decode(answer.body), self.checkpoints)
        slave = MasterClient(address, client)
        table, _ = await slave.consumer_offsets()
        async for key, queues in in_slices(table.offset_table.items()):
            topic, _, group = key.partition("@")
            for queue_id, offset in queues.items():
                # Of messages that this log lost, it will number others again.
                is_known = offset <= self._store.max_offset(topic, queue_id)
                is_ahead = is_known and offset > self._offsets.query(group, topic, queue_id)
                if is_ahead and group != TRANSACTION_GROUP:
                    self._offsets.commit(group, topic, queue_id, offset)
                elif is_ahead and topic == TRANSACTION_HALF_TOPIC:
                    self._deferred.transactions.take_over(queue_id, offset)
        delays = await slave.delay_offsets()
        schedule, timer = self._deferred.schedule, self._deferred.timer
        merged = {
            level: max(offset, schedule.offsets.get(level, 0)) for level, offset in delays.offset_table.items()
        }
        await schedule.follow(dataclasses.replace(delays, offset_table={**schedule.offsets, **merged}))
        if timer is not None:
            checkpoint = await slave.timer_checkpoint()
            if checkpoint.read_time_ms > timer.read_time_ms:
                await timer.take_over(checkpoint)

    @staticmethod
    def _take_pops(undecided: UndecidedPops, checkpoints: CheckpointWriter) -> None:
        """Write check points that the slave could not decide about once more."""
        for queue_id, point in zip(undecided.queues, undecided.points, strict=False):
            try:
                checkpoints.check_point(point, queue_id if 0 <= queue_id < checkpoints.queue_count else 0)
            except StoreError as error:
                log.error("pre-online: a check point of %s was not written: %s", point.topic, error)
