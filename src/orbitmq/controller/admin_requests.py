"""Requests of tools: who leads, replicas of broker groups, cleaning, and the settings of the controller."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.auth.runtime_settings.requests import SettingsRequests
from orbitmq.controller.answers import answer_of, leader_error
from orbitmq.controller.config import JRAFT, ControllerConfig
from orbitmq.controller.config_file import check_start, store_config
from orbitmq.controller.machine.operations import Cleaning
from orbitmq.protocol.bodies import BrokerReplicasInfo, ReplicaIdentity, ReplicasInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.fields import encode_fields
from orbitmq.protocol.command.response_fields import RESPONSE_FIELDS
from orbitmq.protocol.fastjson import loads
from orbitmq.remoting.processor import RequestRefusedError, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orbitmq.controller.machine.group import BrokerGroup
    from orbitmq.controller.service import ControllerService
    from orbitmq.controller.storage.interface import Leadership
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.command.fields import FieldValue
    from orbitmq.remoting import Connection
    from orbitmq.remoting.processor import Processor

log = logging.getLogger("orbitmq.controller")

UNSPECIFIED = ("0.0.0.0:", "[::]:", ":::")
"""Beginnings of an own address that no broker can connect to."""


class AdminRequests:
    """Processors for the requests of tools."""

    def __init__(
        self,
        service: ControllerService,
        config: ControllerConfig,
        disk: Disk,
        run_blocking: RunBlocking,
        now_ms: Callable[[], int],
    ) -> None:
        self._service = service
        self._config = config
        self._now_ms = now_ms
        self._settings = SettingsRequests(
            config, disk, run_blocking, check_start=check_start, store=store_config, log=log
        )

    @property
    def processors(self) -> dict[RequestCode, Processor]:
        return {
            RequestCode.CONTROLLER_GET_METADATA_INFO: self.metadata,
            RequestCode.CONTROLLER_GET_SYNC_STATE_DATA: self.sync_state_data,
            RequestCode.CLEAN_BROKER_DATA: self.clean,
            RequestCode.UPDATE_CONTROLLER_CONFIG: self._settings.update,
            RequestCode.GET_CONTROLLER_CONFIG: self._settings.show,
        }

    def metadata(self, request: Command, connection: Connection) -> Command:
        """Answer GET_METADATA_INFO (1005): the leader, also of a controller that does not lead."""
        found = self._service.leadership

        def reachable(address: str) -> str:
            return connection.local_address if address.startswith(UNSPECIFIED) else address

        values: dict[str, FieldValue] = {
            "group": self._config.group,
            "controllerLeaderId": found.leader_id,
            "controllerLeaderAddress": reachable(found.leader_address),
            "isLeader": found.is_leader,
            "peers": "".join(self._peers_of(found, reachable)),
        }
        return request.response(
            ResponseCode.SUCCESS, ext_fields=encode_fields(values, RESPONSE_FIELDS[request.code])
        )

    def _peers_of(self, found: Leadership, reachable: Callable[[str], str]) -> Iterator[str]:
        """The controllers as RocketMQ's kinds of controller write them: ``n0:host:port;``, or ``host:port;``."""
        named = self._config.peers
        # A single peer of the settings may have port 0.
        peers = ((peer.id, peer.address) for peer in named) if len(named) > 1 else found.peers
        for name, address in peers:
            yield (
                f"{reachable(address)};"
                if self._config.controller_type == JRAFT
                else f"{name}:{reachable(address)};"
            )

    def sync_state_data(self, request: Command, _: Connection) -> Command:
        """Answer GET_SYNC_STATE_DATA (1006) for a list of broker names; unknown ones are left out."""
        names = loads(request.body or b"[]")
        if not isinstance(names, list) or not names:
            raise RequestRefusedError("not set any response code: the body must be a list of broker names")
        if len(names) > self._config.max_broker_groups:
            raise RequestRefusedError(f"{len(names)} broker names are more than groups; request less at once")
        found = {}
        with leader_error():
            for name in names:
                group = self._service.group(name) if isinstance(name, str) else None
                if group is not None:
                    found[group.name] = self._info(group)
        return request.response(ResponseCode.SUCCESS, body=BrokerReplicasInfo(found).encode())

    def _info(self, group: BrokerGroup) -> ReplicasInfo:
        in_sync = [self._identity(group, broker_id) for broker_id in group.in_sync]
        others = [
            self._identity(group, broker_id) for broker_id in sorted(group.replicas.keys() - set(group.in_sync))
        ]
        return ReplicasInfo(
            group.master, group.master_address, group.master_epoch, group.set_epoch, in_sync, others
        )

    def _identity(self, group: BrokerGroup, broker_id: int) -> ReplicaIdentity:
        replicas = self._service.replicas(group)
        heartbeat = replicas.last_heartbeat(broker_id)
        is_alive = replicas.report(broker_id) is not None
        identity = ReplicaIdentity(group.name, broker_id, group.replicas[broker_id].address, alive=is_alive)
        if heartbeat is not None:
            identity.epoch = heartbeat.report.epoch
            identity.max_offset = heartbeat.report.max_offset
            identity.confirm_offset = heartbeat.report.confirm_offset
            identity.election_priority = heartbeat.report.priority
            identity.heartbeat_age_millis = self._now_ms() - heartbeat.at_ms
        return identity

    async def clean(self, request: Command, _: Connection) -> Command:
        """Answer CLEAN_BROKER_DATA (1011)."""
        fields = fields_of(request)
        cleaning = Cleaning(fields["brokerName"], _ids(fields), fields["isCleanLivingBroker"])
        with leader_error():
            outcome = await self._service.clean(cleaning)
        if outcome.decision.event is not None:
            log.warning("broker group %s: cleaned: %s", cleaning.name, sorted(cleaning.ids or ()) or "all replicas")
        return answer_of(request, outcome, {})


def _ids(fields: dict[str, str | None]) -> frozenset[int] | None:
    """The ids of ``1;2``; None without any. Raises RequestRefusedError."""
    text = fields["brokerControllerIdsToClean"] or ""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not parts:
        return None
    if not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts):
        raise RequestRefusedError(
            f"{text!r} is not a list of broker ids: give 1;2", ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        )
    return frozenset(map(int, parts))
