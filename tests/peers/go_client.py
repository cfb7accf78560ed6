"""Apache's Go client (``rocketmq-client-go``) as a peer: fetched and built once, then told what to do."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
import shutil
from pathlib import Path

from peers.agent import Agent, Received, received
from peers.cache import filled
from peers.process import PeerError, run

_MODULE = Path(__file__).with_name("go")
_BUILD_SECONDS = 240

FOUND, NO_NEW_MESSAGE, NO_MATCHED_MESSAGE, OFFSET_ILLEGAL = range(4)
"""The states of a pull."""


@functools.cache
def available() -> str | None:
    """None if the Go client can be run here, otherwise the reason in one sentence."""
    return why_not_built(_MODULE, "the Go client")


def why_not_built(module: Path, name: str) -> str | None:
    """None if a Go module could be built, otherwise the reason in one sentence."""
    if shutil.which("go") is None:
        return f"{name} takes the Go toolchain (go), which is not on the PATH"
    try:
        program(module)
    except PeerError as error:
        lines = [line for line in re.sub(r"https?://\S+", "", str(error)).splitlines() if line.strip()]
        return f"{name} could not be built: {(lines or ['no reason was given'])[-1][:300]}"
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class Pulled:
    """The answer to one pull."""

    status: int
    next_begin: int
    minimum: int
    maximum: int
    messages: list[Received]


class GoClient(Agent):
    """A process with any number of producers and consumers of the Go client."""

    def __init__(self, *, home: Path, nameserver: str) -> None:
        super().__init__(
            "Go client",
            [str(program(_MODULE)), nameserver],
            home=home,
            environment={"ROCKETMQ_GO_LOG_LEVEL": "warn"},
        )

    def create_topic(self, topic: str, *, broker: str, queues: int = 4, perm: int = 6) -> str:
        """Create a topic at the broker with this address and return its name."""
        self.ask("createTopic", topic=topic, broker=broker, queues=queues, perm=perm)
        return topic

    def delete_topic(self, topic: str, *, broker: str) -> None:
        self.ask("deleteTopic", topic=topic, broker=broker)

    def topics(self) -> set[str]:
        """The names of all topics that the name server knows."""
        return set(self.ask("topics"))

    def publish_queues(self, topic: str) -> set[tuple[str, int]]:
        """The queues of a topic to send to, as broker names and queue ids."""
        return {(row["broker"], row["queueId"]) for row in self.ask("publishQueues", topic=topic)}

    def groups(self, broker: str) -> set[str]:
        """The names of the subscription groups of the broker with this address."""
        return set(self.ask("groups", broker=broker))

    def puller(self, name: str, topic: str, *, group: str, expression: str = "*", kind: str = "TAG") -> str:
        """Start a pull consumer and return its name."""
        self.ask("puller", name=name, topic=topic, group=group, expression=expression, type=kind)
        return name

    def pull_from(self, puller: str, *, broker: str, queue: int, offset: int, count: int = 32) -> Pulled:
        """Pull once from a queue of the broker with this name."""
        row = self.ask("pullFrom", name=puller, broker=broker, queue=queue, offset=offset, count=count)
        return Pulled(
            status=row["status"],
            next_begin=row["nextBegin"],
            minimum=row["minimum"],
            maximum=row["maximum"],
            messages=[received(message) for message in row["messages"] or ()],
        )

    def commit(self, puller: str, *, broker: str, queue: int, offset: int) -> None:
        """Store an offset of the group at the broker."""
        self.ask("commit", name=puller, broker=broker, queue=queue, offset=offset)

    def committed(self, puller: str, *, broker: str, queue: int) -> int:
        """The offset of the group, which the broker is asked for unless the consumer knows it."""
        return int(self.ask("committed", name=puller, broker=broker, queue=queue))


@functools.cache
def program(module: Path) -> Path:
    """The program of a Go module, built once."""
    contents = hashlib.sha256()
    for file in sorted(file for file in module.iterdir() if file.suffix in {".go", ".mod", ".sum"}):
        contents.update(file.read_bytes())

    def build(folder: Path) -> None:
        command = ["env", f"--chdir={module}", "go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath"]
        command += ["-o", str(folder / "peer"), "."]
        run(command, environment={"CGO_ENABLED": "0"}, seconds=_BUILD_SECONDS)

    return filled(f"{module.name}-{contents.hexdigest()[:12]}", build) / "peer"
