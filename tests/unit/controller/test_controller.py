"""The controller's requests, from the registration of brokers to the loss of a master."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.protocol.bodies import BrokerReplicasInfo, ElectMasterResponseBody, SyncStateSet
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.fastjson import dumps
from peers.ports import free_port
from support.controller_harness import CLUSTER, GROUP, QuietController
from support.nameserver_harness import Wire

R = RequestCode


async def pair(server: QuietController, *, in_sync: bool = True) -> None:
    """A group of two whose master is 1."""
    await server.join(1)
    await server.join(2)
    assert (await server.elect(1)).code == ResponseCode.SUCCESS
    if in_sync:
        body = SyncStateSet([1, 2], 1).encode()
        names = {"brokerName": GROUP, "masterBrokerId": 1, "masterEpoch": 1}
        altered = await server.ask(R.CONTROLLER_ALTER_SYNC_STATE_SET, body, **names)
        assert altered.code == 0, altered.remark
        assert altered.ext_fields == {"newSyncStateSetEpoch": "2"}
        assert SyncStateSet.decode(altered.body or b"") == SyncStateSet([1, 2], 2)


async def settled(server: QuietController) -> None:
    """Wait for elections in the background."""
    running = tuple(server.controller.elections._running.values())
    for task in running:
        await task


async def info(server: QuietController) -> dict[str, str]:
    return (await server.ask(R.CONTROLLER_GET_REPLICA_INFO, brokerName=GROUP)).ext_fields


async def test_a_group_begins_with_ids_a_registration_and_an_election() -> None:
    async with QuietController() as server:
        names = {"clusterName": CLUSTER, "brokerName": GROUP}
        first = await server.ask(R.CONTROLLER_GET_NEXT_BROKER_ID, **names)
        assert first.ext_fields == {**names, "nextBrokerId": "1"}
        await server.join(1)
        registered = await server.register(1)
        assert registered.ext_fields == names
        assert SyncStateSet.decode(registered.body or b"") == SyncStateSet([], 0)
        elected = await server.elect(1)
        assert elected.ext_fields == {
            "masterBrokerId": "1", "masterAddress": "127.0.0.1:1", "masterEpoch": "1", "syncStateSetEpoch": "1",
        }  # fmt: skip
        body = ElectMasterResponseBody.decode(elected.body or b"")
        assert body.broker_member_group is not None
        assert body.broker_member_group.broker_addrs == {1: "127.0.0.1:1"}
        assert body.sync_state_set == [1]
        assert b'"brokerAddrs":{"1":' in (elected.body or b"")
        assert (await server.elect(1)).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        await server.join(2)
        assert (await server.register(2)).ext_fields["masterBrokerId"] == "1"


async def test_a_restarted_master_is_master_again_by_an_election_only() -> None:
    async with QuietController() as server:
        await pair(server)
        assert "masterBrokerId" not in (await server.register(1)).ext_fields
        await server.heartbeat(1, epoch=1, maxOffset=100)
        await server.heartbeat(2, epoch=1, maxOffset=100)
        assert (await server.elect(1)).code == ResponseCode.CONTROLLER_MASTER_STILL_EXIST
        # It has lost the end of its log in a crash, and the other one has it.
        await server.heartbeat(1, epoch=1, maxOffset=90)
        elected = await server.elect(1)
        assert (elected.code, elected.ext_fields["masterBrokerId"]) == (0, "2")


async def test_a_closed_connection_of_the_master_elects_at_once() -> None:
    async with QuietController() as server:
        await pair(server)
        server.controller.connection_closed(server.wires[1])  # type: ignore[arg-type]
        await settled(server)
        assert await info(server) == {"masterBrokerId": "2", "masterAddress": "127.0.0.1:2", "masterEpoch": "2"}
        # The old master comes back, and learns of the new one.
        assert (await server.register(1)).ext_fields["masterBrokerId"] == "2"


async def test_a_connection_that_a_broker_has_left_means_nothing() -> None:
    async with QuietController() as server:
        await pair(server)
        old, server.wires[1] = server.wires[1], Wire()
        await server.heartbeat(1)
        server.controller.connection_closed(old)  # type: ignore[arg-type]
        await settled(server)
        assert (await info(server))["masterBrokerId"] == "1"


async def test_a_silent_master_is_replaced_after_its_timeout() -> None:
    async with QuietController() as server:
        await pair(server)
        for _ in range(10):
            server.clock.advance(1000)
            await server.heartbeat(2)
            server.controller.elections.scan()
        await settled(server)
        assert (await info(server))["masterBrokerId"] == "1"
        server.clock.advance(1000)
        server.controller.elections.scan()
        await settled(server)
        assert (await info(server))["masterBrokerId"] == "2"


async def test_a_controller_that_was_paused_declares_no_broker_dead() -> None:
    async with QuietController() as server:
        await pair(server)
        server.clock.advance(20_000)
        server.controller.elections.scan()
        server.controller.elections.check_masters()
        await settled(server)
        assert (await info(server))["masterEpoch"] == "1"


async def test_without_an_in_sync_replica_there_is_no_master_until_one_comes_back() -> None:
    async with QuietController() as server:
        await pair(server, in_sync=False)
        server.controller.connection_closed(server.wires[1])  # type: ignore[arg-type]
        await settled(server)
        assert await info(server) == {"masterEpoch": "2"}
        assert (await server.elect(2)).code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        server.controller.elections.check_masters()
        await settled(server)
        assert await info(server) == {"masterEpoch": "2"}
        await server.heartbeat(1)
        server.controller.elections.check_masters()
        await settled(server)
        assert await info(server) == {"masterBrokerId": "1", "masterAddress": "127.0.0.1:1", "masterEpoch": "3"}


async def test_a_restarted_controller_waits_for_the_heartbeats_of_a_master() -> None:
    async with QuietController() as before:
        await pair(before)
    async with QuietController(before.disk) as server:
        await server.heartbeat(2)
        server.controller.elections.check_masters()
        await settled(server)
        assert (await server.register(2)).ext_fields["masterBrokerId"] == "1"
        for _ in range(10):
            server.clock.advance(1000)
            server.controller.elections.scan()
            await server.heartbeat(2)
        server.controller.elections.check_masters()
        await settled(server)
        assert (await info(server))["masterBrokerId"] == "2"


async def test_tools_see_the_replicas_and_what_they_reported() -> None:
    async with QuietController() as server:
        await pair(server, in_sync=False)
        await server.heartbeat(2, epoch=1, maxOffset=77, confirmOffset=70)
        server.controller.connection_closed(server.wires[1])  # type: ignore[arg-type]
        await settled(server)
        answer = await server.ask(R.CONTROLLER_GET_SYNC_STATE_DATA, dumps([GROUP, "none"]))
        (found,) = BrokerReplicasInfo.decode(answer.body or b"").replicas_info_table.values()
        assert (found.master_broker_id, found.master_epoch, found.sync_state_set_epoch) == (None, 2, 1)
        (one,), (two,) = found.in_sync_replicas, found.not_in_sync_replicas
        assert (one.broker_id, one.alive, one.max_offset) == (1, False, 0)
        assert (two.broker_id, two.alive, two.max_offset, two.confirm_offset) == (2, True, 77, 70)


async def test_the_metadata_name_the_leader() -> None:
    peers: dict[str, Any] = {"controller_d_leger_group": "g", "controller_d_leger_peers": "n0-127.0.0.1:0"}
    async with QuietController(**peers, controller_d_leger_self_id="n0") as server:
        found = (await server.ask(R.CONTROLLER_GET_METADATA_INFO)).ext_fields
        own = f"127.0.0.1:{server.controller.port}"
        assert found == {
            "group": "g", "controllerLeaderId": "n0", "controllerLeaderAddress": own, "isLeader": "true",
            "peers": f"n0:{own};",
        }  # fmt: skip


async def test_replicas_are_cleaned() -> None:
    async with QuietController() as server:
        await pair(server)
        cleaned = {"clusterName": CLUSTER, "brokerName": GROUP}
        refused = await server.ask(R.CLEAN_BROKER_DATA, **cleaned)
        assert refused.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        wrong = await server.ask(R.CLEAN_BROKER_DATA, **cleaned, brokerControllerIdsToClean="x")
        assert wrong.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
        done = await server.ask(R.CLEAN_BROKER_DATA, **cleaned, isCleanLivingBroker=True)
        assert done.code == ResponseCode.SUCCESS
        gone = await server.ask(R.CONTROLLER_GET_REPLICA_INFO, brokerName=GROUP)
        assert gone.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST


async def test_settings_change_within_the_allow_list() -> None:
    async with QuietController() as server:
        changed = await server.ask(R.UPDATE_CONTROLLER_CONFIG, b"enableElectUncleanMaster=true")
        assert changed.code == 0, changed.remark
        assert server.config.enable_elect_unclean_master
        assert b"enableElectUncleanMaster=true\n" in server.disk.read("/c/controller.properties")
        for text in (b"etcdEndpoints=http://10.0.0.1:1", b"controllerStorePath=/tmp/x", b"etcdPassword=x"):
            assert (await server.ask(R.UPDATE_CONTROLLER_CONFIG, text)).code == ResponseCode.SYSTEM_ERROR
        black = await server.ask(R.UPDATE_CONTROLLER_CONFIG, b"configStorePath=/tmp/x")
        assert black.code == ResponseCode.NO_PERMISSION
        printed = (await server.ask(R.GET_CONTROLLER_CONFIG)).body or b""
        assert b"enableElectUncleanMaster=true\n" in printed


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"brokerId": None}, ResponseCode.CONTROLLER_INVALID_REQUEST),
        ({"brokerId": 1, "brokerName": "x" * 2000}, ResponseCode.CONTROLLER_INVALID_REQUEST),
    ],
)
async def test_a_malformed_heartbeat_is_refused(fields: dict[str, object], code: int) -> None:
    async with QuietController() as server:
        given = {"clusterName": CLUSTER, "brokerName": GROUP, "brokerAddr": "h:1", **fields}
        assert (await server.ask(R.BROKER_HEARTBEAT, **given)).code == code


async def test_limits_are_refused_with_the_name_of_the_setting() -> None:
    async with QuietController(max_replicas_of_group=1, max_broker_groups=1, max_brokers=1) as server:
        await server.join(1)
        assert "maxBrokers" in str((await server.heartbeat(2)).remark)
        given = {"clusterName": CLUSTER, "appliedBrokerId": 2, "registerCheckCode": "h:1;1"}
        full = await server.ask(R.CONTROLLER_APPLY_BROKER_ID, **given, brokerName=GROUP)
        assert "maxReplicasOfGroup" in str(full.remark)
        other = await server.ask(R.CONTROLLER_APPLY_BROKER_ID, **given, brokerName="other")
        assert "maxBrokerGroups" in str(other.remark)


async def test_without_etcd_a_controller_answers_that_it_does_not_lead() -> None:
    settings: dict[str, Any] = {
        "controller_store_type": "etcd",
        "etcd_endpoints": f"http://127.0.0.1:{free_port()}",
    }
    own = free_port()
    settings["controller_d_leger_peers"] = f"n0-10.0.0.1:1;n1-10.0.0.2:{own}"
    async with QuietController(**settings, controller_d_leger_self_id="n1") as server:
        refused = await server.ask(R.CONTROLLER_GET_REPLICA_INFO, brokerName=GROUP)
        assert refused.code == ResponseCode.CONTROLLER_NOT_LEADER
        found = (await server.ask(R.CONTROLLER_GET_METADATA_INFO)).ext_fields
        assert (found["isLeader"], found["controllerLeaderAddress"]) == ("false", "")
        assert found["peers"] == f"n0:10.0.0.1:1;n1:10.0.0.2:{own};"


async def test_the_peers_of_jraft_have_no_ids() -> None:
    addresses: dict[str, Any] = {
        "j_raft_init_conf": "127.0.0.1:9880",
        "j_raft_controller_rpc_addr": "127.0.0.1:0",
    }
    async with QuietController(controller_type="jRaft", j_raft_server_id="127.0.0.1:9880", **addresses) as server:
        found = (await server.ask(R.CONTROLLER_GET_METADATA_INFO)).ext_fields
        assert found["peers"] == f"127.0.0.1:{server.controller.port};"
        assert found["controllerLeaderId"] == "127.0.0.1:9880"
