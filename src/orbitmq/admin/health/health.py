"""Health checks: name servers, masters, slaves, disks, queues, lag and subscriptions of a cluster."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError, ClientOfflineError, NotFoundError
from orbitmq.admin.health.model import Finding, HealthReport, Severity, Thresholds
from orbitmq.admin.session import decode
from orbitmq.protocol.bodies import ClusterInfo
from orbitmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.cluster.runtime import BrokerRuntime, BrokerStatus, ReplicationStatus
    from orbitmq.admin.group.groups import Groups
    from orbitmq.admin.group.members import Members
    from orbitmq.admin.group.model import Connections, GroupSummary
    from orbitmq.admin.message.dead_letters import DeadLetters
    from orbitmq.admin.session import AdminSession
    from orbitmq.admin.topic.topics import Topics

CHECKS = (
    *("nameserver", "master", "broker", "disk", "dispatch", "send-queue", "slave", "replication"),
    *("lag", "subscription", "topic", "dead-letters"),
)
"""Names of the checks."""


class Health:
    """Checks a cluster, or all."""

    def __init__(
        self,
        session: AdminSession,
        brokers: Brokers,
        topics: Topics,
        groups: Groups,
        members: Members,
        dead_letters: DeadLetters,
    ) -> None:
        self._session = session
        self._brokers = brokers
        self._topics = topics
        self._groups = groups
        self._members = members
        self._dead_letters = dead_letters

    async def check(
        self, *, cluster: str = "", thresholds: Thresholds | None = None, only: Sequence[str] = ()
    ) -> HealthReport:
        """The findings of all checks, or of ``only`` those named. Raises AdminError if no name server responds."""
        limits = thresholds or Thresholds()
        findings = await self._name_servers()
        statuses = await self._brokers.all(cluster)
        findings += _roles(statuses)
        for status in statuses:
            findings += _broker(status, limits)
        findings += await self._replication(statuses, limits)
        skipped: list[str] = []
        groups: list[GroupSummary] = []
        parts = (self._lag(cluster, limits, groups, skipped), self._topic_settings(cluster))
        for part in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(part, AdminError):
                skipped.append(str(part))
            elif isinstance(part, BaseException):
                raise part
            else:
                findings += part
        if limits.dead_letters_warning > 0:
            findings += await self._dead(cluster, limits)
        chosen = [one for one in findings if not only or one.check in only]
        chosen.sort(key=lambda one: (-one.severity, one.check, one.subject))
        return HealthReport(tuple(chosen), len(statuses), len(groups), tuple(skipped))

    # Name servers

    async def _name_servers(self) -> list[Finding]:
        addresses = self._session.config.name_servers

        async def fetch(address: str) -> ClusterInfo:
            code = RequestCode.GET_BROKER_CLUSTER_INFO
            return decode(ClusterInfo, await self._session.call(address, code), address)

        done, failed = await self._session.gather(addresses, fetch)
        if not done:
            raise next(iter(failed.values()))
        found = [
            Finding(Severity.WARNING, "nameserver", address, "does not respond: clients use the others")
            for address in failed
        ]
        known = {
            address: {host for data in info.broker_addr_table.values() for host in data.broker_addrs.values()}
            for address, info in done.items()
        }
        everywhere = set().union(*known.values())
        for address, hosts in known.items():
            if missing := sorted(everywhere - hosts):
                text = f"does not know {', '.join(missing)}, which other name servers do"
                found.append(Finding(Severity.WARNING, "nameserver", address, text))
        return found

    # Replication

    async def _replication(self, statuses: Sequence[BrokerStatus], limits: Thresholds) -> list[Finding]:
        masters = [one for one in statuses if one.broker.is_master and one.runtime is not None]
        registered: dict[str, int] = {}
        for one in statuses:
            if not one.broker.is_master:
                registered[one.broker.broker_name] = registered.get(one.broker.broker_name, 0) + 1
        names = {one.broker.address: one.broker.broker_name for one in masters}
        done, _ = await self._session.gather(names, self._brokers.replication)
        expected, _ = await self._session.gather(done, self._replicas)
        return [
            finding
            for address, state in done.items()
            for finding in _slaves(
                names[address], state, registered.get(names[address], 0), expected.get(address, 0), limits
            )
        ]

    async def _replicas(self, address: str) -> int:
        """The number of replicas that a broker is configured for."""
        text = (await self._brokers.settings(address)).get("totalReplicas", "1")
        return int(text) if text.isdecimal() else 1

    # Groups

    async def _lag(
        self, cluster: str, limits: Thresholds, groups: list[GroupSummary], skipped: list[str]
    ) -> list[Finding]:
        groups += await self._groups.all(cluster=cluster, with_lag=True)
        if len(groups) > limits.max_groups:
            skipped.append(f"subscriptions are compared for {limits.max_groups} of {len(groups)} groups")
        # Those that lag first: they are what an operator looks for.
        chosen = sorted(groups, key=lambda one: -(one.lag or 0))[: max(0, limits.max_groups)]
        online, _ = await self._session.gather([one.name for one in chosen], self._connections)
        found = []
        for one in groups:
            lag = one.lag or 0
            critical = 0 < limits.lag_critical <= lag
            if critical or 0 < limits.lag_warning <= lag:
                members = online.get(one.name)
                state = "no member is connected" if one.name in online and members is None else "it is consuming"
                text = f"{lag:,} messages are not consumed, and {state}"
                found.append(Finding(Severity.CRITICAL if critical else Severity.WARNING, "lag", one.name, text))
        return found + await self._subscriptions(online)

    async def _connections(self, group: str) -> Connections | None:
        try:
            return await self._members.connections(group)
        except (ClientOfflineError, NotFoundError):
            return None

    async def _subscriptions(self, online: Mapping[str, Connections | None]) -> list[Finding]:
        several = {group: found for group, found in online.items() if found is not None and len(found.members) > 1}
        checks, _ = await self._session.gather(
            several, lambda group: self._members.check_subscriptions(group, several[group])
        )
        found = []
        for group, check in checks.items():
            if not check.agree:
                text = (
                    f"its {len(check.by_member)} members subscribe differently, so some messages reach a member "
                    "that does not want them: give all members the same topics and expressions"
                )
                found.append(Finding(Severity.CRITICAL, "subscription", group, text))
        return found

    async def _topic_settings(self, cluster: str) -> list[Finding]:
        return [
            Finding(
                Severity.WARNING,
                "topic",
                topic.name,
                f"its permission, order or attributes differ between {', '.join(topic.brokers)}",
            )
            for topic in await self._topics.all(cluster=cluster)
            if not topic.is_consistent
        ]

    async def _dead(self, cluster: str, limits: Thresholds) -> list[Finding]:
        return [
            Finding(Severity.WARNING, "dead-letters", one.group, f"{one.messages:,} messages were given up")
            for one in await self._dead_letters.all(cluster=cluster)
            if one.messages >= limits.dead_letters_warning
        ]


def _roles(statuses: Sequence[BrokerStatus]) -> list[Finding]:
    if not statuses:
        return [Finding(Severity.CRITICAL, "master", "cluster", "no broker is registered at the name server")]
    masters = {one.broker.broker_name for one in statuses if one.broker.is_master}
    return [
        Finding(Severity.CRITICAL, "master", name, "has no master: nothing can be sent to it")
        for name in sorted({one.broker.broker_name for one in statuses} - masters)
    ]


def _broker(status: BrokerStatus, limits: Thresholds) -> list[Finding]:
    broker = status.broker
    where = f"{broker.broker_name} ({broker.address})"
    if status.runtime is None:
        if broker.is_master:
            return [Finding(Severity.CRITICAL, "broker", where, f"the master does not respond: {status.reason}")]
        return [Finding(Severity.CRITICAL, "slave", where, f"slave {broker.broker_id} is dead: {status.reason}")]
    runtime = status.runtime
    found = []
    if not runtime.is_active and broker.is_master:
        found.append(Finding(Severity.WARNING, "broker", where, "is not active: it refuses requests"))
    found += _disk(where, runtime, limits)
    if 0 < limits.dispatch_warning <= runtime.dispatch_behind_bytes:
        text = f"consume queues are {runtime.dispatch_behind_bytes:,} bytes behind the log: messages appear late"
        found.append(Finding(Severity.WARNING, "dispatch", where, text))
    if 0 < limits.waiting_sends_warning <= runtime.send_queue_size:
        text = f"{runtime.send_queue_size:,} sends wait: the broker is overloaded"
        found.append(Finding(Severity.WARNING, "send-queue", where, text))
    return found


def _disk(where: str, runtime: BrokerRuntime, limits: Thresholds) -> list[Finding]:
    used = max(runtime.disk_ratio, runtime.queue_disk_ratio)
    critical = 0 < limits.disk_critical <= used
    if not critical and not 0 < limits.disk_warning <= used:
        return []
    text = f"the disk is {used:.0%} full: brokers refuse sends before it is full"
    return [Finding(Severity.CRITICAL if critical else Severity.WARNING, "disk", where, text)]


def _slaves(
    name: str, state: ReplicationStatus, registered: int, replicas: int, limits: Thresholds
) -> list[Finding]:
    found = []
    connected = len(state.slaves)
    if connected < max(registered, replicas - 1):
        text = f"{connected} of {max(registered, replicas - 1)} slaves replicate: the others are dead or cut off"
        found.append(Finding(Severity.WARNING, "slave", name, text))
    for slave in state.slaves:
        if 0 < limits.replication_warning <= slave.lag_bytes:
            text = f"the slave {slave.address} is {slave.lag_bytes:,} bytes behind"
            found.append(Finding(Severity.WARNING, "replication", name, text))
    return found
