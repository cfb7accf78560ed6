"""Brokers: lists with live figures, settings, maintenance, and requests for a broker's own services."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.admin.changes import Change, differences
from orbitmq.admin.cluster.runtime import BrokerRuntime, BrokerStatus, ReplicationStatus
from orbitmq.admin.cluster.topology import BrokerAddress, Topology, addresses, fetch_topology
from orbitmq.admin.errors import AdminError, InvalidRequestError, UnreachableError
from orbitmq.admin.session import LONG, decode, field_of
from orbitmq.platform.settings import ConfigError, parse_conf
from orbitmq.protocol.bodies import (
    BrokerStatsData,
    EpochEntryCache,
    HARuntimeInfo,
    KVTable,
    ProducerTableInfo,
    TopicList,
)
from orbitmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.admin.session import AdminSession


class Brokers:
    """Brokers of all clusters. A ``broker`` is named by its name, which means its master, or by its address."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def topology(self) -> Topology:
        """Clusters, broker names, ids and addresses, in one request."""
        return await fetch_topology(self._session)

    async def all(self, cluster: str = "") -> list[BrokerStatus]:
        """All brokers with their live figures, one request each; for one that does not respond, the reason."""
        topology = await self.topology()
        brokers = topology.of_cluster(cluster or self._session.config.cluster)
        return list(await asyncio.gather(*map(self._status, brokers)))

    async def _status(self, broker: BrokerAddress) -> BrokerStatus:
        try:
            return BrokerStatus(broker, await self.runtime(broker.address), "")
        except AdminError as error:
            return BrokerStatus(broker, None, error.reason if isinstance(error, UnreachableError) else str(error))

    async def targets(
        self, cluster: str = "", broker: str = "", *, slaves: bool = False, for_change: bool = True
    ) -> list[BrokerAddress]:
        """The brokers that a request with these arguments is for."""
        cluster = cluster or ("" if broker else self._session.config.cluster)
        topology = await self.topology()
        return topology.targets(cluster, broker, slaves=slaves, for_change=for_change)

    async def _address(self, broker: str) -> str:
        """The address of one broker, without a request if it is an address already."""
        host, _, port = broker.rpartition(":")
        if host and port.isdecimal():
            return broker
        return (await self.targets(broker=broker))[0].address

    # Figures

    async def runtime(self, broker: str) -> BrokerRuntime:
        """The live figures of one broker."""
        address = await self._address(broker)
        answer = await self._session.call(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        return BrokerRuntime(address, decode(KVTable, answer, address).table)

    async def replication(self, broker: str) -> ReplicationStatus:
        """A master's view of its slaves, or a slave's of its master."""
        address = await self._address(broker)
        answer = await self._session.call(address, RequestCode.GET_BROKER_HA_STATUS)
        return ReplicationStatus.of(address, decode(HARuntimeInfo, answer, address))

    async def epochs(self, broker: str) -> EpochEntryCache:
        """The epochs of a broker's log, where a controller elects masters."""
        address = await self._address(broker)
        answer = await self._session.call(address, RequestCode.GET_BROKER_EPOCH_CACHE)
        return decode(EpochEntryCache, answer, address)

    async def statistics(self, broker: str, name: str, key: str) -> BrokerStatsData:
        """One counter over the last minute, hour and day: ``TOPIC_PUT_NUMS`` of a topic, for example."""
        address = await self._address(broker)
        fields = {"statsName": name, "statsKey": key}
        answer = await self._session.call(address, RequestCode.VIEW_BROKER_STATS_DATA, fields)
        return decode(BrokerStatsData, answer, address)

    async def producers(self, broker: str) -> ProducerTableInfo:
        """The producers that are connected to one broker, by group."""
        address = await self._address(broker)
        answer = await self._session.call(address, RequestCode.GET_ALL_PRODUCER_INFO)
        return decode(ProducerTableInfo, answer, address)

    async def system_topics(self, broker: str) -> list[str]:
        """The topics that belong to a broker itself."""
        address = await self._address(broker)
        answer = await self._session.call(address, RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        return sorted(decode(TopicList, answer, address).topic_list)

    # Settings

    async def settings(self, broker: str) -> dict[str, str]:
        """The settings of one broker, as text, in the order of their names."""
        address = await self._address(broker)
        answer = await self._session.call(address, RequestCode.GET_BROKER_CONFIG)
        return parse_settings(answer.body, address)

    async def alter_settings(
        self,
        values: Mapping[str, str],
        *,
        cluster: str = "",
        broker: str = "",
        slaves: bool = False,
        dry_run: bool = False,
    ) -> list[Change]:
        """Change settings while brokers run, and return what differs. Raises PartialFailureError.

        A setting that a broker does not have is reported as created: brokers keep, and do not use, unknown ones.
        """
        body = settings_text(values)
        chosen = await self.targets(cluster, broker, slaves=slaves)
        before = await self._session.from_all(addresses(chosen), self.settings)
        changes = [
            change
            for one in chosen
            for change in differences(
                f"broker {one.broker_name} ({one.address})", before[one.address], values, only=sorted(values)
            )
        ]
        if not dry_run:
            await self._session.at_all(
                "the change of settings",
                addresses(chosen),
                lambda address: self._session.call(address, RequestCode.UPDATE_BROKER_CONFIG, body=body),
            )
        return changes

    # Write permission at the name servers

    async def wipe_write_permission(self, broker_name: str) -> dict[str, int]:
        """Take a broker out of the routes for writing, at all name servers: number of topics by name server."""
        code = RequestCode.WIPE_WRITE_PERM_OF_BROKER
        answers = await self._session.call_name_servers("the change", code, {"brokerName": broker_name})
        return {address: field_of(answer, "wipeTopicCount", address) for address, answer in answers.items()}

    async def add_write_permission(self, broker_name: str) -> dict[str, int]:
        """Take a broker back into the routes for writing, at all name servers."""
        code = RequestCode.ADD_WRITE_PERM_OF_BROKER
        answers = await self._session.call_name_servers("the change", code, {"brokerName": broker_name})
        return {address: field_of(answer, "addTopicCount", address) for address, answer in answers.items()}

    # Maintenance

    async def clean_expired_queues(self, *, cluster: str = "", broker: str = "") -> list[str]:
        """Remove consume queues of expired and of deleted messages. Returns the addresses."""
        return await self._maintain(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, cluster, broker)

    async def clean_unused_topics(self, *, cluster: str = "", broker: str = "") -> list[str]:
        """Remove the files of topics without configuration. Returns the addresses."""
        return await self._maintain(RequestCode.CLEAN_UNUSED_TOPIC, cluster, broker)

    async def delete_expired_log(self, *, cluster: str = "", broker: str = "") -> list[str]:
        """Remove expired commit log files now. Returns the addresses."""
        return await self._maintain(RequestCode.DELETE_EXPIRED_COMMITLOG, cluster, broker)

    async def _maintain(self, code: int, cluster: str, broker: str) -> list[str]:
        chosen = addresses(await self.targets(cluster, broker))
        seconds = self._session.config.timeout * LONG
        await self._session.at_all(
            "the clean-up", chosen, lambda address: self._session.call(address, code, seconds=seconds)
        )
        return chosen

    async def reset_master_flush_offset(self, broker: str, offset: int) -> None:
        """Set the flush offset that a slave takes for its master's."""
        if offset < 0:
            raise InvalidRequestError(f"an offset is 0 or more, not {offset}")
        address = await self._address(broker)
        code = RequestCode.RESET_MASTER_FLUSH_OFFSET
        await self._session.call(address, code, {"masterFlushOffset": offset})


def parse_settings(body: bytes | None, address: str) -> dict[str, str]:
    """Settings of a response: lines of ``key=value``."""
    try:
        found = parse_conf((body or b"").decode("utf-8", "replace"))
    except ConfigError as error:
        raise UnreachableError(address, f"its settings cannot be read: {error}") from error
    return dict(sorted(found.items()))


def settings_text(values: Mapping[str, str]) -> bytes:
    """Settings as a request carries them. Raises InvalidRequestError."""
    if not values:
        raise InvalidRequestError("give at least one setting to change")
    for name, value in values.items():
        if not name.strip() or any(character in f"{name}{value}" for character in "\r\n"):
            raise InvalidRequestError(f"a setting is one line with a name: {name!r} = {value!r}")
    # A server reads them as a properties file, where a backslash escapes the next character.
    return "".join(f"{name}={value}\n".replace("\\", "\\\\") for name, value in values.items()).encode()
