"""The parameters of a replay, checked: messages, target and rate."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from typing import Any

from orbitmq.spark.errors import OptionError
from orbitmq.spark.sink.options import SinkOptions

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Of a replay: a file is called so, and a property of every message holds it."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """All parameters of a replay."""

    archive: str
    topics: tuple[str, ...]
    nameserver: str | None = None
    start_ms: int | None = None
    until_ms: int | None = None
    """Messages that were stored at or after the one, before the other."""
    rate: float | None = None
    """Messages in a second."""
    pace: float | None = None
    """How many times as fast as they once were stored."""
    to_topic: str | None = None
    """For all messages; None: each to a topic of the name that it came from."""
    name: str | None = None
    senders: int | None = None
    state: str | None = None
    """A directory for what is known of it; None: the archive's own."""
    again: bool = False

    def __post_init__(self) -> None:
        """Raises OptionError."""
        if not self.topics:
            raise OptionError("say which topics to replay")
        if self.rate is not None and self.pace is not None:
            raise OptionError("a replay has a rate or a pace, not both")
        for name, value in (("rate", self.rate), ("pace", self.pace)):
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise OptionError(f"a {name} of {value:g} sends nothing: it is a number above 0")
        if self.senders is not None and self.senders < 1:
            raise OptionError(f"{self.senders} senders send nothing: it is 1 or more")
        if self.name is not None and not NAME.fullmatch(self.name):
            raise OptionError(
                f"{self.name!r} cannot be the name of a replay: it is up to 100 letters, digits, dots, dashes and "
                "underscores"
            )
        start, until = self.start_ms, self.until_ms
        if start is not None and until is not None and start >= until:
            raise OptionError("nothing was stored from a time until an earlier one: swap them")

    @property
    def writing(self) -> SinkOptions:
        """The options of the writer. Raises OptionError for invalid name servers or topics."""
        given = {} if self.nameserver is None else {"nameserver": self.nameserver}
        for topic in [self.to_topic] if self.to_topic is not None else self.topics:
            made = SinkOptions.of({**given, "topic": topic})
        # Every row names its topic and queue.
        return dataclasses.replace(made, topic=None, keep_queue=True)

    @property
    def what(self) -> dict[str, Any]:
        """The parameters that identify the replay. The rate is not among them: it may change."""
        return {
            "topics": sorted(set(self.topics)),
            "from": self.start_ms,
            "until": self.until_ms,
            "to_topic": self.to_topic,
            "nameserver": sorted(self.writing.name_servers),
        }

    def name_for(self, root: str) -> str:
        """The given name, or one that is derived from the request and the archive at ``root``."""
        if self.name is not None:
            return self.name
        text = json.dumps([root, self.what], sort_keys=True)
        return f"replay-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
