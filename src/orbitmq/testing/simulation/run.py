"""One simulated run: start, faults, recovery, and the check of all invariants; and shrinking of a failing one."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import gc
import logging
import random
import time
from typing import TYPE_CHECKING, Any
from unittest import mock

from orbitmq.client.instance.instance import forget_closed_loops
from orbitmq.testing.simulation import invariants
from orbitmq.testing.simulation.failover import SHARE, FailoverCluster, cluster_of
from orbitmq.testing.simulation.faults.injection import inject, random_faults

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence
    from pathlib import Path

    from orbitmq.testing.simulation.cluster import SimulatedCluster
    from orbitmq.testing.simulation.faults.kinds import Fault

log = logging.getLogger("orbitmq.simulation")

FAULT_SECONDS = 60.0
"""Virtual time in which faults begin."""

CONVERGENCE_SECONDS = 600.0
"""Virtual time after the last fault within which every group has consumed everything.

The longest way to it: a member was killed without its connection ending (120 s until the broker forgets it), its
queues were locked (60 s), and its messages were invisible.
"""

PROCESS_ID = 4711
"""Of all simulated processes: with the real one, runs of a seed would differ."""


@dataclasses.dataclass(slots=True)
class Report:
    """Result of a run."""

    seed: int
    faults: list[Fault]
    violations: list[str]
    sent: int
    acknowledged: int
    consumed: int
    virtual_seconds: float
    real_seconds: float
    callbacks: int
    fingerprint: str
    """The same for runs that were the same."""

    @property
    def is_good(self) -> bool:
        return not self.violations


def run(
    seed: int,
    faults: Sequence[Fault] | None = None,
    *,
    seconds: float = FAULT_SECONDS,
    patience: float = CONVERGENCE_SECONDS,
    log_to: Callable[[str], None] | None = None,
    calls_to: Path | None = None,
) -> Report:
    """One run. ``faults`` replace those of the seed, and the applications send for ``seconds``. Afterwards
    everything is consumed within ``patience``. ``log_to`` gets the log with virtual times, ``calls_to`` the
    requests to the controller. Raises ValueError if there is none."""
    begun = time.perf_counter()
    cluster = cluster_of(seed)
    if calls_to is not None and not isinstance(cluster, FailoverCluster):
        raise ValueError(f"seed {seed} has no controller: every third one has, such as {SHARE}")
    rng = random.Random(cluster.random.getrandbits(64))
    chosen = random_faults(rng, seconds, cluster.fault_kinds) if faults is None else list(faults)
    loop = cluster.loop
    loop.set_exception_handler(lambda _, context: _report_exception(cluster, context))
    play(cluster, _play(cluster, chosen, seconds, patience), log_to)
    if calls_to is not None and isinstance(cluster, FailoverCluster):
        cluster.calls.write(calls_to)
    history = cluster.history
    return Report(
        seed,
        chosen,
        list(dict.fromkeys(history.violations)),
        sent=len(history.sent),
        acknowledged=len(history.acknowledged()),
        consumed=sum(map(len, history.consumed.values())),
        virtual_seconds=loop.time(),
        real_seconds=time.perf_counter() - begun,
        callbacks=loop.callbacks,
        fingerprint=f"{loop.callbacks}-{cluster.network.bytes_delivered}-{loop.time():.9f}",
    )


def play(
    cluster: SimulatedCluster, work: Coroutine[Any, Any, None], log_to: Callable[[str], None] | None = None
) -> None:
    """Run this in the virtual time of a cluster. The cluster is of no use afterwards."""
    loop = cluster.loop
    with _logging(loop.time, log_to), _no_collection(), contextlib.ExitStack() as patches:
        # Slices of work end by the time they have taken, and identifiers contain the number of the process.
        patches.enter_context(mock.patch("time.monotonic", loop.time))
        patches.enter_context(mock.patch("os.getpid", return_value=PROCESS_ID))

        asyncio.set_event_loop(loop)
        try:
            loop.run_until_complete(work)
        finally:
            asyncio.set_event_loop(None)
            loop.close()
            forget_closed_loops()


async def _play(cluster: SimulatedCluster, faults: Sequence[Fault], seconds: float, patience: float) -> None:
    history, loop = cluster.history, cluster.loop
    await cluster.start()
    under_way: set[asyncio.Task[None]] = set()
    for fault in faults:
        await asyncio.sleep(max(fault.at - loop.time(), 0))
        task = loop.create_task(inject(cluster, fault))
        under_way.add(task)
    await asyncio.sleep(max(seconds - loop.time(), 0))
    if under_way:
        ended, left = await asyncio.wait(under_way, timeout=FAULT_SECONDS)
        history.violations += [f"a fault did not end: {task}" for task in left]
        for task in ended:
            if (error := task.exception()) is not None:
                history.violations.append(f"a fault failed: {error!r}")
    await cluster.recover()
    cluster.world.sending = cluster.world.faulty_handlers = False
    await _converge(cluster, patience)
    history.violations += [
        *invariants.check_stored(cluster),
        *invariants.check_places(history),
        *invariants.check_order(history),
        *cluster.findings(),
    ]
    pairs = cluster.pairs
    for client in cluster.clients:
        client.kill()
    await asyncio.sleep(1)
    await cluster.stop()
    history.violations += [*invariants.check_copies(pairs), *invariants.check_files(cluster)]


async def _converge(cluster: SimulatedCluster, patience: float) -> None:
    deadline = cluster.loop.time() + patience
    while (missing := invariants.unconsumed(cluster.history)) or cluster.unsettled():
        if cluster.loop.time() >= deadline:
            cluster.history.violations += [
                f"{group} has not consumed {invariants.listed(names)} within {patience:.0f} s"
                for group, names in missing.items()
            ]
            cluster.history.violations += cluster.unsettled()
            return
        await asyncio.sleep(1)
    # What was rolled back, or comes twice, would come now.
    await asyncio.sleep(10)


def shrink(seed: int, faults: Sequence[Fault], fails: Callable[[list[Fault]], bool] | None = None) -> list[Fault]:
    """The fewest faults found with which the run still fails."""
    still_fails = fails or (lambda some: not run(seed, some).is_good)
    left = list(faults)
    size = max(len(left) // 2, 1)
    while left:
        for at in range(0, len(left), size):
            some = left[:at] + left[at + size :]
            if still_fails(some):
                left = some
                break
        else:
            if size == 1:
                return left
            size = max(size // 2, 1)
        size = min(size, max(len(left), 1))
    return left


def _report_exception(cluster: SimulatedCluster, context: dict[str, Any]) -> None:
    error = context.get("exception")
    cluster.history.violations.append(f"not handled: {context.get('message')}: {error!r}")
    log.error("not handled: %s", context.get("message"), exc_info=error)


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Objects of dead processes are freed at the end: their ``finally`` blocks must not run at a random moment."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def _logging(now: Callable[[], float], log_to: Callable[[str], None] | None) -> Iterator[None]:
    """Log lines go to ``log_to`` with virtual times, or nowhere."""
    logger = logging.getLogger("orbitmq")
    handlers, propagate, level = logger.handlers, logger.propagate, logger.level
    logger.handlers, logger.propagate = [_Handler(now, log_to)], False
    logger.setLevel(logging.INFO if log_to else logging.CRITICAL)
    try:
        yield
    finally:
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


class _Handler(logging.Handler):
    def __init__(self, now: Callable[[], float], log_to: Callable[[str], None] | None) -> None:
        super().__init__()
        self._now = now
        self._log_to = log_to

    def emit(self, record: logging.LogRecord) -> None:
        if self._log_to is not None:
            from orbitmq.testing.simulation.event_loop import current_process  # noqa: PLC0415

            process = current_process()
            name = "simulation" if process is None else process.name
            self._log_to(f"{self._now():10.3f} {name:22} {record.levelname:7} {self.format(record)}")
