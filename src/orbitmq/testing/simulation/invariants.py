"""Invariants of a simulated run: what must hold whatever has failed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.store.tools.detect_layout import Layout
from orbitmq.store.tools.verify import verify
from orbitmq.testing.cluster_views import stored_messages
from orbitmq.testing.simulation.histories.messages import Kind, name_in
from orbitmq.testing.simulation.workload import POP_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orbitmq.testing.simulation.cluster import SimulatedCluster
    from orbitmq.testing.simulation.histories.messages import History
    from orbitmq.testing.simulation.machines import BrokerMachine

MAX_LISTED = 5


def unconsumed(history: History) -> dict[str, list[str]]:
    """Acknowledged messages that a group has not consumed so far."""
    missing = {}
    groups = {f"{kind}-group": kind for kind in Kind} | {POP_GROUP: Kind.PLAIN}
    for group, kind in groups.items():
        seen = history.names_of(group)
        left = [sent.name for sent in history.acknowledged(kind) if sent.name not in seen]
        if left:
            missing[group] = left
    return missing


def check_stored(cluster: SimulatedCluster) -> Iterator[str]:
    """Every acknowledged message is where its broker said, every consumed one is stored, offsets have no gap."""
    stored: dict[tuple[str, str, int, int], str | None] = {}
    for machine in cluster.brokers:
        for kind in Kind:
            for queue_id in machine.broker.store.queues.queue_ids(kind):
                expected: int | None = None
                for message in stored_messages(machine.broker, kind, queue_id):
                    offset = message.queue_offset
                    if expected is not None and offset != expected:
                        yield f"{kind} queue {queue_id} of {machine.name}: offset {offset} follows {expected - 1}"
                    expected = offset + 1
                    stored[machine.broker_name, kind, queue_id, offset] = name_in(message.body)
    for sent in cluster.history.sent.values():
        for queue, offset in sent.places:
            found = stored.get((queue.broker_name, queue.topic, queue.queue_id, offset))
            if found != sent.name:
                yield (
                    f"{sent.name} was acknowledged at {sent.acknowledged_at:.3f} at offset {offset} of queue "
                    f"{queue.queue_id} of {queue.topic} on {queue.broker_name}, where {found or 'nothing'} is"
                )
    names = set(stored.values())
    for group in cluster.history.consumed:
        if vanished := sorted(cluster.history.names_of(group) - names):
            yield f"{group} consumed {listed(vanished)}, which no broker has any more"


def check_places(history: History) -> Iterator[str]:
    """No two acknowledged messages have the same place."""
    owners: dict[tuple[object, int], str] = {}
    for sent in history.sent.values():
        for place in sent.places:
            other = owners.setdefault(place, sent.name)
            if other != sent.name:
                yield f"{other} and {sent.name} were both acknowledged at offset {place[1]} of {place[0]}"


def check_order(history: History) -> Iterator[str]:
    """A group sees the messages of a key in the order in which they were sent, apart from repetitions."""
    newest: dict[str, int] = {}
    for consumed in history.consumed.get(f"{Kind.ORDERED}-group", ()):
        sent = history.sent[consumed.name]
        last = newest.get(sent.key, 0)
        if sent.number > last + 1:
            yield f"{sent.name} is number {sent.number} of {sent.key}, and was consumed after number {last}"
        newest[sent.key] = max(last, sent.number)


def check_copies(pairs: Sequence[tuple[BrokerMachine, BrokerMachine]]) -> Iterator[str]:
    """A stopped slave has the bytes of its master's log."""
    for master, slave in pairs:
        directory = "/store/commitlog"
        for name in sorted({*master.disk.list(directory), *slave.disk.list(directory)}):
            path = f"{directory}/{name}"
            if name.isdigit() and _without_end(master, path) != _without_end(slave, path):
                yield f"the log file {name} of {slave.name} differs from the master's"


def _without_end(machine: BrokerMachine, path: str) -> bytes:
    """The bytes of a log file; a file that was made ahead counts as none."""
    return machine.disk.read(path).rstrip(b"\0") if machine.disk.stat(path) is not None else b""


def check_files(cluster: SimulatedCluster) -> Iterator[str]:
    """The stores of stopped brokers are sound."""
    for machine in cluster.all_brokers:
        store = machine.settings.store
        report = verify(machine.disk, Layout(store, set()))
        if not report.is_sound:
            yield f"the store of {machine.name} is damaged: {dict(report.findings.counts)}"


def listed(names: list[str]) -> str:
    """The first of many names."""
    more = f" and {len(names) - MAX_LISTED} more" if len(names) > MAX_LISTED else ""
    return ", ".join(names[:MAX_LISTED]) + more
