"""The state machine under any order of requests and deaths: epochs, masters and in-sync sets."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orbitmq.controller.machine.election import Report
from orbitmq.controller.machine.events import MasterElected, apply, decode, encode
from orbitmq.controller.machine.group import BrokerGroup
from orbitmq.controller.machine.operations import (
    Alteration,
    Application,
    Cleaning,
    Decision,
    ElectionRequest,
    alter_sync_state_set,
    apply_broker_id,
    clean_broker_data,
    elect_master,
    next_broker_id,
    register,
)
from support.controller_harness import CLUSTER, GROUP, Alive

IDS = st.integers(-1, 5)
REPORTS = st.builds(Report, st.integers(0, 8), st.integers(0, 2**40), st.just(0), st.integers(0, 2))


class Machine(RuleBasedStateMachine):
    """One broker group."""

    def __init__(self) -> None:
        super().__init__()
        self.group: BrokerGroup | None = None
        self.reports: dict[int, Report] = {}
        self.unheard: frozenset[int] = frozenset()
        self.masters: dict[int, int | None] = {}
        """By epoch."""
        self.epochs = (0, 0)

    @property
    def live(self) -> Alive:
        return Alive(dict(self.reports), self.unheard)

    def commit(self, decision: Decision) -> None:
        if decision.event is None:
            return
        event = decode(encode(decision.event))
        assert event == decision.event
        before, self.group = self.group, apply(self.group, event)
        if isinstance(event, MasterElected):
            assert before is not None
            assert self.group is not None
            assert event.epoch not in self.masters, "one master in an epoch"
            assert event.epoch > before.master_epoch
            self.masters[event.epoch] = event.master
        if self.group is None:
            # Forgotten by an operator: it begins again.
            self.masters, self.epochs = {}, (0, 0)
        else:
            assert BrokerGroup.from_json(self.group.to_json()) == self.group

    @rule(broker_id=IDS, code=st.sampled_from(["a", "b"]))
    def apply_id(self, broker_id: int, code: str) -> None:
        self.commit(apply_broker_id(self.group, Application(CLUSTER, GROUP, broker_id, f"h{broker_id}:1;{code}")))

    @rule()
    def join(self) -> None:
        broker_id = next_broker_id(self.group)
        decision = apply_broker_id(self.group, Application(CLUSTER, GROUP, broker_id, f"h{broker_id}:1;a"))
        assert decision.code == 0
        self.commit(decision)

    @rule(broker_id=IDS, address=st.sampled_from(["h:1", "h:2"]))
    def register(self, broker_id: int, address: str) -> None:
        self.commit(register(self.group, GROUP, broker_id, address))

    @rule(broker_id=st.integers(1, 5), report=REPORTS)
    def heartbeat(self, broker_id: int, report: Report) -> None:
        self.reports[broker_id] = report

    @rule(broker_id=IDS)
    def die(self, broker_id: int) -> None:
        self.reports.pop(broker_id, None)
        self.unheard -= {broker_id}

    @rule(ids=st.frozensets(st.integers(1, 5)))
    def restart_controller(self, ids: frozenset[int]) -> None:
        self.reports.clear()
        self.unheard = ids

    @rule(broker_id=IDS, designated=st.booleans(), unclean=st.booleans())
    def elect(self, broker_id: int, designated: bool, unclean: bool) -> None:
        before, live = self.group, self.live
        decision = elect_master(before, ElectionRequest(GROUP, broker_id, designated), live, unclean=unclean)
        self.commit(decision)
        event = decision.event
        if not isinstance(event, MasterElected) or event.master is None:
            return
        assert before is not None
        if before.master_epoch:
            assert live.report(event.master) is not None, "a master is alive"
            assert unclean or event.master in before.in_sync
        if designated and broker_id != -1:
            assert event.master == broker_id

    @rule(
        broker_id=IDS,
        members=st.frozensets(st.integers(1, 5), min_size=1),
        stale=st.sampled_from([(0, 0), (0, 0), (1, 0), (0, 1)]),
    )
    def alter(self, broker_id: int, members: frozenset[int], stale: tuple[int, int]) -> None:
        epochs = (0, 0) if self.group is None else (self.group.master_epoch, self.group.set_epoch)
        request = Alteration(GROUP, broker_id, epochs[0] - stale[0], epochs[1] - stale[1], members)
        decision = alter_sync_state_set(self.group, request, self.live)
        if decision.event is not None:
            assert stale == (0, 0)
            assert self.group is not None
            assert broker_id == self.group.master
            assert broker_id in members
            assert members <= self.reports.keys()
        self.commit(decision)

    @rule(ids=st.none() | st.frozensets(IDS, min_size=1), living_too=st.booleans())
    def clean(self, ids: frozenset[int] | None, living_too: bool) -> None:
        self.commit(clean_broker_data(self.group, Cleaning(GROUP, ids, living_too), self.live))

    @invariant()
    def state_is_sound(self) -> None:
        if self.group is None:
            return
        epochs = (self.group.master_epoch, self.group.set_epoch)
        assert epochs[0] >= self.epochs[0]
        assert epochs[1] >= self.epochs[1]
        self.epochs = epochs
        assert set(self.group.in_sync) <= self.group.replicas.keys()
        assert all(broker_id < self.group.next_id for broker_id in self.group.replicas)
        if self.group.master is not None:
            assert self.group.master in self.group.in_sync


TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
