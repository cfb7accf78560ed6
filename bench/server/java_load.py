"""Apache's own benchmark programs as a load: Producer and Consumer of ``rocketmq-example``, unmodified.

They print a line a second with figures over the nine seconds before it. The first lines, with the warming up of
their Java, are left aside.
"""

from __future__ import annotations

import dataclasses
import hashlib
import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.server.measures import AVERAGE, CONSUMED, CPU, END_TO_END, RATE, Sample
from bench.server.systems import java
from peers import apache
from peers.cache import filled
from peers.process import PeerError, PeerProcess, run

if TYPE_CHECKING:
    from bench.server.systems import Server

WINDOW_SECONDS = 9
"""Ten snapshots, one a second, lie so far apart."""

_POM = Path(__file__).with_name("pom.xml")
_FETCH_SECONDS = 240
_PATIENCE_SECONDS = 90
_POLL_SECONDS = 0.25
_PACKAGE = "org.apache.rocketmq.example.benchmark"
_FLAGS = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-XX:-UsePerfData")


@dataclasses.dataclass(frozen=True, slots=True)
class JavaLoad:
    """Threads that send one message after the other and wait for each answer; maybe a consumer beside them."""

    body: int
    threads: int
    consume: bool = False

    @property
    def name(self) -> str:
        programs = "Producer and Consumer" if self.consume else "Producer"
        return f"Apache's {programs}, {self.threads} threads, {self.body} B"

    @property
    def topic(self) -> str:
        return f"Bench-java-{'both' if self.consume else 'send'}-{self.body}"


@dataclasses.dataclass(frozen=True, slots=True)
class ProducerLine:
    rate: float
    average: float
    failed: int


@dataclasses.dataclass(frozen=True, slots=True)
class ConsumerLine:
    rate: float
    end_to_end: float
    failed: int


def unavailable() -> str | None:
    """None if Apache's programs can be run here, otherwise the reason in one sentence."""
    reason = apache.available()
    if reason is not None:
        return reason
    try:
        _class_path()
    except PeerError as error:
        return f"Apache's benchmark programs could not be fetched: {str(error).strip().splitlines()[0]}"
    return None


def measure(load: JavaLoad, server: Server, lines: int) -> Sample:
    """One round: run the programs until the producer has printed so many lines, and take the last."""
    with tempfile.TemporaryDirectory(prefix="orbitmq-java-load-") as folder:
        processes: list[PeerProcess] = []
        try:
            if load.consume:
                group = f"-g=bench-{load.topic}"
                processes.append(program("Consumer", Path(folder), server, load.topic, "-w=20", group))
            sizes = (f"-w={load.threads}", f"-s={load.body}")
            processes.append(program("Producer", Path(folder), server, load.topic, *sizes))
            return _watched(processes, Path(folder), server, lines)
        except PeerError as error:
            raise PeerError(f"{load.name}, {server.name}: {error}\n{server.quote()}") from None
        finally:
            for process in processes:
                process.kill()


def producer_lines(text: str) -> list[ProducerLine]:
    """The figures that the Producer printed, in their order."""
    pattern = (
        r"\| Send TPS: (\d+) \| Max RT\(ms\): \d+ \| Average RT\(ms\): +([\d.]+|NaN) "
        r"\| Send Failed: (\d+) \| Response Failed: (\d+)"
    )
    return [
        ProducerLine(float(rate), float(average), int(unsent) + int(unanswered))
        for rate, average, unsent, unanswered in re.findall(pattern, text)
    ]


def consumer_lines(text: str) -> list[ConsumerLine]:
    """The figures that the Consumer printed, in their order."""
    pattern = r"\| Consume TPS: (\d+) \| AVG\(B2C\) RT\(ms\): +([\d.]+|NaN) .*?\| Consume Fail: (\d+)"
    return [
        ConsumerLine(float(rate), float(latency), int(failed))
        for rate, latency, failed in re.findall(pattern, text)
    ]


def _watched(processes: list[PeerProcess], folder: Path, server: Server, lines: int) -> Sample:
    deadline = time.monotonic() + lines + _PATIENCE_SECONDS
    used: list[tuple[float, float]] = []
    while True:
        now = time.monotonic()
        used.append((now, server.processor_seconds()))
        sent = producer_lines(printed(folder, "Producer"))
        got = consumer_lines(printed(folder, "Consumer")) if len(processes) > 1 else None
        if len(sent) >= lines and (got is None or got):
            break
        for process in processes:
            if not process.running or now > deadline:
                raise PeerError(f"no figures from {process.name}\n{process.quote()}")
        time.sleep(_POLL_SECONDS)
    before = next(each for each in reversed(used) if used[-1][0] - each[0] >= WINDOW_SECONDS)
    cpu = (used[-1][1] - before[1]) / (used[-1][0] - before[0])
    last = sent[-1]
    values = {RATE: last.rate, CPU: cpu / max(last.rate, 1) * 1e6, AVERAGE: last.average}
    if got:
        values |= {CONSUMED: got[-1].rate, END_TO_END: got[-1].end_to_end}
    unread = got[-1].failed if got else 0
    message = f"{last.failed} counted by Apache's Producer and {unread} by its Consumer"
    return Sample(values, last.failed + unread, message if last.failed or unread else "")


def program(main: str, folder: Path, server: Server, topic: str, *options: str) -> PeerProcess:
    """Start one of the programs; what it prints is read with ``printed``."""
    home = folder / main
    home.mkdir()
    command = [java(), *_FLAGS, f"-Duser.home={home}", "-cp", _class_path(), f"{_PACKAGE}.{main}"]
    command += ["-n", server.nameserver, "-t", topic, "-ri", "1000"]
    for option in options:
        command += option.split("=")
    return PeerProcess(f"Apache's {main}", command, home=home, environment={})


def printed(folder: Path, main: str) -> str:
    """The output of a program so far."""
    return (folder / main / "console.log").read_text("utf-8", "replace")


def _class_path() -> str:
    digest = hashlib.sha256(_POM.read_bytes()).hexdigest()[:12]

    def fetch(folder: Path) -> None:
        command = ["mvn", "-q", "-B", "-f", str(_POM), "dependency:copy-dependencies"]
        run([*command, f"-DoutputDirectory={folder}"], environment={}, seconds=_FETCH_SECONDS)

    return f"{filled(f'bench-java-{digest}', fetch)}/*"
