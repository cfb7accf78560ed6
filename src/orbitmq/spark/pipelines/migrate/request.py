"""The parameters of a migration, checked."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

from orbitmq.client.errors import InvalidMessageError
from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.migrate.endpoints import ROCKETMQ, Address
from orbitmq.spark.pipelines.migrate.plan import topics_of
from orbitmq.spark.sink.options import check_topic_of_rows

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Of a migration: a directory is called so, and every message has it."""
MAX_MESSAGES = 1_000_000


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class MigrateRequest:
    """All parameters of a migration."""

    source: str
    target: str
    topics: tuple[str, ...]
    """``name``, or ``name:other`` for a topic that is called otherwise in the target."""
    state: str | None = None
    name: str | None = None
    max_messages: int = MAX_MESSAGES
    """Of one round."""
    verify: bool = True

    def __post_init__(self) -> None:
        """Raises OrbitMQError."""
        source, target = self.source_address, self.target_address
        becomes = self.becomes
        if self.max_messages < 1:
            raise OptionError(f"a round of {self.max_messages} messages copies nothing: it is 1 or more")
        if self.name is not None and not NAME.fullmatch(self.name):
            raise OptionError(
                f"{self.name!r} cannot be the name of a migration: it is up to 100 letters, digits, dots, dashes "
                "and underscores"
            )
        if target.kind == ROCKETMQ:
            for topic in becomes.values():
                try:
                    check_topic_of_rows(topic)
                except InvalidMessageError as error:
                    raise OptionError(f"{error}; write name:other to have it called otherwise") from None
        if str(source) == str(target) and (same := set(becomes) & set(becomes.values())):
            raise OptionError(f"{', '.join(sorted(same))} would be copied into itself: write name:other")

    @property
    def source_address(self) -> Address:
        return Address.of(self.source)

    @property
    def target_address(self) -> Address:
        return Address.of(self.target)

    @property
    def becomes(self) -> dict[str, str]:
        """By source topic the target's."""
        return topics_of(self.topics)

    @property
    def what(self) -> dict[str, Any]:
        """The parameters that identify the migration."""
        return {
            "from": str(self.source_address),
            "to": str(self.target_address),
            "topics": dict(sorted(self.becomes.items())),
        }

    @property
    def known_as(self) -> str:
        """The given name, or one that is derived from the request."""
        if self.name is not None:
            return self.name
        text = json.dumps(self.what, sort_keys=True)
        return f"migrate-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def state_directory(self) -> str:
        if self.state is not None:
            return self.state
        home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        return str(Path(home) / "orbitmq" / "migrations")
