"""The limit of everything that peers can make a name server keep."""

from __future__ import annotations

import dataclasses

from orbitmq.remoting.processing import RequestRefusedError


@dataclasses.dataclass(frozen=True, slots=True)
class NameServerLimits:
    """What does not fit is refused with a sentence that names the limit, and nothing of it is kept.

    How large a single registration may be is a matter of the frame (16 MiB) and of what a compressed one may
    inflate to (64 MiB), which is some hundred thousand topics.
    """

    brokers: int = 10_000
    """Masters and slaves together."""

    topics: int = 500_000
    """Of all brokers; about 400 bytes each. So many static topics, counted by broker, are kept besides."""

    name_length: int = 1024
    """Characters of a topic, broker, cluster, zone or address. The longest that brokers make (a retry topic with
    its group and its topic in the name) have some 400."""

    filter_servers: int = 1024
    """Of one broker."""

    kv_entries: int = 10_000
    kv_characters: int = 4 * 1024 * 1024
    """Namespaces, keys and values together."""

    def check_name(self, what: str, name: str) -> str:
        """The name, if it is one."""
        if not name:
            raise RequestRefusedError(f"the {what} is empty")
        if len(name) > self.name_length:
            raise RequestRefusedError(f"the {what} has {len(name)} characters, at most {self.name_length} may be")
        return name
