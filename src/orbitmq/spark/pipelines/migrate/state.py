"""The state of a migration between two runs: a directory with a small file for each round.

A round is written down before it copies anything: which offsets of which queues, where they go, and where the
target's queues end. A round that was interrupted is found unfinished by the next run, which does the rest of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow.fs as pafs

from orbitmq.spark.pipelines.archive.directory import Archive
from orbitmq.spark.pipelines.migrate.endpoints import Queue, Span
from orbitmq.spark.pipelines.run_lock import run_lock
from orbitmq.spark.pipelines.spark_job import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

WHAT = "migration.json"
LOCK = "lock"
_DAMAGED = (orjson.JSONDecodeError, KeyError, TypeError, ValueError, IndexError)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round."""

    number: int
    spans: tuple[Span, ...]
    routes: Mapping[Queue, Queue]
    """By source queue the one that its messages go to."""
    ends: Mapping[Queue, int]
    """Of the queues of all target topics before it began."""
    began_ms: int = dataclasses.field(default_factory=lambda: round(time.time() * 1000))
    is_done: bool = False
    is_verified: bool = False

    def to_json(self) -> bytes:
        fields = {
            "round": self.number,
            "began": self.began_ms,
            "done": self.is_done,
            "verified": self.is_verified,
            "ranges": [_span(span, self.routes[span.queue]) for span in self.spans],
            "ends": [[queue.topic, queue.name, end] for queue, end in sorted(self.ends.items())],
        }
        return orjson.dumps(fields, option=orjson.OPT_INDENT_2)

    @classmethod
    def from_json(cls, data: bytes) -> Round:
        """Raises PipelineError."""
        try:
            fields: dict[str, Any] = orjson.loads(data)
            spans = [Span(Queue(row["topic"], row["queue"]), row["start"], row["end"]) for row in fields["ranges"]]
            return cls(
                number=int(fields["round"]),
                spans=tuple(spans),
                routes={
                    Queue(row["topic"], row["queue"]): Queue(row["to_topic"], row["to_queue"])
                    for row in fields["ranges"]
                },
                ends={Queue(*row[:2]): int(row[2]) for row in fields["ends"]},
                began_ms=int(fields["began"]),
                is_done=bool(fields["done"]),
                is_verified=bool(fields["verified"]),
            )
        except _DAMAGED as error:
            raise PipelineError(f"a round of a migration is damaged: {error!r}") from error


class Migration:
    """The directory of one migration: a path, or any address that pyarrow supports, such as ``s3://…``."""

    def __init__(self, state: str, name: str) -> None:
        """Raises ArchiveError for a directory that cannot be."""
        self.name = name
        self._place = Archive(state)
        self._folder = self._place.within(name)

    # What it is

    def what(self) -> dict[str, Any] | None:
        """The parameters of the first run; None if there was none. Raises PipelineError, OSError."""
        data = self._read(WHAT)
        try:
            return None if data is None else dict(orjson.loads(data))
        except _DAMAGED as error:
            raise PipelineError(f"{self._path(WHAT)} is damaged: {error!r}") from error

    def begin(self, what: Mapping[str, Any]) -> None:
        self._write(WHAT, orjson.dumps(what, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS))

    def check(self, what: Mapping[str, Any]) -> None:
        """Raises PipelineError if it was begun as something else."""
        before = self.what()
        for name, value in what.items() if before is not None else ():
            if before is not None and before.get(name) != value:
                raise PipelineError(
                    f"there is a migration {self.name!r} of something else: its {name!r} is "
                    f"{before.get(name)}, not {value}; give this one another --name"
                )

    # Its rounds

    def rounds(self) -> list[Round]:
        """In their order. Raises PipelineError, OSError."""
        if not self._place.has(self._folder):
            return []
        found = self._place.files.get_file_info(pafs.FileSelector(self._folder))
        names = sorted(info.base_name for info in found if info.base_name.removesuffix(".json").isdecimal())
        rounds = []
        for number, name in enumerate(names, 1):
            one = Round.from_json(self._read(name) or b"")
            if one.number != number or name != _file(number):
                raise PipelineError(f"round {number} of the migration {self.name!r} is missing in {self._folder}")
            rounds.append(one)
        return rounds

    def write(self, one: Round) -> None:
        """At once or not at all. Raises OSError."""
        self._write(_file(one.number), one.to_json())

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """One run at a time, where files can be locked. Raises PipelineError, OSError."""
        if not self._place.is_local:
            yield
            return
        self._place.files.create_dir(self._folder, recursive=True)
        with run_lock(self._path(LOCK), f"the migration {self.name!r} is being run"):
            yield

    def _path(self, file: str) -> str:
        return f"{self._folder.rstrip('/')}/{file}"

    def _read(self, file: str) -> bytes | None:
        path = self._path(file)
        if not self._place.has(path):
            return None
        with self._place.files.open_input_stream(path) as source:
            return bytes(source.read())

    def _write(self, file: str, data: bytes) -> None:
        self._place.files.create_dir(self._folder, recursive=True)
        path = self._path(file)
        with self._place.files.open_output_stream(f"{path}.new") as out:
            out.write(data)
        self._place.make_durable(f"{path}.new")
        self._place.files.move(f"{path}.new", path)
        self._place.make_durable(self._folder)


def _file(number: int) -> str:
    return f"{number:08d}.json"


def _span(span: Span, to: Queue) -> dict[str, Any]:
    return {
        "topic": span.queue.topic,
        "queue": span.queue.name,
        "start": span.start,
        "end": span.end,
        "to_topic": to.topic,
        "to_queue": to.name,
    }
