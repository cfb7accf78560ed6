"""Controller operations: one at a time for each group, decided by the state machine, committed, then answered."""

from __future__ import annotations

import asyncio
import dataclasses
import weakref
from typing import TYPE_CHECKING

from orbitmq.controller.liveness import GroupLiveness
from orbitmq.controller.machine.operations import (
    ANY_BROKER,
    ElectionRequest,
    alter_sync_state_set,
    apply_broker_id,
    clean_broker_data,
    elect_master,
    register,
)
from orbitmq.controller.metrics import ControllerMetrics
from orbitmq.controller.storage.interface import NotLeaderError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from orbitmq.controller.config import ControllerConfig
    from orbitmq.controller.liveness import Liveness
    from orbitmq.controller.machine.events import Event
    from orbitmq.controller.machine.group import BrokerGroup
    from orbitmq.controller.machine.operations import Alteration, Application, Cleaning, Decision
    from orbitmq.controller.storage.interface import GroupStorage, Leadership


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """A decision that was committed, and the group and its liveness after it."""

    decision: Decision
    group: BrokerGroup | None
    replicas: GroupLiveness


class ControllerService:
    """Operations on the groups. Each raises NotLeaderError and CommitError."""

    def __init__(
        self,
        storage: GroupStorage,
        liveness: Liveness,
        config: ControllerConfig,
        now_ms: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        """``now_ms`` is the monotonic clock of the liveness table, ``clock`` the same in seconds."""
        self.storage = storage
        self.liveness = liveness
        self._config = config
        self._now_ms = now_ms
        self._clock = clock
        self.metrics = ControllerMetrics(config, storage, liveness, self._without_master, clock)
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()

    @property
    def leadership(self) -> Leadership:
        return self.storage.leadership()

    def group(self, name: str) -> BrokerGroup | None:
        """A group as committed. Raises NotLeaderError."""
        self._check_leader()
        return self.storage.groups.get(name)

    def groups(self) -> Iterator[BrokerGroup]:
        """All groups as committed. Raises NotLeaderError."""
        self._check_leader()
        return iter(tuple(self.storage.groups.values()))

    def replicas(self, group: BrokerGroup | None) -> GroupLiveness:
        """The liveness of a group's brokers, now."""
        cluster, name = ("", "") if group is None else (group.cluster, group.name)
        return GroupLiveness(self.liveness, cluster, name, self._now_ms())

    async def apply_broker_id(self, request: Application) -> Outcome:
        return await self._run(request.name, lambda group, _: apply_broker_id(group, request))

    async def register(self, name: str, broker_id: int, address: str) -> Outcome:
        return await self._run(name, lambda group, _: register(group, name, broker_id, address))

    async def alter_sync_state_set(self, request: Alteration) -> Outcome:
        return await self._run(request.name, lambda group, live: alter_sync_state_set(group, request, live))

    async def clean(self, request: Cleaning) -> Outcome:
        return await self._run(request.name, lambda group, live: clean_broker_data(group, request, live))

    async def elect(self, request: ElectionRequest) -> Outcome:
        """An election for a broker or a tool, or of the controller itself."""
        unclean = self._config.enable_elect_unclean_master
        outcome = await self._run(
            request.name, lambda group, live: elect_master(group, request, live, unclean=unclean)
        )
        group = outcome.group
        self.metrics.elected(outcome.decision, has_master=group is not None and group.master is not None)
        return outcome

    def needs_election(self, group: BrokerGroup) -> bool:
        """True for a group whose master is gone, and for one without a master that has a candidate."""
        replicas = self.replicas(group)
        if group.master is not None:
            return replicas.is_gone(group.master)
        if group.master_epoch == 0:
            # Its first broker requests the first election itself.
            return False
        decision = elect_master(
            group,
            ElectionRequest(group.name, ANY_BROKER),
            replicas,
            unclean=self._config.enable_elect_unclean_master,
        )
        return decision.code == 0

    async def _run(self, name: str, decide: Callable[[BrokerGroup | None, GroupLiveness], Decision]) -> Outcome:
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        async with lock:
            group = self.group(name)
            decision = decide(group, self.replicas(group))
            if decision.event is not None:
                await self._commit(decision.event)
            after = self.storage.groups.get(name)
            return Outcome(decision, after, self.replicas(after))

    async def _commit(self, event: Event) -> None:
        began = self._clock()
        has_failed = True
        try:
            await self.storage.commit(event)
            has_failed = False
        finally:
            self.metrics.committed(self._clock() - began, failed=has_failed)

    def _without_master(self) -> int:
        groups = tuple(self.storage.groups.values())
        return sum(one.master is None or self.replicas(one).is_gone(one.master) for one in groups)

    def _check_leader(self) -> None:
        found = self.storage.leadership()
        if not found.is_leader:
            where = f"the leader is {found.leader_address}" if found.leader_address else "there is none now"
            raise NotLeaderError(f"The controller is not in leader state: {where}")
