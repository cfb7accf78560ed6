"""Limits of the tables that peers fill."""

from __future__ import annotations

import dataclasses

from orbitmq.remoting.processor import RequestRefusedError


@dataclasses.dataclass(frozen=True, slots=True)
class NameServerLimits:
    """A request over a limit is refused with the name of the setting, and changes nothing.

    The size of a single registration is limited by the frame (16 MiB) and the decompressed body (64 MiB), which is
    some hundred thousand topics.
    """

    brokers: int = 10_000
    """Masters and slaves."""

    topics: int = 500_000
    """Topics of all brokers; about 400 bytes each. The same limit applies to static topics, counted per broker."""

    places: int = 2_000_000
    """Pairs of a topic and a broker name; about 150 bytes each. 100 brokers with 20,000 topics."""

    members_of_group: int = 256
    """Brokers of one name. All others are notified when one joins or leaves."""

    name_length: int = 1024
    """Characters of a topic, broker, cluster, zone or address. The longest names that brokers make (retry topics
    with group and topic) have some 400."""

    filter_servers: int = 1024
    """Per broker."""

    kv_entries: int = 10_000
    kv_characters: int = 4 * 1024 * 1024
    """Sum over namespaces, keys and values."""

    def check_name(self, what: str, name: str) -> str:
        """The name, if its length is valid. Raises RequestRefusedError."""
        if not name:
            raise RequestRefusedError(f"the {what} is empty")
        if len(name) > self.name_length:
            raise RequestRefusedError(f"the {what} has {len(name)} characters, at most {self.name_length} may be")
        return name
