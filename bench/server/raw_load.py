"""The raw load: a Go program that keeps requests in flight on connections, the same for every system."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import select
import shutil
import tempfile
from pathlib import Path
from typing import IO, TYPE_CHECKING

from bench.server.measures import CPU, P50, P99, P999, RATE, Sample
from bench.server.systems import QUEUES
from peers.cache import filled, is_filled
from peers.process import PeerError, PeerProcess, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.server.systems import Server

_SOURCES = Path(__file__).with_name("load")
_PROGRAM = "load"
_BUILD_SECONDS = 180
# The program gives up by itself when a server is silent for 30 s.
_PATIENCE_SECONDS = 60
# Built from what is here and with the Go that is here: nothing is fetched.
_GO_ENVIRONMENT = {"GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=mod", "CGO_ENABLED": "0"}


HEADERS = {"json": "JSON", "binary": "binary", "go": "Go client's", "node": "Node client's", "cpp": "C++ client's"}
"""Which client's headers the program writes, by its option; the first two are the Java client's."""


@dataclasses.dataclass(frozen=True, slots=True)
class RawLoad:
    """Requests of one kind, so many in flight on so many connections."""

    mode: str
    body: int
    connections: int
    in_flight: int
    headers: str = "json"
    tag_every: int = 1
    """A pull wants the messages with a tag that one of so many has."""

    @property
    def name(self) -> str:
        name = f"{self.mode} {self.body} B, {self.connections} × {self.in_flight}, {HEADERS[self.headers]} headers"
        return name if self.tag_every == 1 else f"{name}, the tag of one in {self.tag_every}"

    @property
    def topic(self) -> str:
        """Pulls read messages that were filled in before; sends go to a topic without consumers."""
        return f"Bench-{self.mode}-{self.body}" + ("" if self.tag_every == 1 else f"-{self.tag_every}")


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """The output of the program."""

    messages: int
    requests: int
    failures: int
    seconds: float
    p50_us: float
    p99_us: float
    p999_us: float
    max_us: float
    failure: str = ""
    """The server's response to the first failed request."""
    late_p50_us: float = 0.0
    late_p99_us: float = 0.0
    late_max_us: float = 0.0
    """Of messages that were to come at a certain time, and were read afterwards: how much later they came."""
    early: int = 0
    first_ms: int = 0
    last_ms: int = 0
    """When the log took the first and the last of them."""
    sent: int = 0
    sent_seconds: float = 0.0
    sent_p50_us: float = 0.0
    sent_p99_us: float = 0.0
    sent_p999_us: float = 0.0
    """Of the sends, where the messages are those that followers got of them."""
    start_ms: int = 0
    """By the clock of the day."""
    used_seconds: float = 0.0
    """Processor time of the program itself."""
    series: Sequence[Mapping[str, float]] = ()
    """One entry per interval, if requested: ``seconds``, ``count``, ``p50_us``, ``p999_us``, ``max_us``."""


def finding(message: bytes) -> Finding:
    """Read the line that the program prints at its end."""
    return Finding(**json.loads(message))


def unavailable() -> str | None:
    """None if the program can be built and run here, otherwise the reason in one sentence."""
    if not is_filled(_cache_name()) and shutil.which("go") is None:
        return "building the raw load takes Go (go), which is not on the PATH"
    try:
        program()
    except PeerError as error:
        return f"the raw load could not be built: {str(error).strip().splitlines()[0]}"
    return None


def require() -> None:
    """Fail as a ``PeerError`` that says why, if the program cannot be run here."""
    if reason := unavailable():
        raise PeerError(reason)


def program() -> Path:
    """The program, built once for these sources."""

    def build(folder: Path) -> None:
        command = ["go", "build", "-C", str(_SOURCES), "-trimpath", "-o", str(folder / _PROGRAM), "."]
        run(command, environment=_GO_ENVIRONMENT, seconds=_BUILD_SECONDS)

    return filled(_cache_name(), build) / _PROGRAM


def _cache_name() -> str:
    sources = sorted(path for path in _SOURCES.iterdir() if path.suffix in {".go", ".mod"})
    return f"bench-load-{hashlib.sha256(b''.join(path.read_bytes() for path in sources)).hexdigest()[:12]}"


def fill(load: RawLoad, server: Server, messages: int) -> None:
    """Put so many messages into the topic that a pulling load reads."""
    sending = RawLoad("send", load.body, 8, 64, tag_every=load.tag_every)
    found = _run(sending, load.topic, server, seconds=_PATIENCE_SECONDS, messages=messages)[0]
    if found.messages < messages:
        raise PeerError(f"{server.name} took only {found.messages} of {messages} messages: {found.failure}")


def measure(load: RawLoad, server: Server, seconds: float) -> Sample:
    """One round."""
    return sample(*_run(load, load.topic, server, seconds=seconds))


def sample(found: Finding, used: float) -> Sample:
    """The result of a round of requests that wait for their answers, with the processor time of the server."""
    return Sample(
        {
            RATE: found.messages / max(found.seconds, 1e-3),
            CPU: used / max(found.messages, 1) * 1e6,
            P50: found.p50_us / 1e3,
            P99: found.p99_us / 1e3,
            P999: found.p999_us / 1e3,
        },
        failures=found.failures,
        failure=found.failure,
    )


def send_for(load: RawLoad, server: Server, seconds: float) -> int:
    """Load without measuring; returns how many messages that was."""
    return _run(load, load.topic, server, seconds=seconds)[0].messages


def _run(load: RawLoad, topic: str, server: Server, *, seconds: float, messages: int = 0) -> tuple[Finding, float]:
    """The findings of the program, and the server's processor time in seconds meanwhile."""
    options: dict[str, str | float] = {
        "mode": load.mode,
        "headers": load.headers,
        "connections": load.connections,
        "in-flight": load.in_flight,
        "body": load.body,
        "topic": topic,
        "seconds": seconds,
        "messages": messages,
    }
    if load.tag_every > 1:
        options |= {"tag-every": load.tag_every} if load.mode == "send" else {"expression": "TagA"}
    return run_load(load.name, options, server, seconds)


def run_load(
    name: str, options: Mapping[str, str | float], server: Server, seconds: float
) -> tuple[Finding, float]:
    """The same for any options of the program, which works for so many seconds."""
    options = {"address": server.address, "broker": server.broker_name, "queues": QUEUES, **options}
    command = [str(program()), *(f"-{name}={value}" for name, value in options.items())]
    with tempfile.TemporaryDirectory(prefix="orbitmq-load-") as folder:
        process = PeerProcess("raw load", command, home=Path(folder), environment={}, conversation=True)
        try:
            to_load, from_load = process.pipes
            _line(from_load, process, _PATIENCE_SECONDS)
            before = server.processor_seconds()
            to_load.write(b"go\n")
            to_load.flush()
            message = _line(from_load, process, seconds + _PATIENCE_SECONDS)
            used = server.processor_seconds() - before
        except PeerError as error:
            raise PeerError(f"{name}, {server.name}: {error}\n{server.quote()}") from None
        finally:
            process.kill()
    return finding(message), used


def line_of(process: PeerProcess, seconds: float) -> bytes:
    """The next line that a program prints, which was started for a conversation."""
    return _line(process.pipes[1], process, seconds)


def _line(stream: IO[bytes], process: PeerProcess, seconds: float) -> bytes:
    """The next line; a program that prints none in time, or ends instead, is quoted."""
    if not select.select([stream], [], [], seconds)[0]:
        raise PeerError(f"silent for {seconds:g} s\n{process.quote()}")
    line = stream.readline()
    if not line:
        raise PeerError(f"ended\n{process.quote()}")
    return line
