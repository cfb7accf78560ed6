"""Failover reports: why a group has a master or none, and what each election would lose."""

from __future__ import annotations

from orbitmq.admin.cluster.failover import FailoverReport, failover_report
from orbitmq.protocol.bodies import EpochEntry, EpochEntryCache, ReplicaIdentity, ReplicasInfo


def replica(broker_id: int, offset: int | None = None, *, alive: bool = True) -> ReplicaIdentity:
    epoch = None if offset is None else 3
    return ReplicaIdentity("a", broker_id, f"h{broker_id}:1", alive=alive, epoch=epoch, max_offset=offset)


def report(
    master: int | None,
    in_sync: list[ReplicaIdentity],
    others: list[ReplicaIdentity],
    *,
    epoch: int = 3,
    unclean: bool | None = False,
    logs: dict[int, EpochEntryCache] | None = None,
) -> FailoverReport:
    address = None if master is None else f"h{master}:1"
    info = ReplicasInfo(master, address, epoch, 5, in_sync, others)
    return failover_report("a", info, logs or {}, unclean=unclean)


def test_a_healthy_group_needs_nothing() -> None:
    found = report(1, [replica(1, 100), replica(2, 90)], [])
    assert found.has_master
    assert found.reason == "master 1 (h1:1) is alive; if it dies, a replica in sync takes over: 2"
    assert found.advice == ()
    assert [one.missing for one in found.replicas] == [0, 10]
    assert found.replicas[1].effect.startswith("becomes master, loses nothing")


def test_a_master_without_a_deputy_is_pointed_out() -> None:
    found = report(1, [replica(1, 100)], [replica(2, 40), replica(3, alive=False)])
    assert "no other replica is in sync" in found.reason
    assert found.advice == (
        "start replica 3 (h3:1): it is dead",
        "wait until replica 2 (h2:1) has caught up: it is alive and not in sync",
    )
    assert "start a second broker" in report(1, [replica(1, 1)], []).advice[0]


def test_a_dead_master_with_a_deputy_is_replaced_without_loss() -> None:
    found = report(1, [replica(1, 100, alive=False), replica(2, 90), replica(3, 95)], [])
    assert not found.has_master
    assert found.reason == "master 1 (h1:1) is dead, and replica 3 is in sync and alive: an election is due"
    assert "orbitmq controller elect a 3" in found.advice[1]


def test_without_a_replica_in_sync_the_loss_of_each_step_is_named() -> None:
    found = report(None, [replica(1, 100, alive=False)], [replica(2, 40)])
    assert found.reason.startswith("the group has had no master since epoch 3 began, and no replica in sync")
    assert found.advice[0] == "start replica 1 (h1:1): it has everything, and becomes master without loss"
    assert "enableElectUncleanMaster=true" in found.advice[1]
    assert "LOSES at least 60 bytes" in found.advice[1]
    one, two = found.replicas
    assert one.effect == "refused: it is dead"
    assert two.effect == (
        "refused: it is not in sync; with enableElectUncleanMaster=true it LOSES at least 60 bytes"
    )
    risky = report(None, [replica(1, alive=False)], [replica(2)], unclean=True)
    assert risky.replicas[1].effect == "becomes master, LOSES an unknown number of bytes"


def test_apaches_controller_reports_no_offsets_and_the_replicas_do() -> None:
    log = EpochEntryCache("c", "a", 2, [EpochEntry(4, 0)], 77)
    found = report(1, [replica(1, 100)], [replica(2)], logs={2: log})
    assert (found.replicas[1].epoch, found.replicas[1].max_offset, found.replicas[1].missing) == (4, 77, 23)


def test_groups_that_never_had_a_master_and_those_that_were_cleaned() -> None:
    assert "first election" in report(None, [], [replica(1)], epoch=0).reason
    assert "cleaned from the controller" in report(None, [], [replica(1)]).reason
    assert "no replica at all is alive" in report(None, [replica(1, alive=False)], []).advice[-1]
    assert "knows no replica" in report(None, [], []).reason
