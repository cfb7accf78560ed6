"""Copy of topics and groups from the other masters of the cluster, for a new broker, before it registers.

With ``copyClusterMetadata`` a new master asks a name server for the masters of its cluster and takes over their
topics, groups and request modes; when it registers, producers and consumers of those topics get its queues.
RocketMQ's new brokers begin empty, and each topic has to be created on them by hand.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.broker.metadata.topics import topic_problem
from orbitmq.broker.slave_sync.master_client import MasterClient, MasterRefusedError
from orbitmq.protocol.bodies import ClusterInfo
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import DLQ_PREFIX, REPLY_TOPIC_POSTFIX, RETRY_PREFIX
from orbitmq.remoting import RemotingClient, RemotingError
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.store.config_tables import SUBSCRIPTION_GROUPS, TOPICS

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.broker.pop.assignment import PopAssignments
    from orbitmq.broker.runtime import BrokerRuntime, Metadata
    from orbitmq.protocol.bodies import SetMessageRequestModeRequestBody, SubscriptionGroupConfig, TopicConfig
    from orbitmq.remoting import ClientTls
    from orbitmq.remoting.endpoint import RequestSigner

log = logging.getLogger("orbitmq.broker")

MASTER_ID = 0
ASK_SECONDS = 3.0
COPY_SECONDS = 60.0
"""The start of a broker waits at most so long for its peers."""


class ClusterCopy:
    """Takes over what the other masters of a cluster have."""

    def __init__(self, runtime: BrokerRuntime, metadata: Metadata, assignments: PopAssignments) -> None:
        self._config = runtime.config
        self._writer = runtime.writer
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._assignments = assignments
        self.signer: RequestSigner | None = None
        self.tls: ClientTls | None = None

    @property
    def is_wanted(self) -> bool:
        """True for a broker with the setting that has no topic of its users yet."""
        topics = self._topics
        return self._config.copy_cluster_metadata and all(map(topics.is_system_topic, topics.configs))

    async def copy(self) -> None:
        """Copy from the cluster. A failure is logged: the broker serves its clients without these topics."""
        client = RemotingClient(tls=self.tls, signer=self.signer)
        try:
            async with asyncio.timeout(COPY_SECONDS):
                await self._copy(client)
        except TimeoutError:
            log.warning("cluster copy: stopped after %g s, the next start tries again", COPY_SECONDS)
        except (MasterRefusedError, RemotingError, ProtocolError, RequestRefusedError) as error:
            log.warning("cluster copy: failed, the next start tries again: %s", error)
        finally:
            await client.close()

    async def _copy(self, client: RemotingClient) -> None:
        info = await self._cluster(client)
        peers = _masters(info, self._config.broker_cluster_name, self._config.broker_name)
        if not peers:
            log.info("cluster copy: no other master in cluster %s", self._config.broker_cluster_name)
            return
        topics: dict[str, TopicConfig] = {}
        groups: dict[str, SubscriptionGroupConfig] = {}
        modes: list[SetMessageRequestModeRequestBody] = []
        names = set(info.broker_addr_table) | set(info.cluster_addr_table)
        for name, address in peers.items():
            try:
                await self._read(MasterClient(address, client), names, topics, groups, modes)
            except (MasterRefusedError, RemotingError, ProtocolError) as error:
                log.warning("cluster copy: skipped broker %s: %s", name, error)
        await self._add(topics.values(), groups.values(), modes)
        log.info("cluster copy: %d topics and %d groups from %s", len(topics), len(groups), ", ".join(peers))

    async def _cluster(self, client: RemotingClient) -> ClusterInfo:
        error: Exception = RemotingError("no name server is configured")
        for address in self._config.name_servers:
            try:
                answer = await client.call(address, Command(RequestCode.GET_BROKER_CLUSTER_INFO), ASK_SECONDS)
                if answer.code == ResponseCode.SUCCESS:
                    return ClusterInfo.decode(answer.body or b"{}")
                error = MasterRefusedError(f"name server {address} answered with code {answer.code}")
            except (RemotingError, ProtocolError) as failure:
                error = failure
        raise error

    async def _read(
        self,
        peer: MasterClient,
        names: set[str],
        topics: dict[str, TopicConfig],
        groups: dict[str, SubscriptionGroupConfig],
        modes: list[SetMessageRequestModeRequestBody],
    ) -> None:
        """Add what a peer has. Where peers differ, the topic with the most queues counts, and the first group."""
        table = await peer.topics(None, 0)
        group_table = await peer.groups(None, 0)
        assert table is not None, "no version was known"
        assert group_table is not None, "no version was known"
        for name, config in table.topic_config_table.items():
            is_static = name in table.topic_queue_mapping_detail_map
            if is_static or not self._is_users(name, names) or topic_problem(config) is not None:
                continue
            known = topics.get(name)
            if known is None or config.write_queue_nums > known.write_queue_nums:
                topics[name] = config
        for name, group in group_table.subscription_group_table.items():
            if name not in self._groups.configs:
                groups.setdefault(name, group)
        request_modes = (await peer.request_modes()).message_request_mode_map
        modes += [mode for by_group in request_modes.values() for mode in by_group.values()]

    def _is_users(self, topic: str, names: set[str]) -> bool:
        """False for a topic that each broker has or creates itself. ``names``: those of brokers and clusters."""
        return not (
            self._topics.is_system_topic(topic)
            or topic.startswith((RETRY_PREFIX, DLQ_PREFIX))
            or topic.removesuffix(REPLY_TOPIC_POSTFIX) in names
        )

    async def _add(
        self,
        topics: Iterable[TopicConfig],
        groups: Iterable[SubscriptionGroupConfig],
        modes: Iterable[SetMessageRequestModeRequestBody],
    ) -> None:
        missing = [config for config in topics if config.topic_name not in self._topics.configs]
        wanted = list(groups)
        self._topics.check_room(len(missing))
        self._groups.check_room(len(wanted))
        if missing:
            self._topics.update(*missing)
        if wanted:
            self._groups.update(*wanted)
        for mode in modes:
            self._assignments.set(mode)
        await self._writer.saved(TOPICS, SUBSCRIPTION_GROUPS)


def _masters(info: ClusterInfo, cluster: str, own_name: str) -> dict[str, str]:
    """Addresses of the other masters of a cluster, by broker name."""
    names = sorted(set(info.cluster_addr_table.get(cluster, ())) - {own_name})
    found = {name: info.broker_addr_table[name].broker_addrs for name in names if name in info.broker_addr_table}
    return {name: addresses[MASTER_ID] for name, addresses in found.items() if MASTER_ID in addresses}
