"""Groups in etcd, for several controllers of which one leads: consensus is etcd's.

One key per broker group, changed by compare-and-swap on its revision. The leader holds the leader key, which ends
with its lease. A change is committed in a transaction that checks this key, so a leader that was replaced without
noticing cannot change anything; and it stops to answer before its lease can have expired, by its own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

import orjson

from orbitmq.controller.machine.events import apply
from orbitmq.controller.machine.group import BrokerGroup
from orbitmq.controller.storage.etcd_client import EtcdError, delete, has_revision, put
from orbitmq.controller.storage.interface import CommitError, Leadership, NotLeaderError
from orbitmq.platform.errors import StoreDamagedError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from orbitmq.controller.machine.events import Event
    from orbitmq.controller.storage.etcd_client import EtcdClient, KeyValue
    from orbitmq.platform.clock import Clock

log = logging.getLogger("orbitmq.controller")

RENEWALS = 5
"""Renewals of a lease within its time to live."""
SAFE_SHARE = 0.8
"""Part of the time to live, from the sending of the renewal on, in which a leader leads: clocks run differently."""


class EtcdStorage:
    """The storage of one of several controllers."""

    def __init__(
        self, client: EtcdClient, prefix: str, controller_id: str, clock: Clock, *, lease_seconds: int
    ) -> None:
        """``prefix`` is that of the group of controllers."""
        self._client = client
        root = prefix.rstrip("/").encode()
        self._leader_key = root + b"/leader"
        self._members_prefix = root + b"/controllers/"
        self._groups_prefix = root + b"/groups/"
        self._id = controller_id
        self._clock = clock
        self._lease_seconds = lease_seconds
        self.address = ""
        self.on_lead: Callable[[], None] | None = None
        self._groups: dict[str, BrokerGroup] = {}
        self._revisions: dict[str, int] = {}
        self._lease = 0
        self._deadline = 0.0
        self._term: int | None = None
        """Create revision of the own leader key, while this controller leads."""
        self._known = Leadership(is_leader=False, leader_id="", leader_address="", peers=())
        self._task: asyncio.Task[None] | None = None
        self._looked = asyncio.Event()
        self._doubted = asyncio.Event()
        """Set when a term ended within its lease: a new session is due at once."""

    @property
    def groups(self) -> Mapping[str, BrokerGroup]:
        return self._groups

    @property
    def _leads(self) -> bool:
        return self._term is not None and self._clock.monotonic() < self._deadline

    def leadership(self) -> Leadership:
        peers = self._known.peers or ((self._id, self.address),)
        if self._leads:
            return Leadership(True, self._id, self.address, peers)
        if self._known.leader_id == self._id:
            # The own key of a term that is over.
            return Leadership(False, "", "", peers)
        return Leadership(False, self._known.leader_id, self._known.leader_address, peers)

    async def start(self) -> None:
        """Look for a leader, or become it, in the background. Returns after the first look, or without etcd."""
        self._task = asyncio.get_running_loop().create_task(self._run())
        waiting = asyncio.get_running_loop().create_task(self._looked.wait())
        await asyncio.wait([waiting, self._task], timeout=self._pause, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()

    async def stop(self) -> None:
        """Give up the leadership at once, so that another controller need not wait for the lease."""
        task, self._task = self._task, None
        if task is None:
            return
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._step_down("stopped")
        await self._end_lease()
        await self._client.close()

    async def commit(self, event: Event) -> None:
        """Compare-and-swap of one group. Raises NotLeaderError, CommitError."""
        if not self._leads:
            raise NotLeaderError("The controller is not in leader state")
        name = event.name
        after = apply(self._groups.get(name), event)
        key = self._groups_prefix + name.encode()
        write = delete(key) if after is None else put(key, orjson.dumps(after.to_json()))
        term = self._term
        assert term is not None, "it leads"
        compares = [
            has_revision(self._leader_key, "create", term),
            has_revision(key, "mod", self._revisions.get(name, 0)),
        ]
        try:
            revision = await self._client.txn(compares, [write])
        except EtcdError as error:
            # Done or not: the groups have to be read again, in another term.
            self._end_term(term, f"a change is in doubt: {error}")
            raise CommitError(f"etcd: {error}") from error
        if revision is None:
            self._end_term(term, "another controller leads, or has changed a group")
            raise NotLeaderError("The controller is not in leader state any more")
        if self._term != term:
            raise CommitError("the leadership ended while the change was stored")
        if after is None:
            del self._groups[name], self._revisions[name]
        else:
            self._groups[name] = after
            self._revisions[name] = revision

    # Leases and leadership

    @property
    def _pause(self) -> float:
        return self._lease_seconds / RENEWALS

    async def _run(self) -> None:
        while True:
            try:
                await self._session()
            except EtcdError as error:
                log.warning("etcd: %s", error)
            except (StoreDamagedError, KeyError, ValueError) as error:
                log.error("etcd: unusable answer: %r", error)
            self._step_down("the lease is lost")
            await self._end_lease()
            if self._doubted.is_set():
                self._doubted.clear()
            else:
                await asyncio.sleep(self._pause)

    async def _end_lease(self) -> None:
        """End the lease and the leader key with it, so that no controller has to wait for its expiry."""
        lease, self._lease = self._lease, 0
        if lease:
            try:
                await self._client.revoke(lease)
            except EtcdError as error:
                log.warning("etcd: the lease was not revoked, it ends by itself: %s", error)

    async def _session(self) -> None:
        """The time of one lease. Raises EtcdError."""
        sent = self._clock.monotonic()
        self._lease, seconds = await self._client.grant(self._lease_seconds)
        self._extend(sent, seconds)
        member = put(self._members_prefix + self._id.encode(), self.address.encode(), self._lease)
        await self._client.txn([], [member])
        while self._lease:
            try:
                if not await self._look():
                    return
                self._looked.set()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._doubted.wait(), self._pause)
                    return
                await self._renew()
            except EtcdError as error:
                log.warning("etcd: request failed, will retry: %s", error)
                if self._clock.monotonic() >= self._deadline:
                    return
                await asyncio.sleep(min(self._pause, 0.2))

    async def _renew(self) -> None:
        sent = self._clock.monotonic()
        seconds = await self._client.keep_alive(self._lease)
        if seconds <= 0:
            self._lease = 0
        else:
            self._extend(sent, seconds)

    def _extend(self, sent: float, seconds: int) -> None:
        self._deadline = sent + seconds * SAFE_SHARE

    async def _look(self) -> bool:
        """Read who leads; become the leader if there is none. Raises EtcdError.

        False if the leader key is that of this lease, but of a term that ended in doubt: a new lease is due.
        """
        if self._term is None and not [one async for one in self._client.range(self._leader_key)]:
            await self._campaign()
        leader = [one async for one in self._client.range(self._leader_key)]
        members = [one async for one in self._client.range(self._members_prefix)]
        self._learn(leader, members)
        return self._term is not None or not any(one.lease == self._lease for one in leader)

    def _learn(self, leader: Sequence[KeyValue], members: Sequence[KeyValue]) -> None:
        names = len(self._members_prefix)
        peers = tuple((one.key[names:].decode(), one.value.decode()) for one in members)
        found = leader[0] if leader else None
        if self._term is not None and (found is None or found.create_revision != self._term):
            self._step_down("the leader key is another's")
        leader_id, _, address = ("", "", "") if found is None else found.value.decode().partition("\n")
        self._known = Leadership(False, leader_id, address, peers)

    async def _campaign(self) -> None:
        value = f"{self._id}\n{self.address}".encode()
        term = await self._client.txn(
            [has_revision(self._leader_key, "create", 0)], [put(self._leader_key, value, self._lease)]
        )
        if term is None:
            return
        groups, revisions = {}, {}
        async for one in self._client.range(self._groups_prefix):
            group = BrokerGroup.from_json(_json(one))
            groups[group.name], revisions[group.name] = group, one.mod_revision
        self._groups, self._revisions = groups, revisions
        self._term = term
        log.info("leadership: controller %s leads from revision %d, %d groups", self._id, term, len(groups))
        if self.on_lead is not None:
            self.on_lead()

    def _end_term(self, term: int, why: str) -> None:
        if self._term == term:
            self._step_down(why)
            self._doubted.set()

    def _step_down(self, why: str) -> None:
        if self._term is not None:
            log.warning("leadership: controller %s does not lead any more: %s", self._id, why)
        self._term = None


def _json(found: KeyValue) -> object:
    try:
        return orjson.loads(found.value)
    except ValueError as error:
        raise StoreDamagedError(f"etcd key {found.key!r} has no JSON; restore it from a backup") from error
