"""Which loads a run puts on which clients, and how long."""

from __future__ import annotations

import dataclasses
import enum

from bench.client import grpc_peer
from bench.figures import Size
from bench.machine import GIB
from bench.server.systems import APACHE, ORBITMQ

BODY = 128
BATCH = 100
THREADS = 16


class Program(enum.Enum):
    """The program of a client."""

    ORBITMQ = "OrbitMQ"
    GRPC = grpc_peer.NAME
    JAVA = "Java client 5.5.0"


@dataclasses.dataclass(frozen=True, slots=True)
class Contender:
    """A client, in one of its ways, and the server that it talks to."""

    program: Program
    way: str
    server: str
    mode: str
    """What its program calls it: that of a load, or the Java class."""
    in_flight: int = 1
    is_judged: bool = True
    """True if bars apply to it: not where it does something that its peers do not."""

    @property
    def name(self) -> str:
        way = f", {self.way}" if self.way else ""
        return f"{self.program.value}{way} → {self.server}"


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """One kind of work, and who does it."""

    name: str
    topic: str
    contenders: tuple[Contender, ...]
    threads: int = 1
    batch: int = 1

    @property
    def consumes(self) -> bool:
        return self.topic == FILLED


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The amount of work of each part of a run."""

    rounds: int
    seconds: float
    """One round."""
    filled_messages: int
    """In the topic that is consumed; sending them warms the brokers up."""
    java_lines: int
    """A line a second; the ten before the first are not printed."""
    space: int
    """Bytes of disk that both servers take together at most."""


PLANS = {
    Size.QUICK: Plan(rounds=1, seconds=1, filled_messages=20_000, java_lines=1, space=6 * GIB),
    Size.USUAL: Plan(rounds=3, seconds=3, filled_messages=600_000, java_lines=11, space=12 * GIB),
    Size.FULL: Plan(rounds=7, seconds=5, filled_messages=1_000_000, java_lines=20, space=24 * GIB),
}

FILLED = "Bench-client-filled"

IN_FLIGHT = 1024
"""The client's default limit of messages in flight, with back-pressure."""
GATHERED = 16_384
"""With ``auto_batch``, messages wait up to 10 ms for each other: fewer would not fill batches."""
GRPC_IN_FLIGHT = 256
"""Its fastest of 32, 128, 256 and 512."""


def _both(way: str, mode: str, in_flight: int = 1) -> tuple[Contender, Contender]:
    return (
        Contender(Program.ORBITMQ, way, ORBITMQ, mode, in_flight),
        Contender(Program.ORBITMQ, way, APACHE, mode, in_flight),
    )


def _grpc(mode: str, in_flight: int = 1) -> Contender:
    return Contender(Program.GRPC, "", grpc_peer.PROXY, mode, in_flight)


def _java(main: str) -> Contender:
    return Contender(Program.JAVA, "", APACHE, main)


ASYNC_SEND = "async send"
CONSUME = "consume"

LOADS = (
    Load(
        ASYNC_SEND,
        "Bench-client-async",
        (
            *_both("asyncio", "send-asyncio", IN_FLIGHT),
            *_both("futures", "send-futures", IN_FLIGHT),
            Contender(Program.ORBITMQ, "asyncio, auto_batch", ORBITMQ, "send-gathered", GATHERED, is_judged=False),
            _grpc("send-async", GRPC_IN_FLIGHT),
        ),
    ),
    Load(
        "sync send, one thread",
        "Bench-client-sync",
        (*_both("", "send-sync"), _grpc("send-sync"), _java("Producer")),
    ),
    Load(
        f"sync send, {THREADS} threads",
        "Bench-client-threads",
        (*_both("", "send-sync"), _grpc("send-sync"), _java("Producer")),
        threads=THREADS,
    ),
    Load(
        f"batches of {BATCH}, one thread",
        "Bench-client-batch",
        (*_both("", "send-batches"), _java("BatchProducer")),
        batch=BATCH,
    ),
    Load(
        CONSUME,
        FILLED,
        (
            *_both("inline", "consume-inline"),
            *_both("coroutine", "consume-coroutine"),
            *_both("threads", "consume-threads"),
            _grpc("consume"),
        ),
    ),
)
