"""Registrar: registers the broker with its name servers, at start, periodically and on every change, and
unregisters it.

Each name server has a task of its own, so a slow or unreachable one does not delay the others. All topics are
registered at the start, when a name server reconnects, and once in a period as a heartbeat. In between only changed
topics are registered: changes within one loop iteration, or made while a request is in flight, go in one request.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.config.broker_config import address_text
from orbitmq.broker.registration.name_server_client import (
    FIRST_PAUSE,
    PATIENCE,
    TOPICS_IN_ONE_REQUEST,
    NameServerClient,
)
from orbitmq.protocol.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.command.fields import FieldValue, encode_fields
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.message.crc import body_crc
from orbitmq.protocol.message.flags import PERM_READ, PERM_WRITE
from orbitmq.remoting import RemotingClient, RemotingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.remoting import ClientTls, Connection
    from orbitmq.remoting.endpoint import RequestSigner
    from orbitmq.store import Clock

log = logging.getLogger("orbitmq.broker")

MIN_PERIOD_MS = 10_000
MAX_PERIOD_MS = 60_000
"""``registerNameServerPeriod`` is clamped as in RocketMQ: name servers forget a broker after 120 s without a
heartbeat."""


class Registration:
    """Keeps a broker registered with all its name servers between ``start`` and ``stop``."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicTable,
        clock: Clock,
        *,
        ha_address: str | None = None,
        tls: ClientTls | None = None,
        first_pause: float = FIRST_PAUSE,
        patience: float = PATIENCE,
        on_master: Callable[[str, str], None] | None = None,
    ) -> None:
        """``ha_address``: where slaves connect; usually the port after the main one.

        ``on_master`` gets the addresses of the master and of its HA listener, empty if no name server knows them.

        ``patience``: seconds to wait for name servers to receive a change, or the unregistration.
        """
        self._config = config
        self._topics = topics
        self._clock = clock
        self.tls = tls
        self.first_pause = first_pause
        self.patience = patience
        self.ha_address = ha_address or address_text(config.broker_ip2, config.listen_port + 1)
        self.is_draining = False
        self._on_master = on_master
        self._masters: dict[str, tuple[str, str]] = {}
        """Addresses of the master and of its HA listener, by name server."""
        self.signer: RequestSigner | None = None
        """Signs the requests to name servers, where they authenticate."""
        self._client: RemotingClient | None = None
        self._links: dict[str, NameServerClient] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._stopped = False
        self._full: tuple[DataVersion, int, list[Command]] | None = None

    @property
    def registered_with(self) -> list[str]:
        """Name servers that know this broker as it is now, or was before changes in flight."""
        return [address for address, link in self._links.items() if link.is_registered]

    def start(self) -> None:
        """Start registering. Returns at once; unreachable name servers are retried."""
        if self._config.compressed_register:
            # 5.x brokers compress but report that they do not, and 5.x name servers believe the latter.
            log.warning(
                "registration: compressedRegister=true has no effect: name servers of RocketMQ 5 cannot read it"
            )
        self._client = RemotingClient(tls=self.tls, on_close=self._connection_closed, signer=self.signer)
        self._follow_addresses()
        self._timers = [self._register_later(), self._heartbeat_later()]

    async def stop(self, *, leaves: bool = True) -> None:
        """Unregister from all name servers; waits a few seconds at most.

        ``leaves`` is False for a broker that registers again at once: its unregistration could be handled later.
        """
        self._stopped = True
        for timer in self._timers:
            timer.cancel()
        links = list(self._links.values())
        self._links.clear()
        if leaves:
            await asyncio.gather(*(link.leave() for link in links))
        for link in links:
            link.drop()
        if self._client is not None:
            await self._client.close()

    async def ask(self, request: Command) -> Command | None:
        """Send a request to a name server that knows this broker; None if no name server responds."""
        for address in self.registered_with:
            assert self._client is not None
            try:
                connection = await self._client.connection(address)
                return await connection.call(dataclasses.replace(request), self.patience)
            except RemotingError as error:
                log.info("registration: no response from name server %s: %s", address, error)
        return None

    # Changes

    def topics_changed(self, names: Iterable[str]) -> None:
        """Register topics that are new or changed, at the end of this loop iteration."""
        changed = list(names)
        for link in self._links.values():
            link.want_topics(changed)

    def register_soon(self) -> None:
        """Register everything with all name servers now instead of at the end of the period."""
        if self._stopped or self._client is None:
            return
        # Other settings than the compared ones may have changed too.
        self._full = None
        self._follow_addresses()
        for link in self._links.values():
            link.want_all()

    async def wipe_write_permission(self) -> None:
        """Register all topics without the write bit from now on, so that clients send elsewhere.

        Returns when name servers have it, or after a few seconds. Clients notice at their next route lookup.
        """
        self.is_draining = True
        # Name servers keep their copy of a topic unless the version differs.
        self._topics.bump()
        for link in self._links.values():
            link.want_all()
        await self.settled()

    async def settled(self) -> None:
        """Wait until all name servers that respond are up to date."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.patience):
                await asyncio.gather(*(link.settled.wait() for link in self._links.values()))

    # Requests

    def fields(self) -> dict[str, FieldValue]:
        """Fields that identify the broker in every request to a name server."""
        config = self._config
        return {
            "brokerName": config.broker_name,
            "brokerAddr": config.broker_address,
            "clusterName": config.broker_cluster_name,
            "brokerId": config.broker_id,
        }

    def request_for_all(self) -> list[Command]:
        """Registrations of all topics, one unless they are too many.

        Cached while nothing changes: encoding several thousand topics takes a while.
        """
        permitted = self._permitted()
        if self._full is None or self._full[:2] != (self._topics.data_version, permitted):
            configs = list(self._topics.configs.values())
            size = TOPICS_IN_ONE_REQUEST
            if self._config.enable_split_registration:
                size = max(min(size, self._config.split_registration_size), 1)
            parts = [configs[start : start + size] for start in range(0, len(configs), size)] or [[]]
            requests = [self._request(part, permitted) for part in parts]
            self._full = self._topics.data_version, permitted, requests
        return self._full[2]

    def request_for_topics(self, names: Iterable[str]) -> Command | None:
        """Registration of some topics; None if none of them exists any more."""
        configs = [config for name in names if (config := self._topics.configs.get(name)) is not None]
        return self._request(configs, self._permitted()) if configs else None

    def _permitted(self) -> int:
        """Permission bits that topics may have in registrations."""
        permission = self._config.broker_permission
        everything = PERM_READ | PERM_WRITE
        # A broker that is readable and writable does not mask topic permissions, which have more bits than these
        # two.
        bits = ~0 if permission & everything == everything else permission
        return bits & ~PERM_WRITE if self.is_draining else bits

    def _request(self, topics: Iterable[TopicConfig], permitted: int) -> Command:
        if permitted != ~0:
            topics = [dataclasses.replace(topic, perm=topic.perm & permitted) for topic in topics]
        config = self._config
        body = RegisterBrokerBody(
            TopicConfigAndMappingSerializeWrapper(
                topic_config_table={topic.topic_name: topic for topic in topics},
                data_version=self._topics.data_version,
                mapping_data_version=DataVersion(timestamp=self._clock.now_ms()),
            )
        ).encode()
        acting = config.enable_slave_acting_master
        fields = self.fields() | {
            "haServerAddr": self.ha_address,
            "enableActingMaster": acting,
            "heartbeatTimeoutMillis": config.broker_not_active_timeout_millis if acting else None,
            "compressed": False,
            "bodyCrc32": body_crc(body),
        }
        return _command(RequestCode.REGISTER_BROKER, fields, body)

    def request_of_version(self) -> Command:
        """QUERY_DATA_VERSION: asks whether a name server has these topics already; also a heartbeat."""
        return _command(RequestCode.QUERY_DATA_VERSION, self.fields(), self._topics.data_version.encode())

    def request_to_leave(self) -> Command:
        return _command(RequestCode.UNREGISTER_BROKER, self.fields())

    def heartbeat(self) -> Command:
        """BROKER_HEARTBEAT: the short heartbeat of groups whose slaves may act as master; oneway."""
        if self._config.compatible_with_old_name_srv:
            return self.request_of_version()
        return _command(RequestCode.BROKER_HEARTBEAT, self.fields())

    # Addresses and timers

    def _follow_addresses(self) -> None:
        """Add clients for name servers that are new in the settings, remove those that are gone from them.

        Removed ones get no unregistration: they may be the same server under another name. They forget a silent
        broker.
        """
        assert self._client is not None, "not started"
        wanted = self._config.name_servers
        for address in self._links.keys() - set(wanted):
            self._links.pop(address).drop()
            log.info("registration: name server %s was removed from the settings", address)
        for address in wanted:
            if address not in self._links:
                self._links[address] = NameServerClient(address, self, self._client)

    def _register_later(self) -> asyncio.TimerHandle:
        period = max(MIN_PERIOD_MS, min(self._config.register_name_server_period, MAX_PERIOD_MS))
        return asyncio.get_running_loop().call_later(period / 1000, self._register_again)

    def _register_again(self) -> None:
        self._timers[0] = self._register_later()
        self._follow_addresses()
        for link in self._links.values():
            link.want_all(ask_first=not (self._config.force_register or self._config.enable_split_registration))

    def _heartbeat_later(self) -> asyncio.TimerHandle:
        seconds = max(self._config.broker_heartbeat_interval, 10) / 1000
        return asyncio.get_running_loop().call_later(seconds, self._heartbeat_again)

    def _heartbeat_again(self) -> None:
        self._timers[1] = self._heartbeat_later()
        if self._config.enable_slave_acting_master:
            for link in self._links.values():
                link.send_heartbeat()

    # Used by the name server clients

    @property
    def answer_seconds(self) -> float:
        return max(self._config.register_broker_timeout_mills, 1) / 1000

    def take_order(self, table: KVTable) -> None:
        """Store a name server's list of ordered topics, which comes with its responses."""
        self._topics.set_ordered(table.table)

    def take_master(self, name_server: str, fields: Mapping[str, str]) -> None:
        """Handle the master's addresses in the answer to a registration of a slave.

        Name servers may differ for a while: the first in the settings that knows a master counts.
        """
        self._masters[name_server] = fields.get("masterAddr", ""), fields.get("haServerAddr", "")
        if self._on_master is not None:
            known = (self._masters.get(address, ("", "")) for address in self._config.name_servers)
            self._on_master(*next((one for one in known if one[0]), ("", "")))

    def version(self) -> DataVersion:
        return self._topics.data_version

    def _connection_closed(self, connection: Connection, _: Exception | None) -> None:
        for link in self._links.values():
            link.connection_closed(connection)


def _command(code: RequestCode, fields: dict[str, FieldValue], body: bytes | None = None) -> Command:
    return Command(code, ext_fields=encode_fields(fields, REQUEST_FIELDS[code]), body=body)
