"""Subscription groups: the persisted settings of consumer groups, and the topics that are forbidden to them.

Like the topic table: ``configs`` is one dict for the lifetime of the table, read for every pull; a changed group is
replaced by another object; each change bumps the data version and is written to ``subscriptionGroup.json``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.broker.clients.shares import NamedShares
from orbitmq.broker.fast_path.epoch import RouteEpoch
from orbitmq.broker.metadata.data_version import first_version, next_version, version_of_epoch
from orbitmq.broker.metadata.topics import name_complaint
from orbitmq.platform.limit_counts import Limit
from orbitmq.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from orbitmq.protocol.broker_events import EventKind
from orbitmq.protocol.message.flags import PERM_READ
from orbitmq.protocol.names import GROUPS_OF_A_NEW_BROKER, MAX_GROUP_LENGTH, SYSTEM_GROUP_PREFIX
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.store.config_tables import SUBSCRIPTION_GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.config.persistence import ConfigWriter
    from orbitmq.protocol.bodies import DataVersion
    from orbitmq.store import Clock

log = logging.getLogger("orbitmq.broker")

MAX_GROUPS = 50_000
"""Equal to the limit of topics, of which each group takes one for retries. Bounds memory: clients that pull with
invented names create groups."""

MAX_FORBIDDEN = 50_000
"""Pairs of group and topic that may be forbidden; they are stored for groups that do not exist, too."""


def group_name_problem(group: str) -> str | None:
    """The problem with a group name, in RocketMQ's words; None if it is valid."""
    complaint = name_complaint("group", group)
    if complaint is None and len(group) > MAX_GROUP_LENGTH:
        return f"The specified group: {group}, is longer than group max length: {MAX_GROUP_LENGTH}"
    return complaint


class GroupTable:
    """All subscription groups of a broker. ``configs`` is the same dict for the lifetime of the table; do not write
    to it."""

    def __init__(
        self, writer: ConfigWriter, config: BrokerConfig, clock: Clock, route_epoch: RouteEpoch | None = None
    ) -> None:
        self._writer = writer
        self._config = config
        self._clock = clock
        self.configs: dict[str, SubscriptionGroupConfig] = {
            name: SubscriptionGroupConfig(name) for name in GROUPS_OF_A_NEW_BROKER
        }
        self.forbidden_table: dict[str, dict[str, int]] = {}
        """By group and topic, bits of forbidden operations. Nearly always empty."""
        self.data_version = first_version(clock)
        self._route_epoch = route_epoch or RouteEpoch()
        self._is_full_logged = False
        self.on_event: Callable[[EventKind, str, str], None] | None = None
        """Gets new, changed and deleted groups."""
        self.shares = NamedShares(
            "consumer groups",
            config,
            lambda: MAX_GROUPS,
            self.configs,
            lambda: len(self.configs),
            counted=Limit.CONSUMER_GROUPS,
        )

    def load(self) -> None:
        """Load ``subscriptionGroup.json``; its entries replace defaults. Raises StoreError."""
        table = self._writer.load(SUBSCRIPTION_GROUPS)
        self.configs.update(table.subscription_group_table)
        self.forbidden_table.update(table.forbidden_table)
        if table.subscription_group_table:
            self.data_version = table.data_version
            self._route_epoch.advance()

    def persist(self) -> None:
        """Write the table, even if it has not changed."""
        self._writer.mark(SUBSCRIPTION_GROUPS, self._copied, is_copy=True)

    def find(self, group: str, client: str = "") -> SubscriptionGroupConfig | None:
        """A group, auto-created with default settings if allowed; None if it does not exist.

        ``client``: remote address of the client that needs it, if there is one. Raises RequestRefusedError then if
        the limit of groups, or the share of this client, is reached.
        """
        present = self.configs.get(group)
        if present is not None:
            return present
        config = self._config
        may_be_made = config.auto_create_subscription_group or (
            config.enable_create_sys_group and group.startswith(SYSTEM_GROUP_PREFIX)
        )
        if not may_be_made or group_name_problem(group) is not None:
            return None
        if client:
            self.shares.check(client)
        elif len(self.configs) >= MAX_GROUPS:
            # Refused consumers retry at once, all of them: one log line is enough.
            if not self._is_full_logged:
                log.warning(
                    "groups: group limit (%d) reached, auto-creation of consumer groups disabled", MAX_GROUPS
                )
            self._is_full_logged = True
            return None
        made = SubscriptionGroupConfig(group)
        self.update(made)
        self.shares.created(client, group)
        return made

    def check_room(self, count: int) -> None:
        """Raise RequestRefusedError if so many more groups exceed the limit."""
        if count > 0 and len(self.configs) + count > MAX_GROUPS:
            raise RequestRefusedError(
                f"group limit reached: this broker has {len(self.configs)} groups, "
                f"at most {MAX_GROUPS} are allowed: delete some"
            )

    def update(self, *configs: SubscriptionGroupConfig) -> None:
        """Add or replace groups; one call for a change of several."""
        new = {config.group_name for config in configs} - self.configs.keys()
        for config in configs:
            self.configs[config.group_name] = config
            self._next_version()
        self.persist()
        if self.on_event is not None:
            for config in configs:
                name = config.group_name
                self.on_event(EventKind.GROUP_CREATE if name in new else EventKind.GROUP_CHANGE, name, "")

    def delete(self, group: str) -> bool:
        """Delete a group and its forbidden topics; False if it does not exist."""
        forbidden = self.forbidden_table.pop(group, None)
        if self.configs.pop(group, None) is None and forbidden is None:
            return False
        self._is_full_logged = False
        self._next_version()
        self.persist()
        if self.on_event is not None:
            self.on_event(EventKind.GROUP_DELETE, group, "")
        return True

    # Forbidden topics

    def forbidden(self, group: str, topic: str) -> int:
        """Bits of operations that a group must not perform on a topic: 4 is reading."""
        topics = self.forbidden_table.get(group)
        return 0 if topics is None else topics.get(topic, 0)

    def is_forbidden(self, group: str, topic: str) -> bool:
        """True if a group must not read a topic."""
        return bool(self.forbidden_table) and bool(self.forbidden(group, topic) & PERM_READ)

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Allow or forbid a group to read a topic. Raises RequestRefusedError at the limit of forbidden pairs.

        RocketMQ drops all forbidden topics of a group when one is allowed again; here the others stay.
        """
        before = self.forbidden(group, topic)
        bits = before & ~PERM_READ if readable else before | PERM_READ
        if bits == before:
            return
        if not readable and sum(map(len, self.forbidden_table.values())) >= MAX_FORBIDDEN:
            raise RequestRefusedError(
                f"limit of {MAX_FORBIDDEN} forbidden pairs of group and topic reached: allow some"
            )
        topics = self.forbidden_table.setdefault(group, {})
        if bits:
            topics[topic] = bits
        else:
            del topics[topic]
            if not topics:
                del self.forbidden_table[group]
        self._next_version()
        self.persist()

    # Copies on slaves

    def begin_epoch(self, epoch: int) -> None:
        """Mark the table as that of the master of an epoch."""
        self.data_version = version_of_epoch(self.data_version, epoch, self._clock)
        self.persist()

    def follow_version(self, version: DataVersion, forbidden: dict[str, dict[str, int]]) -> None:
        """Take over the data version and the forbidden topics of the master, of whose table this is a copy now."""
        self.forbidden_table.clear()
        self.forbidden_table.update(forbidden)
        self.data_version = version
        self._route_epoch.advance()
        self.persist()

    def _next_version(self) -> None:
        self.data_version = next_version(self.data_version, self._clock)
        self._route_epoch.advance()

    def _copied(self) -> SubscriptionGroupWrapper:
        forbidden = {group: dict(topics) for group, topics in self.forbidden_table.items()}
        return SubscriptionGroupWrapper(dict(self.configs), forbidden, self.data_version)
