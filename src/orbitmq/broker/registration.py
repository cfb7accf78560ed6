"""A broker's registration with its name servers: made at the start, kept, told of every change, taken back.

Each name server has a task of its own, so one that is down or slow holds up nobody. All topics are registered at
the start, when a name server comes back, and once in a period, because that is also the sign of life. In between
only topics that changed are registered: changes that come together, or while a request is under way, go in one.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.config import address_text
from orbitmq.broker.name_server_link import FIRST_PAUSE, PATIENCE, TOPICS_IN_ONE_REQUEST, NameServerLink
from orbitmq.protocol.bodies import (
    DataVersion,
    KVTable,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command import Command
from orbitmq.protocol.crc import body_crc
from orbitmq.protocol.fields import FieldValue, encode_fields
from orbitmq.protocol.flags import PERM_READ, PERM_WRITE
from orbitmq.protocol.request_fields import REQUEST_FIELDS
from orbitmq.remoting import RemotingClient, RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.topics import TopicTable
    from orbitmq.remoting import ClientTls, Connection
    from orbitmq.store import Clock

log = logging.getLogger("orbitmq.broker")

LEAST_PERIOD_MS = 10_000
MOST_PERIOD_MS = 60_000
"""Between these RocketMQ keeps ``registerNameServerPeriod``: a broker is forgotten after 120 s of silence."""


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
    ) -> None:
        """``ha_address`` is where slaves connect; usually the port after the main one.

        ``patience`` is how many seconds are waited for name servers to hear of a change, or of the end.
        """
        self._config = config
        self._topics = topics
        self._clock = clock
        self._tls = tls
        self.first_pause = first_pause
        self.patience = patience
        self.ha_address = ha_address or address_text(config.broker_ip2, config.listen_port + 1)
        self.is_draining = False
        self._client: RemotingClient | None = None
        self._links: dict[str, NameServerLink] = {}
        self._timers: list[asyncio.TimerHandle] = []
        self._stopped = False
        self._full: tuple[DataVersion, int, list[Command]] | None = None

    @property
    def registered_with(self) -> list[str]:
        """The name servers that know this broker as it is, or as it was a moment ago."""
        return [address for address, link in self._links.items() if link.is_registered]

    def start(self) -> None:
        """Begin to register. Returns at once; a name server that is not there yet is waited for."""
        if self._config.compressed_register:
            # 5.x brokers compress and say that they do not, and 5.x name servers believe the latter.
            log.warning("compressedRegister=true has no effect here: name servers of RocketMQ 5 cannot read it")
        self._client = RemotingClient(tls=self._tls, on_close=self._connection_closed)
        self._follow_addresses()
        self._timers = [self._register_later(), self._heartbeat_later()]

    async def stop(self) -> None:
        """Take the registration back where it was made; waits no longer than a few seconds."""
        self._stopped = True
        for timer in self._timers:
            timer.cancel()
        links = list(self._links.values())
        self._links.clear()
        await asyncio.gather(*(link.leave() for link in links))
        if self._client is not None:
            await self._client.close()

    async def ask(self, request: Command) -> Command | None:
        """What a name server answers that knows this broker; None if there is none, or none answers."""
        for address in self.registered_with:
            assert self._client is not None
            try:
                connection = await self._client.connection(address)
                return await connection.call(dataclasses.replace(request), self.patience)
            except RemotingError as error:
                log.info("name server %s was asked and did not answer: %s", address, error)
        return None

    # What has to be made known

    def topics_changed(self, names: Iterable[str]) -> None:
        """Register topics that are new or changed, as soon as this turn of the loop is over."""
        changed = list(names)
        for link in self._links.values():
            link.want_topics(changed)

    def register_soon(self) -> None:
        """Register everything with everybody who may have moved meanwhile, not waiting for the period."""
        if self._stopped or self._client is None:
            return
        # The settings may have changed in more than what is compared.
        self._full = None
        self._follow_addresses()
        for link in self._links.values():
            link.want_all()

    async def wipe_write_permission(self) -> None:
        """Have clients sent elsewhere: register all topics without the write bit, from now until the end.

        Returns when name servers know, or after a few seconds. Clients notice when they next look up the route.
        """
        self.is_draining = True
        # Name servers keep what they have of a topic unless the version is another.
        self._topics.bump()
        for link in self._links.values():
            link.want_all()
        await self.settled()

    async def settled(self) -> None:
        """Wait until name servers know all there is to know. Those that do not answer are not waited for."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.patience):
                await asyncio.gather(*(link.settled.wait() for link in self._links.values()))

    # Requests

    def fields(self) -> dict[str, FieldValue]:
        """How the broker calls itself in every request to a name server."""
        config = self._config
        return {
            "brokerName": config.broker_name,
            "brokerAddr": config.broker_address,
            "clusterName": config.broker_cluster_name,
            "brokerId": config.broker_id,
        }

    def request_for_all(self) -> list[Command]:
        """Registrations of all topics, one unless they are too many.

        The same every period if nothing changed, and several thousand topics take a while to encode.
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
        """A registration of some topics; None if none of them is there any more."""
        configs = [config for name in names if (config := self._topics.configs.get(name)) is not None]
        return self._request(configs, self._permitted()) if configs else None

    def _permitted(self) -> int:
        """The bits that the permissions of topics may have as name servers are told them."""
        permission = self._config.broker_permission
        everything = PERM_READ | PERM_WRITE
        # A broker that may do both leaves its topics all they have, which is more than these two.
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
        """The question whether a name server has these topics already; also a sign of life."""
        return _command(RequestCode.QUERY_DATA_VERSION, self.fields(), self._topics.data_version.encode())

    def request_to_leave(self) -> Command:
        return _command(RequestCode.UNREGISTER_BROKER, self.fields())

    def heartbeat(self) -> Command:
        """The short sign of life of groups whose slaves may act as master; without answer."""
        if self._config.compatible_with_old_name_srv:
            return self.request_of_version()
        return _command(RequestCode.BROKER_HEARTBEAT, self.fields())

    # Addresses and timers

    def _follow_addresses(self) -> None:
        """Begin with name servers that are new in the settings, end with those that stand there no longer.

        These are not told: they may be the same under another name. They forget a broker that says no more.
        """
        assert self._client is not None, "not started"
        wanted = self._config.name_servers
        for address in self._links.keys() - set(wanted):
            self._links.pop(address).drop()
            log.info("name server %s is no longer in the settings", address)
        for address in wanted:
            if address not in self._links:
                self._links[address] = NameServerLink(address, self, self._client)

    def _register_later(self) -> asyncio.TimerHandle:
        period = max(LEAST_PERIOD_MS, min(self._config.register_name_server_period, MOST_PERIOD_MS))
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

    # What links need

    @property
    def answer_seconds(self) -> float:
        return max(self._config.register_broker_timeout_mills, 1) / 1000

    def take_order(self, table: KVTable) -> None:
        """A name server's list of ordered topics, which comes with its answers."""
        self._topics.set_ordered(table.table)

    def version(self) -> DataVersion:
        return self._topics.data_version

    def _connection_closed(self, connection: Connection, _: Exception | None) -> None:
        for link in self._links.values():
            link.connection_closed(connection)


def _command(code: RequestCode, fields: dict[str, FieldValue], body: bytes | None = None) -> Command:
    return Command(code, ext_fields=encode_fields(fields, REQUEST_FIELDS[code]), body=body)
