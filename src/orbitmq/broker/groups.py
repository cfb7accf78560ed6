"""The consumer groups of a broker: their settings, and which topics are forbidden to them.

Like the table of topics: ``configs`` is one dict for ever, read for every pull; a group that changes is replaced by
another object; each change has a number and is marked to be written to ``subscriptionGroup.json``.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.broker.table_versions import first_version, next_version
from orbitmq.broker.topics import name_complaint
from orbitmq.protocol.bodies import SubscriptionGroupConfig, SubscriptionGroupWrapper
from orbitmq.protocol.flags import PERM_READ
from orbitmq.protocol.names import GROUPS_OF_A_NEW_BROKER, MAX_GROUP_LENGTH, SYSTEM_GROUP_PREFIX
from orbitmq.remoting.processing import RequestRefusedError
from orbitmq.store.config_json import SUBSCRIPTION_GROUPS

if TYPE_CHECKING:
    from orbitmq.broker.config import BrokerConfig
    from orbitmq.broker.config_writer import ConfigWriter
    from orbitmq.store import Clock

log = logging.getLogger("orbitmq.broker")

MAX_GROUPS = 50_000
"""As many as topics, of which each group takes one for its retries; and for the same reason: whoever pulls under
invented names makes groups."""

MAX_FORBIDDEN = 50_000
"""Pairs of group and topic that may be forbidden; they are kept for groups that do not exist, too."""


def group_name_problem(group: str) -> str | None:
    """What is wrong with the name of a group, in RocketMQ's words; None if nothing is."""
    complaint = name_complaint("group", group)
    if complaint is None and len(group) > MAX_GROUP_LENGTH:
        return f"The specified group: {group}, is longer than group max length: {MAX_GROUP_LENGTH}"
    return complaint


class GroupTable:
    """All consumer groups of a broker. ``configs`` stays the same dict for ever; do not write to it."""

    def __init__(self, writer: ConfigWriter, config: BrokerConfig, clock: Clock) -> None:
        self._writer = writer
        self._config = config
        self._clock = clock
        self.configs: dict[str, SubscriptionGroupConfig] = {
            name: SubscriptionGroupConfig(name) for name in GROUPS_OF_A_NEW_BROKER
        }
        self.forbidden_table: dict[str, dict[str, int]] = {}
        """By group and topic, the bits of what is forbidden. Empty nearly always."""
        self.data_version = first_version(clock)
        self._told_full = False

    def load(self) -> None:
        """Read ``subscriptionGroup.json``; what stands there wins. Raises StoreError."""
        table = self._writer.load(SUBSCRIPTION_GROUPS)
        self.configs.update(table.subscription_group_table)
        self.forbidden_table.update(table.forbidden_table)
        if table.subscription_group_table:
            self.data_version = table.data_version

    def persist(self) -> None:
        """Write the table, also if nothing changed."""
        self._writer.mark(SUBSCRIPTION_GROUPS, self._wrapped)

    def find(self, group: str) -> SubscriptionGroupConfig | None:
        """A group, made with the usual settings if it is new and may be; None if it may not."""
        present = self.configs.get(group)
        if present is not None:
            return present
        config = self._config
        may_be_made = config.auto_create_subscription_group or (
            config.enable_create_sys_group and group.startswith(SYSTEM_GROUP_PREFIX)
        )
        if not may_be_made or group_name_problem(group) is not None:
            return None
        if len(self.configs) >= MAX_GROUPS:
            # Consumers that are turned away come back at once, all of them: once in the log is enough.
            if not self._told_full:
                log.warning("there are %d groups: no further ones are made for who asks by a new name", MAX_GROUPS)
            self._told_full = True
            return None
        made = SubscriptionGroupConfig(group)
        self.update(made)
        return made

    def check_room(self, count: int) -> None:
        """Raises RequestRefusedError if there cannot be so many groups more."""
        if count > 0 and len(self.configs) + count > MAX_GROUPS:
            raise RequestRefusedError(
                f"this broker has {len(self.configs)} groups, and {MAX_GROUPS} at most are allowed: delete some"
            )

    def update(self, *configs: SubscriptionGroupConfig) -> None:
        """Put groups in place of what was there under their names; what belongs together has one call."""
        for config in configs:
            self.configs[config.group_name] = config
            self._next_version()
        self.persist()

    def delete(self, group: str) -> bool:
        """Forget a group and what is forbidden to it; False if there is none."""
        forbidden = self.forbidden_table.pop(group, None)
        if self.configs.pop(group, None) is None and forbidden is None:
            return False
        self._told_full = False
        self._next_version()
        self.persist()
        return True

    # What is forbidden

    def forbidden(self, group: str, topic: str) -> int:
        """The bits of what a group may not do with a topic: 4 is to read."""
        topics = self.forbidden_table.get(group)
        return 0 if topics is None else topics.get(topic, 0)

    def is_forbidden(self, group: str, topic: str) -> bool:
        """Whether a group may not read a topic."""
        return bool(self.forbidden_table) and bool(self.forbidden(group, topic) & PERM_READ)

    def set_readable(self, group: str, topic: str, readable: bool) -> None:
        """Say whether a group may read a topic. Raises RequestRefusedError if too much is forbidden already.

        RocketMQ forgets all that is forbidden to a group when one topic is allowed again; here the others stay.
        """
        before = self.forbidden(group, topic)
        bits = before & ~PERM_READ if readable else before | PERM_READ
        if bits == before:
            return
        if not readable and sum(map(len, self.forbidden_table.values())) >= MAX_FORBIDDEN:
            raise RequestRefusedError(
                f"{MAX_FORBIDDEN} topics are forbidden to groups, which is the most: allow some"
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

    def _next_version(self) -> None:
        self.data_version = next_version(self.data_version, self._clock)

    def _wrapped(self) -> SubscriptionGroupWrapper:
        return SubscriptionGroupWrapper(self.configs, self.forbidden_table, self.data_version)
