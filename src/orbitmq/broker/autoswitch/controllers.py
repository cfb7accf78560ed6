"""ControllerClient: a broker's requests to the controllers, of which one leads and answers."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from orbitmq.broker.autoswitch.term import Term
from orbitmq.protocol.bodies import Body
from orbitmq.protocol.bodies.replication import ElectMasterResponseBody, SyncStateSet
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fields import encode_fields
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting import CallTimeoutError, RemotingClient, RemotingError
from orbitmq.remoting.addresses import host_and_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.protocol.command.fields import FieldValue
    from orbitmq.remoting import ClientTls
    from orbitmq.remoting.endpoint import RequestSigner
    from orbitmq.store import Clock

BodyT = TypeVar("BodyT", bound=Body)

CallObserver: TypeAlias = "Callable[[Command], Callable[[Command], None] | None]"
"""Called with each request; what it returns is called with the answer, if one comes."""

log = logging.getLogger("orbitmq.broker")

ANSWER_SECONDS = 3.0
"""As RocketMQ's brokers wait for a controller."""

CONNECT_SECONDS = 1.0

UNKNOWN_MEMBER = frozenset(
    {ResponseCode.CONTROLLER_BROKER_NEED_TO_BE_REGISTERED, ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST}
)
"""Answers of a controller that does not know this broker, or no longer."""


class ControllerError(Exception):
    """No controller answered, or it refused. ``code`` is that of the answer; 0 without one."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code

    @property
    def is_final(self) -> bool:
        """True if the request was refused; otherwise it may still be applied."""
        return self.code not in {0, ResponseCode.SYSTEM_ERROR, ResponseCode.CONTROLLER_JRAFT_INTERNAL_ERROR}


class ControllerClient:
    """Connections to all controllers of ``controllerAddr``. Every request raises ControllerError."""

    def __init__(
        self, config: BrokerConfig, clock: Clock, tls: ClientTls | None = None, signer: RequestSigner | None = None
    ) -> None:
        self._config = config
        self._clock = clock
        self._client = RemotingClient(tls=tls, signer=signer, connect_seconds=CONNECT_SECONDS)
        self.leader = ""
        """Address of the leader; empty while it is unknown."""
        self._resolved: tuple[str, ...] = ()
        self.silent: set[str] = set()
        """Controllers whose last request got no answer in time; they get no heartbeats before they answer one."""
        self.observer: CallObserver | None = None
        """Sees the requests and their answers, for a history of a simulated run."""

    async def close(self) -> None:
        await self._client.close()

    # The leader

    async def addresses(self) -> tuple[str, ...]:
        """Addresses of the controllers."""
        if not self._config.fetch_controller_addr_by_dns_lookup:
            return self._config.controllers
        host, port = host_and_port(self._config.controllers[0])
        try:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(host, port)
        except OSError as error:
            log.warning("controller: %s has no address: %s", host, error)
            return self._resolved
        names = sorted({address[0] for *_, address in found})
        self._resolved = tuple(f"[{name}]:{port}" if ":" in str(name) else f"{name}:{port}" for name in names)
        return self._resolved

    async def find_leader(self) -> None:
        """Ask the controllers who leads them; ``leader`` is empty afterwards if none of them knows."""
        addresses = await self.addresses()
        self.silent.intersection_update(addresses)
        answers = await asyncio.gather(*(self._leader_by(one) for one in addresses))
        found = next((leader for leader in answers if leader), "")
        if found != self.leader:
            log.info("controller: leader is %s", found or "unknown")
            self.leader = found

    async def _leader_by(self, address: str) -> str:
        try:
            answer = await self._call(address, Command(RequestCode.CONTROLLER_GET_METADATA_INFO))
        except RemotingError:
            return ""
        return answer.ext_fields.get("controllerLeaderAddress", "") if answer.code == ResponseCode.SUCCESS else ""

    async def _call(self, address: str, command: Command) -> Command:
        seconds = min(ANSWER_SECONDS, self._config.controller_heart_beat_timeout_mills / 1000)
        try:
            answer = await self._client.call(address, command, seconds)
        except CallTimeoutError:
            self.silent.add(address)
            raise
        self.silent.discard(address)
        return answer

    async def _ask(self, code: RequestCode, fields: dict[str, FieldValue], body: bytes | None = None) -> Command:
        """The answer of the leader, whatever its code is. Raises ControllerError."""
        if not self.leader:
            await self.find_leader()
        if not self.leader:
            raise ControllerError(f"no controller of {self._config.controller_addr} knows a leader")
        table = REQUEST_FIELDS[code]
        if any(field.name == "invokeTime" for field in table):
            fields = {**fields, "invokeTime": self._clock.now_ms()}
        command = Command(code, ext_fields=encode_fields(fields, table), body=body)
        leader = self.leader
        returned = None if self.observer is None else self.observer(command)
        try:
            answer = await self._call(leader, command)
        except RemotingError as error:
            self.leader = ""
            raise ControllerError(f"controller {leader}: {error}") from error
        if returned is not None:
            returned(answer)
        if answer.code == ResponseCode.CONTROLLER_NOT_LEADER:
            self.leader = ""
            raise ControllerError(f"controller {leader} does not lead any more", answer.code)
        return answer

    async def _done(self, code: RequestCode, fields: dict[str, FieldValue], body: bytes | None = None) -> Command:
        answer = await self._ask(code, fields, body)
        if answer.code != ResponseCode.SUCCESS:
            raise _refused(self.leader, answer)
        return answer

    # Identity

    def _group(self) -> dict[str, FieldValue]:
        return {"clusterName": self._config.broker_cluster_name, "brokerName": self._config.broker_name}

    async def next_id(self) -> int:
        """An id that no broker of the group has."""
        answer = await self._done(RequestCode.CONTROLLER_GET_NEXT_BROKER_ID, self._group())
        return _int(answer, "nextBrokerId")

    async def apply_id(self, broker_id: int, check_code: str) -> None:
        """Take an id. Asking again with the same check code is allowed."""
        fields = {**self._group(), "appliedBrokerId": broker_id, "registerCheckCode": check_code}
        await self._done(RequestCode.CONTROLLER_APPLY_BROKER_ID, fields)

    # Role

    async def register(self, broker_id: int) -> Term:
        """Announce this broker's address; the term has a master if one is alive."""
        fields = {**self._group(), "brokerId": broker_id, "brokerAddress": self._config.broker_address}
        return _term(broker_id, await self._done(RequestCode.CONTROLLER_REGISTER_BROKER, fields))

    async def elect(self, broker_id: int) -> Term:
        """Ask for an election in a group without a master; the result may be another broker."""
        answer = await self._ask(RequestCode.CONTROLLER_ELECT_MASTER, {**self._group(), "brokerId": broker_id})
        if answer.code not in {ResponseCode.SUCCESS, ResponseCode.CONTROLLER_MASTER_STILL_EXIST}:
            raise _refused(self.leader, answer)
        term = _term(broker_id, answer, has_set=False)
        members = _decoded(ElectMasterResponseBody, answer).sync_state_set
        return dataclasses.replace(term, members=frozenset(members))

    async def replica_info(self, broker_id: int) -> Term:
        """The current master, and the sync state set."""
        fields: dict[str, FieldValue] = {"brokerName": self._config.broker_name}
        return _term(broker_id, await self._done(RequestCode.CONTROLLER_GET_REPLICA_INFO, fields))

    async def alter(self, term: Term, members: Iterable[int], set_epoch: int) -> SyncStateSet:
        """Replace the sync state set that has this epoch; the result is the new one."""
        fields: dict[str, FieldValue] = {
            "brokerName": self._config.broker_name,
            "masterBrokerId": term.own_id,
            "masterEpoch": term.epoch,
        }
        body = SyncStateSet(sorted(members), set_epoch).encode()
        return _decoded(SyncStateSet, await self._done(RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, fields, body))

    # Heartbeats

    async def heartbeat(self, fields: Callable[[], dict[str, FieldValue]]) -> None:
        """Send a heartbeat to every controller, and to the leader under the address it is known by.

        Not to those that are silent: they may hear this broker and not be heard. A master would stay the master for
        them, and refuse messages for as long as that lasts.
        """
        known = dict.fromkeys([*await self.addresses(), *([self.leader] if self.leader else [])])
        addresses = [address for address in known if address not in self.silent]
        text = encode_fields(fields(), REQUEST_FIELDS[RequestCode.BROKER_HEARTBEAT])
        await asyncio.gather(*(self._beat(address, text) for address in addresses))

    async def heartbeat_to_leader(self, fields: Callable[[], dict[str, FieldValue]]) -> None:
        """Send a heartbeat to the leader only, ahead of the next request: one connection keeps their order."""
        if not self.leader:
            await self.find_leader()
        if self.leader:
            await self._beat(self.leader, encode_fields(fields(), REQUEST_FIELDS[RequestCode.BROKER_HEARTBEAT]))

    async def _beat(self, address: str, fields: dict[str, str]) -> None:
        with contextlib.suppress(RemotingError):
            await self._client.call_oneway(address, Command(RequestCode.BROKER_HEARTBEAT, ext_fields=dict(fields)))


def _refused(leader: str, answer: Command) -> ControllerError:
    return ControllerError(f"controller {leader} answered with code {answer.code}: {answer.remark}", answer.code)


def _int(answer: Command, name: str, default: int | None = None) -> int:
    text = answer.ext_fields.get(name)
    if text is None and default is not None:
        return default
    try:
        return int(text or "")
    except ValueError:
        raise ControllerError(f"an answer of the controller lacks {name}: {text!r}") from None


def _decoded(kind: type[BodyT], answer: Command) -> BodyT:
    try:
        return kind.decode(answer.body) if answer.body else kind()
    except ProtocolError as error:
        raise ControllerError(f"an answer of the controller cannot be read: {error}") from error


def _term(own_id: int, answer: Command, *, has_set: bool = True) -> Term:
    """The term in an answer; without a master in it, one that is not known."""
    master_id = _int(answer, "masterBrokerId", 0)
    epoch = _int(answer, "masterEpoch", 0)
    address = answer.ext_fields.get("masterAddress", "")
    if master_id < 1 or not address:
        return Term(own_id)
    found = _decoded(SyncStateSet, answer) if has_set else SyncStateSet([], _int(answer, "syncStateSetEpoch", 0))
    return Term(own_id, epoch, master_id, address, frozenset(found.sync_state_set), found.sync_state_set_epoch)
