"""HA status: GET_BROKER_HA_STATUS, and the lines about replicas in the runtime info."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.broker.ha.slave_connection import UNKNOWN
from orbitmq.protocol.bodies import HARuntimeInfo
from orbitmq.protocol.bodies.replication import HAClientRuntimeInfo, HAConnectionRuntimeInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processor import handler_of

if TYPE_CHECKING:
    from orbitmq.broker.ha.master import ReplicationMaster
    from orbitmq.broker.ha.role import ReplicaRole
    from orbitmq.broker.ha.slave import ReplicationSlave
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler


class HaStatusRequests:
    """GET_BROKER_HA_STATUS. ``slave`` is None on a master."""

    def __init__(self, role: ReplicaRole, master: ReplicationMaster, slave: ReplicationSlave | None) -> None:
        self._role = role
        self._master = master
        self._slave = slave
        self._store = master.store

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.GET_BROKER_HA_STATUS: handler_of(self.answer)}

    def answer(self, request: Command, _: Connection) -> Command:
        return request.response(ResponseCode.SUCCESS, body=self.info().encode())

    def info(self) -> HARuntimeInfo:
        if self._slave is not None:
            return HARuntimeInfo(ha_client_runtime_info=self._of_master(self._slave))
        end = self._store.log.committed
        now = asyncio.get_running_loop().time()
        slaves = [
            HAConnectionRuntimeInfo(
                addr=slave.address,
                slave_ack_offset=slave.acked,
                diff=end - slave.acked,
                in_sync=self._master.acks.is_in_sync(slave.acked, end),
                transferred_byte_in_second=slave.flow.per_second(now),
                transfer_from_where=slave.next,
            )
            for slave in sorted(self._master.slaves, key=lambda slave: slave.address)
            if slave.next != UNKNOWN
        ]
        return HARuntimeInfo(
            master=True,
            master_commit_log_max_offset=self._store.log.end,
            in_sync_slave_nums=sum(slave.in_sync for slave in slaves),
            ha_connection_info=slaves,
        )

    def _of_master(self, slave: ReplicationSlave) -> HAClientRuntimeInfo:
        connection = slave.connection
        now = self._store.clock.now_ms()
        loop_now = asyncio.get_running_loop().time()
        return HAClientRuntimeInfo(
            master_addr=self._role.master_ha_address or None,
            transferred_byte_in_second=0 if connection is None else connection.flow.per_second(loop_now),
            max_offset=self._store.log.end,
            last_read_timestamp=0 if connection is None else now - int((loop_now - connection.last_read) * 1000),
            last_write_timestamp=0 if connection is None else now - int((loop_now - connection.last_write) * 1000),
            master_flush_offset=0,
        )

    def figures(self) -> dict[str, str]:
        """Lines of the runtime info, which RocketMQ does not have; none on a master without slaves."""
        if self._slave is not None:
            connection = self._slave.connection
            return {
                "haMasterAddress": self._role.master_ha_address or "unknown",
                "haMasterConnected": "true" if connection is not None and connection.frames else "false",
            }
        return {
            f"haSlave_{address}": f"{size} bytes, {seconds:.1f} s behind"
            for address, (size, seconds) in self._master.lags().items()
        }
