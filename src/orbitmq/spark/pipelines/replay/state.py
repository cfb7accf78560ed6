"""The state of replays between two runs: a small file for each, beside the segments of its archive.

It is written before the first message is sent, and again when the last one was. How far a replay came in between is
nowhere but in the topics it writes to (``replay_written``), so that nothing can say more or less than they do.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Any

import orjson

from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.pipelines.archive.directory import OWN, Archive
from orbitmq.spark.pipelines.run_lock import run_lock
from orbitmq.spark.pipelines.spark_job import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

REPLAYS = f"{OWN}/replays"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ReplayState:
    """One replay."""

    name: str
    """Also what its messages have as ``REPLAY_ID``."""
    archive: str
    what: Mapping[str, Any]
    """See ReplayRequest."""
    last_segment: int
    """Of the archive: what is archived later is not in it, however often it is gone on with."""
    messages: int
    routes: Mapping[MessageQueue, MessageQueue]
    """By source queue the one that its messages go to."""
    ends: Mapping[MessageQueue, int]
    """Of the queues of its target topics before it began; none of those that were not there."""
    began_ms: int = dataclasses.field(default_factory=lambda: round(time.time() * 1000))
    finished_ms: int | None = None

    def to_json(self) -> bytes:
        fields = {
            "replay": self.name,
            "archive": self.archive,
            "what": self.what,
            "segment": self.last_segment,
            "messages": self.messages,
            "began": self.began_ms,
            "finished": self.finished_ms,
            "routes": [[*_listed(source), *_listed(target)] for source, target in sorted(self.routes.items())],
            "ends": [[*_listed(queue), end] for queue, end in sorted(self.ends.items())],
        }
        return orjson.dumps(fields, option=orjson.OPT_INDENT_2)

    @classmethod
    def from_json(cls, data: bytes) -> ReplayState:
        """Raises PipelineError."""
        try:
            fields: dict[str, Any] = orjson.loads(data)
            return cls(
                name=fields["replay"],
                archive=fields["archive"],
                what=fields["what"],
                last_segment=int(fields["segment"]),
                messages=int(fields["messages"]),
                routes={MessageQueue(*row[:3]): MessageQueue(*row[3:]) for row in fields["routes"]},
                ends={MessageQueue(*row[:3]): int(row[3]) for row in fields["ends"]},
                began_ms=int(fields["began"]),
                finished_ms=fields["finished"],
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, IndexError) as error:
            raise PipelineError(f"what is known of a replay is damaged: {error!r}") from error


class Replays:
    """The directory of these files: the archive's, or one of its own for archives that cannot be written."""

    def __init__(self, archive: Archive, state: str | None = None) -> None:
        """Raises ArchiveError for a directory that cannot be."""
        self._place = archive if state is None else Archive(state)
        self._folder = self._place.within(REPLAYS if state is None else "")

    def last(self, name: str) -> tuple[int, ReplayState | None]:
        """The number of replays with that name, and the last of them. Raises PipelineError, OSError."""
        number, last = 0, None
        while (found := self.read(numbered(name, number + 1))) is not None:
            number, last = number + 1, found
        return number, last

    def read(self, name: str) -> ReplayState | None:
        path = self._path(f"{name}.json")
        if not self._place.has(path):
            return None
        with self._place.files.open_input_stream(path) as source:
            data = source.read()
        try:
            return ReplayState.from_json(data)
        except PipelineError as error:
            raise PipelineError(f"{path}: {error}") from error

    def write(self, state: ReplayState) -> None:
        """At once or not at all. Raises OSError."""
        self._place.files.create_dir(self._folder, recursive=True)
        path = self._path(f"{state.name}.json")
        with self._place.files.open_output_stream(f"{path}.new") as out:
            out.write(state.to_json())
        self._place.make_durable(f"{path}.new")
        self._place.files.move(f"{path}.new", path)
        self._place.make_durable(self._folder)

    @contextlib.contextmanager
    def locked(self, name: str) -> Iterator[None]:
        """One run of a replay at a time, where files can be locked. Raises PipelineError, OSError."""
        if not self._place.is_local:
            yield
            return
        self._place.files.create_dir(self._folder, recursive=True)
        with run_lock(self._path(f"{name}.lock"), f"the replay {name!r} is being run"):
            yield

    def _path(self, file: str) -> str:
        return f"{self._folder.rstrip('/')}/{file}"


def numbered(name: str, number: int) -> str:
    """The name of the first, second … replay under a name. ``--name`` does not accept such an ending."""
    return name if number == 1 else f"{name}~{number}"


def _listed(queue: MessageQueue) -> list[str | int]:
    return [queue.topic, queue.broker_name, queue.queue_id]
