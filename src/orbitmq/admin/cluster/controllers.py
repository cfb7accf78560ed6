"""Controllers: who leads them, which replicas are in sync, elections, and their settings."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.changes import Change, differences
from orbitmq.admin.cluster.brokers import parse_settings, settings_text
from orbitmq.admin.cluster.failover import failover_report
from orbitmq.admin.errors import AdminError, NotFoundError, RefusedError
from orbitmq.admin.session import decode
from orbitmq.protocol.bodies import BrokerReplicasInfo, EpochEntryCache
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.fastjson import dumps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.admin.cluster.failover import FailoverReport
    from orbitmq.admin.session import AdminSession


@dataclasses.dataclass(frozen=True, slots=True)
class ControllerMetadata:
    """A group of controllers as one of them knows it."""

    group: str
    leader_id: str
    leader_address: str
    is_leader: bool
    peers: str


@dataclasses.dataclass(frozen=True, slots=True)
class ElectedMaster:
    """The result of an election."""

    broker_name: str
    broker_id: int
    address: str
    master_epoch: int
    sync_state_set_epoch: int


class Controllers:
    """Controllers by their address. Requests for the leader are sent to the address that is given."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def metadata(self, address: str) -> ControllerMetadata:
        answer = await self._session.call(address, RequestCode.CONTROLLER_GET_METADATA_INFO)
        fields = answer.ext_fields
        return ControllerMetadata(
            fields.get("group", ""),
            fields.get("controllerLeaderId", ""),
            fields.get("controllerLeaderAddress", ""),
            fields.get("isLeader") == "true",
            fields.get("peers", ""),
        )

    async def _leader(self, address: str) -> str:
        return (await self.metadata(address)).leader_address or address

    async def replicas(self, address: str, broker_names: Iterable[str]) -> BrokerReplicasInfo:
        """The replicas of broker names, in sync or not."""
        leader = await self._leader(address)
        body = dumps(list(broker_names))
        answer = await self._session.call(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
        return decode(BrokerReplicasInfo, answer, leader)

    async def explain(self, address: str, broker_name: str) -> FailoverReport:
        """The reason why a broker name has a master or none, and safe steps. Raises AdminError."""
        leader = await self._leader(address)
        info = (await self.replicas(leader, [broker_name])).replicas_info_table.get(broker_name)
        if info is None:
            raise NotFoundError("broker group", broker_name, f"controller {leader} does not know it")
        try:
            unclean = (await self.settings(leader)).get("enableElectUncleanMaster") == "true"
        except RefusedError:
            unclean = None
        unknown = [
            one
            for one in (*info.in_sync_replicas, *info.not_in_sync_replicas)
            if one.alive and one.max_offset is None
        ]
        logs = await asyncio.gather(*(self._log_of(one.broker_address or "") for one in unknown))
        found = {one.broker_id or 0: log for one, log in zip(unknown, logs, strict=True) if log is not None}
        return failover_report(broker_name, info, found, unclean=unclean)

    async def _log_of(self, address: str) -> EpochEntryCache | None:
        """The end of a replica's log, which Apache's controller does not report."""
        try:
            answer = await self._session.call(address, RequestCode.GET_BROKER_EPOCH_CACHE)
            return decode(EpochEntryCache, answer, address)
        except AdminError:
            return None

    async def elect_master(self, address: str, cluster: str, broker_name: str, broker_id: int) -> ElectedMaster:
        """Make a broker the master of its name. Raises RefusedError if it is not in sync."""
        leader = await self._leader(address)
        fields = {
            "clusterName": cluster,
            "brokerName": broker_name,
            "brokerId": broker_id,
            "designateElect": True,
            "invokeTime": self._session.now_ms(),
        }
        answer = await self._session.call(leader, RequestCode.CONTROLLER_ELECT_MASTER, fields)
        found = answer.ext_fields
        return ElectedMaster(
            broker_name,
            int(found.get("masterBrokerId") or -1),
            found.get("masterAddress", ""),
            int(found.get("masterEpoch") or 0),
            int(found.get("syncStateSetEpoch") or 0),
        )

    async def clean_broker_metadata(
        self,
        address: str,
        broker_name: str,
        *,
        cluster: str = "",
        broker_ids: Iterable[int] = (),
        living_too: bool = False,
    ) -> None:
        """Make the controllers forget replicas of a broker name: all of them, or these ids."""
        fields = {
            "clusterName": cluster or None,
            "brokerName": broker_name,
            "brokerControllerIdsToClean": ";".join(map(str, broker_ids)) or None,
            "isCleanLivingBroker": living_too,
            "invokeTime": self._session.now_ms(),
        }
        await self._session.call(await self._leader(address), RequestCode.CLEAN_BROKER_DATA, fields)

    async def settings(self, address: str) -> dict[str, str]:
        answer = await self._session.call(address, RequestCode.GET_CONTROLLER_CONFIG)
        return parse_settings(answer.body, address)

    async def alter_settings(
        self, address: str, values: Mapping[str, str], *, dry_run: bool = False
    ) -> list[Change]:
        """Change settings of one controller while it runs."""
        body = settings_text(values)
        before = await self.settings(address)
        if not dry_run:
            await self._session.call(address, RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)
        return differences(f"controller {address}", before, values, only=sorted(values))
