"""Planted errors, of the kinds that brokers and clients have had: the simulation has to find each of them."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any
from unittest import mock

from orbitmq.broker.autoswitch import slave as autoswitch_slave
from orbitmq.broker.autoswitch.lease import Lease
from orbitmq.broker.autoswitch.master import AutoSwitchMaster
from orbitmq.broker.pop.revive import ReviveService
from orbitmq.broker.transaction.half_state import COMMITTED
from orbitmq.broker.transaction.processor import Transactions
from orbitmq.client.consumer.process_queue import ProcessQueue
from orbitmq.client.consumer.send_back import SendBack
from orbitmq.controller.machine import election
from orbitmq.controller.storage.event_log import EventLog
from orbitmq.store.background.service import StoreService
from orbitmq.store.replication.slave_acks import EVERYTHING
from orbitmq.store.replication.sync_state import SyncState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from orbitmq.controller.machine.election import Replicas
    from orbitmq.controller.machine.group import BrokerGroup

    Plant = Callable[[], AbstractContextManager[Any]]


def acknowledge_before_the_flush() -> AbstractContextManager[Any]:
    """Under SYNC_FLUSH, the answer leaves while the message is in the page cache only."""

    def flushed(_: StoreService, __: int) -> asyncio.Future[None]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(None)
        return future

    return mock.patch.object(StoreService, "flushed", flushed)


def commit_offsets_of_messages_in_hand() -> AbstractContextManager[Any]:
    """A consumer commits what it has pulled, and not what was consumed."""
    return mock.patch.object(ProcessQueue, "consumed_to", property(lambda queue: queue.next_offset))


def forget_what_was_not_acknowledged() -> AbstractContextManager[Any]:
    """Popped messages are not redelivered."""
    return mock.patch.object(ReviveService, "_redeliver", return_value=None)


def deliver_what_was_rolled_back() -> AbstractContextManager[Any]:
    """The broker takes every end of a transaction for a commit."""
    end = Transactions._end
    return mock.patch.object(Transactions, "_end", lambda self, _, fields: end(self, COMMITTED, fields))


def lose_retries() -> AbstractContextManager[Any]:
    """A consumer believes that a failed message has gone back to the broker."""

    async def send_back(*_: object) -> None:
        """Nothing is sent."""

    return mock.patch.object(SendBack, "send_back", send_back)


# Of failover


@contextlib.contextmanager
def shrink_before_the_controller_agrees() -> Iterator[None]:
    """The set that is requested counts at once, and is requested without a controller, as in Apache 5.5.0."""

    def request(self: SyncState, members: Iterable[int]) -> None:
        self.members = frozenset(members) | {self.own_id}

    with (
        mock.patch.object(SyncState, "request", request),
        mock.patch.object(AutoSwitchMaster, "is_in_doubt", new=False),
    ):
        yield


def acknowledge_alone() -> AbstractContextManager[Any]:
    """A master without connected slaves waits for nobody."""
    wait = SyncState._all

    def all_of(self: SyncState, acks: Mapping[int, int]) -> int:
        return wait(self, acks) if acks else EVERYTHING

    return mock.patch.object(SyncState, "_all", all_of)


def skip_the_truncation() -> AbstractContextManager[Any]:
    """A slave goes on behind its own end, whatever it has that the master has not."""

    def compare(self: autoswitch_slave.AutoSwitchSlave, _: object) -> None:
        """Nothing is compared."""

    return mock.patch.object(autoswitch_slave.AutoSwitchSlave, "compare", compare)


def ignore_the_lease() -> AbstractContextManager[Any]:
    """A master that no controller confirms goes on."""
    return mock.patch.object(Lease, "is_valid", new=True)


def read_what_is_not_confirmed() -> AbstractContextManager[Any]:
    """Consumers get records that no slave has."""
    advance = AutoSwitchMaster._advance

    def to_the_end(self: AutoSwitchMaster) -> None:
        advance(self)
        self.store.readable_to = None
        self._dispatch()

    return mock.patch.object(AutoSwitchMaster, "_advance", to_the_end)


def elect_whoever_is_alive() -> AbstractContextManager[Any]:
    """The controller elects replicas that are not in sync."""

    def candidates(group: BrokerGroup, replicas: Replicas, *, unclean: bool) -> tuple[int, ...]:
        del unclean
        return tuple(one for one in sorted(group.replicas) if replicas.report(one) is not None)

    return mock.patch.object(election, "candidates", candidates)


def forget_elections() -> AbstractContextManager[Any]:
    """The controller answers before its event is on the disk."""

    def write_frame(self: EventLog, frame: bytes) -> None:
        self._disk.pwrite(self._path, self._size, frame)

    return mock.patch.object(EventLog, "_write_frame", write_frame)


def keep_what_follows_from_lost_records() -> AbstractContextManager[Any]:
    """A master keeps progress, such as of transactions, that follows from records which replicas lack."""

    async def copied(*_: object) -> None:
        """Nobody is waited for."""

    return mock.patch.multiple(AutoSwitchMaster, copied=copied, may_lose_end=False)
