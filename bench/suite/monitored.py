"""What monitoring costs: sends to a broker without metrics, and to one whose metrics are scraped every second."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import statistics
import time
import urllib.request
from typing import TYPE_CHECKING

from bench.figures import Size
from bench.machine import GIB
from bench.messaging.talk import Talk
from bench.server import raw_load
from bench.server.measures import Measure
from bench.server.systems import QUEUES
from bench.suite.rounds import Case, interleave_all
from bench.suite.running import running, warm_up
from bench.suite.scale import add_shares
from bench.suite.scenario import Found, System
from bench.suite.sending import Sending
from bench.suite.watching import watched
from peers.ports import free_port
from peers.process import PeerError

if TYPE_CHECKING:
    from bench.server.measures import Sample
    from bench.server.systems import Server
    from bench.suite.scenario import Bench

SCRAPE = Measure("time of a scrape, median", "ms")
PAGE = Measure("size of the page", "KiB")

_BODY = 128
_PER_TOPIC = 1000
_GROUP = "Bench-monitored"
_EVERY_SECONDS = 1.0
_PATIENCE_SECONDS = 30
_EXPECTED = b'rocketmq_group_diff{group="Bench-monitored"'
_PARTS = 4
"""Rounds are shorter and more, as in ``scale``: neighbours see the same speed of the machine."""


@dataclasses.dataclass(frozen=True, slots=True)
class Monitored:
    """The same sends with and without Prometheus, over few queues and over many, which one group has consumed."""

    size: Size
    name: str = "monitoring"
    systems: frozenset[System] = frozenset({System.ORBITMQ})

    @property
    def counts(self) -> tuple[int, ...]:
        return (QUEUES, 200) if self.size is Size.QUICK else (QUEUES, 50_000)

    @property
    def space(self) -> int:
        return 4 * GIB if self.size is Size.QUICK else 32 * GIB

    def run(self, bench: Bench) -> Found:
        raw_load.require()
        found = Found({})
        for count in self.counts:
            self._hold(count, bench, found)
        return found

    def _hold(self, count: int, bench: Bench, found: Found) -> None:
        load = _over(count)
        port = free_port()
        prom = {"metricsExporterType": "PROM", "metricsPromExporterPort": str(port)}
        plain = f"{load.name}, {count:,} queues, without metrics"
        scraped = f"{load.name}, {count:,} queues, scraped every second"
        cases: dict[str, Case[Server]] = {}
        seconds = max(bench.seconds / _PARTS, 2 * _EVERY_SECONDS)
        with contextlib.ExitStack() as stack:
            for name, settings in ((plain, {}), (scraped, prom)):
                servers = stack.enter_context(running(bench, self.systems, settings))
                warm_up(servers, bench)
                for server in servers:
                    bench.tell(f"{server.name}: {count:,} queues")
                    with server.turn():
                        _prepare(load, server)
                measure = functools.partial(_scraped, port) if settings else _plain
                cases[name] = Case(servers, functools.partial(measure, load, seconds))
            samples = interleave_all(cases, bench.rounds * _PARTS, bench.tell)
        add_shares(samples, plain, [scraped], "without metrics")
        found.samples |= samples


def _over(count: int) -> Sending:
    topics = max(count // _PER_TOPIC, 1)
    return Sending(_BODY, 8, 64, queues=count // topics, topics=topics)


def _prepare(load: Sending, server: Server) -> None:
    """Every queue has messages, and an offset of the group."""
    load.make_topics(server)
    dataclasses.replace(load, in_flight=8, batch=8).fill(server, 8 * load.queues * load.topics)
    names = [load.topic] if load.topics == 1 else [f"{load.topic}-{number:02}" for number in range(load.topics)]
    with Talk(server) as talk:
        talk.make_group(_GROUP)
        for name in names:
            talk.commit(_GROUP, name, load.queues)


def _plain(load: Sending, seconds: float, server: Server, _number: int) -> Sample:
    return load.measure(server, seconds)


def _scraped(port: int, load: Sending, seconds: float, server: Server, _number: int) -> Sample:
    with watched(functools.partial(_scrape, port), _EVERY_SECONDS) as watch:
        sample = load.measure(server, seconds)
    took = [milliseconds for _, (milliseconds, _) in watch.seen]
    sizes = [size for _, (_, size) in watch.seen]
    if len(took) < seconds / _EVERY_SECONDS / 2:
        raise PeerError(f"{len(took)} scrapes in {seconds:g} s: the metrics did not answer, or not every second")
    values = {**sample.values, SCRAPE: statistics.median(took), PAGE: statistics.median(sizes) / 1024}
    return dataclasses.replace(sample, values=values)


def _scrape(port: int) -> tuple[float, int]:
    """Milliseconds and size of one scrape. Raises OSError if it is not the page of a broker with the group."""
    begun = time.monotonic()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=_PATIENCE_SECONDS) as answer:
        page = answer.read()
    if _EXPECTED not in page:
        raise OSError("the page has no lag")
    return (time.monotonic() - begun) * 1000, len(page)
