"""Apache's own benchmark programs as clients: the unmodified Producer and BatchProducer of ``rocketmq-example``."""

from __future__ import annotations

import re
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from bench.client.loads import BODY
from bench.client.measures import CORES, CPU
from bench.server.java_load import WINDOW_SECONDS, ProducerLine, printed, producer_lines, program
from bench.server.measures import AVERAGE, RATE, Sample
from bench.server.usage import processor_seconds
from peers.process import PeerError

if TYPE_CHECKING:
    from bench.client.loads import Load
    from bench.server.systems import Server

_PATIENCE_SECONDS = 90
_POLL_SECONDS = 0.25


def measure(main: str, load: Load, server: Server, lines: int) -> Sample:
    """One round: run the program until it has printed so many lines, and take the last."""
    options = [f"-w={load.threads}", f"-s={BODY}"]
    if load.batch > 1:
        options.append(f"-b={load.batch}")
    with tempfile.TemporaryDirectory(prefix="orbitmq-java-client-") as folder:
        process = program(main, Path(folder), server, load.topic, *options)
        try:
            deadline = time.monotonic() + lines + _PATIENCE_SECONDS
            used: list[tuple[float, float]] = []
            while True:
                now = time.monotonic()
                used.append((now, processor_seconds(process.pid)))
                message = read_lines(main, printed(Path(folder), main))
                if len(message) >= lines:
                    break
                if not process.running or now > deadline:
                    raise PeerError(f"{load.name}: no figures from {process.name}\n{process.quote()}")
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
    before = next(each for each in reversed(used) if used[-1][0] - each[0] >= WINDOW_SECONDS)
    cpu = (used[-1][1] - before[1]) / (used[-1][0] - before[0])
    last = message[-1]
    values = {RATE: last.rate, CPU: cpu / max(last.rate, 1) * 1e6, CORES: cpu, AVERAGE: last.average}
    return Sample(values, last.failed, f"{last.failed} counted by Apache's {main}" if last.failed else "")


def read_lines(main: str, text: str) -> list[ProducerLine]:
    """The figures that a program printed, in their order; rates are of messages."""
    return producer_lines(text) if main == "Producer" else batch_lines(text)


def batch_lines(text: str) -> list[ProducerLine]:
    """The figures that the BatchProducer printed. Latency is a request's, failures are counted in messages."""
    pattern = (
        r"\| Send MPS: (\d+) \| Max RT\(ms\): \d+ \| Average RT\(ms\): +([\d.]+|NaN) "
        r".*?\| Send Message Failed: (\d+)"
    )
    return [
        ProducerLine(float(rate), float(average), int(failed))
        for rate, average, failed in re.findall(pattern, text)
    ]
