"""Requests of brokers: ids, registration, heartbeats, elections and in-sync sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.controller.answers import answer_of, elected_fields, leader_error, master_fields, set_body
from orbitmq.controller.liveness import DEFAULT_TIMEOUT_MS, Heartbeat, Member
from orbitmq.controller.machine.election import MAX_EPOCH, Report
from orbitmq.controller.machine.operations import (
    Alteration,
    Application,
    ElectionRequest,
    next_broker_id,
)
from orbitmq.protocol.bodies import SyncStateSet
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.fields import encode_fields
from orbitmq.protocol.command.response_fields import RESPONSE_FIELDS
from orbitmq.remoting.processor import RequestRefusedError, fields_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from orbitmq.controller.config import ControllerConfig
    from orbitmq.controller.elections import Elections
    from orbitmq.controller.service import ControllerService, Outcome
    from orbitmq.protocol.command.command import Command
    from orbitmq.protocol.command.fields import FieldValue
    from orbitmq.remoting import Connection
    from orbitmq.remoting.processor import Processor

MAX_NAME = 1024
"""Characters of a name, an address or a check code."""

MAX_PRIORITY = (1 << 31) - 1
"""Default of ``brokerElectionPriority``."""


class BrokerRequests:
    """Processors for the requests of brokers."""

    def __init__(
        self, service: ControllerService, elections: Elections, config: ControllerConfig, now_ms: Callable[[], int]
    ) -> None:
        self._service = service
        self._elections = elections
        self._config = config
        self._now_ms = now_ms

    @property
    def processors(self) -> dict[RequestCode, Processor]:
        return {
            RequestCode.BROKER_HEARTBEAT: self.heartbeat,
            RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: self.next_id,
            RequestCode.CONTROLLER_APPLY_BROKER_ID: self.apply_id,
            RequestCode.CONTROLLER_REGISTER_BROKER: self.register,
            RequestCode.CONTROLLER_ELECT_MASTER: self.elect,
            RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: self.alter_sync_state_set,
            RequestCode.CONTROLLER_GET_REPLICA_INFO: self.replica_info,
        }

    def heartbeat(self, request: Command, connection: Connection) -> Command:
        """Answer BROKER_HEARTBEAT (904), which every controller takes, the leader or not."""
        fields = fields_of(request)
        broker_id = fields["brokerId"]
        if broker_id is None:
            raise RequestRefusedError("Heart beat with empty brokerId", ResponseCode.CONTROLLER_INVALID_REQUEST)
        member = Member(_text(fields["clusterName"]), _text(fields["brokerName"]), broker_id)
        timeout = fields["heartbeatTimeoutMills"]
        report = Report(
            epoch=min(_or(fields["epoch"], 0), MAX_EPOCH),
            max_offset=_or(fields["maxOffset"], 0),
            confirm_offset=_or(fields["confirmOffset"], 0),
            priority=_or(fields["electionPriority"], MAX_PRIORITY),
        )
        heartbeat = Heartbeat(
            _text(fields["brokerAddr"]), connection, self._now_ms(), _or(timeout, DEFAULT_TIMEOUT_MS), report
        )
        if not self._service.liveness.heartbeat(member, heartbeat):
            raise RequestRefusedError(f"there are {self._config.max_brokers} brokers, which maxBrokers allows")
        return request.response(ResponseCode.SUCCESS, remark="Heart beat success")

    def next_id(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        cluster, name = _text(fields["clusterName"]), _text(fields["brokerName"])
        with leader_error():
            found = next_broker_id(self._service.group(name))
        values: dict[str, FieldValue] = {"clusterName": cluster, "brokerName": name, "nextBrokerId": found}
        return request.response(
            ResponseCode.SUCCESS, ext_fields=encode_fields(values, RESPONSE_FIELDS[request.code])
        )

    async def apply_id(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        cluster, name = _text(fields["clusterName"]), _text(fields["brokerName"])
        check_code = _text(fields["registerCheckCode"])
        applied = _or(fields["appliedBrokerId"], 0)
        with leader_error():
            self._check_limits(name, applied)
            outcome = await self._service.apply_broker_id(Application(cluster, name, applied, check_code))
        return answer_of(request, outcome, {"clusterName": cluster, "brokerName": name})

    def _check_limits(self, name: str, broker_id: int) -> None:
        group = self._service.group(name)
        if group is None and len(self._service.storage.groups) >= self._config.max_broker_groups:
            raise RequestRefusedError(
                f"there are {self._config.max_broker_groups} broker groups, which maxBrokerGroups allows"
            )
        if group is None or broker_id in group.replicas:
            return
        if len(group.replicas) >= self._config.max_replicas_of_group:
            raise RequestRefusedError(
                f"broker group {name} has {len(group.replicas)} replicas, which maxReplicasOfGroup allows; "
                "remove lost ones with cleanBrokerMetadata"
            )

    async def register(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        name, address = _text(fields["brokerName"]), _text(fields["brokerAddress"])
        broker_id = _or(fields["brokerId"], 0)
        with leader_error():
            outcome = await self._service.register(name, broker_id, address)
        group, body = outcome.group, None
        values: dict[str, FieldValue] = {"clusterName": _text(fields["clusterName"]), "brokerName": name}
        if group is not None and outcome.decision.code == ResponseCode.SUCCESS:
            body = set_body(group)
            # A master that registers has restarted: it has to request an election, which compares its log.
            if group.master not in {None, broker_id} and not outcome.replicas.is_gone(group.master):
                values = {**values, **master_fields(group), "syncStateSetEpoch": group.set_epoch}
        return answer_of(request, outcome, values, body)

    async def elect(self, request: Command, _: Connection) -> Command:
        """Answer ELECT_MASTER (1002) of a broker or a tool. Other brokers of the group are notified."""
        fields = fields_of(request)
        name = _text(fields["brokerName"])
        with leader_error():
            outcome = await self._service.elect(ElectionRequest(name, fields["brokerId"], fields["designateElect"]))
        self._elections.announce(outcome)
        return _elected(request, outcome)

    def alter_sync_state_set(self, request: Command, _: Connection) -> Coroutine[None, None, Command]:
        fields = fields_of(request)
        body = SyncStateSet.decode(request.body or b"")
        alteration = Alteration(
            name=_text(fields["brokerName"]),
            broker_id=_or(fields["masterBrokerId"], 0),
            master_epoch=_or(fields["masterEpoch"], 0),
            set_epoch=body.sync_state_set_epoch,
            members=frozenset(body.sync_state_set),
        )
        return self._altered(request, alteration)

    async def _altered(self, request: Command, alteration: Alteration) -> Command:
        with leader_error():
            outcome = await self._service.alter_sync_state_set(alteration)
        group = outcome.group
        if group is None or outcome.decision.code != ResponseCode.SUCCESS:
            return answer_of(request, outcome, {})
        return answer_of(request, outcome, {"newSyncStateSetEpoch": group.set_epoch}, set_body(group))

    def replica_info(self, request: Command, _: Connection) -> Command:
        """Answer GET_REPLICA_INFO (1004), which brokers poll."""
        name = _text(fields_of(request)["brokerName"])
        with leader_error():
            group = self._service.group(name)
        if group is None:
            raise RequestRefusedError(
                f"Broker-set: {name} metadata does not exist", ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
            )
        values = encode_fields(master_fields(group), RESPONSE_FIELDS[request.code])
        return request.response(ResponseCode.SUCCESS, ext_fields=values, body=set_body(group))


def _elected(request: Command, outcome: Outcome) -> Command:
    group = outcome.group
    shows = {ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}
    if group is None or outcome.decision.code not in shows:
        return answer_of(request, outcome, {})
    fields, body = elected_fields(group)
    return answer_of(request, outcome, fields, body)


def _text(value: str | None) -> str:
    """A name of a request. Raises RequestRefusedError."""
    if not value:
        raise RequestRefusedError(
            "a name or an address of the request is empty", ResponseCode.CONTROLLER_INVALID_REQUEST
        )
    if len(value) > MAX_NAME:
        raise RequestRefusedError(
            f"{value[:32]}... has {len(value)} characters, at most {MAX_NAME} are allowed",
            ResponseCode.CONTROLLER_INVALID_REQUEST,
        )
    return value


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
