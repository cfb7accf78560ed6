"""Commands of ``mqadmin`` about controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.cli.admin.mqadmin.commands.brokers import repeated
from orbitmq.cli.admin.mqadmin.java import settings_order

if TYPE_CHECKING:
    from orbitmq.cli.admin.mqadmin.call import Call
    from orbitmq.protocol.bodies.replication import ReplicaIdentity


async def get_controller_config(call: Call) -> None:
    for address in call["a"].split(";"):
        call.print(f"============{address}============")
        found = await call.admin.controllers.settings(address)
        for name in settings_order(found):
            call.print(f"{name:<50}=  {found[name]}")


async def update_controller_config(call: Call) -> None:
    for address in call["a"].split(";"):
        await call.admin.controllers.alter_settings(address, {call["k"]: call["v"]})
    call.print(f"update controller config success![{call['a']}]\n{call['k']} : {call['v']}")


async def get_controller_meta_data(call: Call) -> None:
    found = await call.admin.controllers.metadata(call["a"])
    call.print(f"\n#ControllerGroup\t{found.group}\n#ControllerLeaderId\t{found.leader_id}")
    call.print(f"#ControllerLeaderAddress\t{found.leader_address}")
    for peer in found.peers.rstrip(";").split(";") if found.peers else ():
        call.print(f"#Peer:\t{peer}")


async def get_sync_state_set(call: Call) -> None:
    async def work() -> None:
        if call.flag("b"):
            names = [call["b"]]
        else:
            topology = await call.admin.brokers.topology()
            names = sorted({one.broker_name for one in topology.of_cluster(call.get("c"))})
        found = await call.admin.controllers.replicas(call["a"], names)
        for name, info in found.replicas_info_table.items():
            master = "null" if info.master_broker_id is None else info.master_broker_id
            call.print(f"\n#brokerName\t{name}\n#MasterBrokerId\t{master}")
            call.print(f"#MasterAddr\t{info.master_address or 'null'}\n#MasterEpoch\t{info.master_epoch}")
            call.print(f"#SyncStateSetEpoch\t{info.sync_state_set_epoch}")
            call.print(f"#SyncStateSetNums\t{len(info.in_sync_replicas)}")
            for title, members in (
                ("InSyncReplica", info.in_sync_replicas),
                ("NotInSyncReplica", info.not_in_sync_replicas),
            ):
                for one in members:
                    call.print(f"\n{title}:\t{_replica_text(one)}")

    await repeated(call, work, 3)


def _replica_text(one: ReplicaIdentity) -> str:
    return (
        f"ReplicaIdentity{{brokerName='{one.broker_name}', brokerId={one.broker_id}, "
        f"brokerAddress='{one.broker_address}', alive={str(bool(one.alive)).lower()}}}"
    )


async def elect_master(call: Call) -> None:
    found = await call.admin.controllers.elect_master(call["a"], call["c"], call["bn"], call.number("b"))
    call.print(f"\n#ClusterName\t{call['c']}\n#BrokerName\t{call['bn']}")
    call.print(f"#BrokerMasterAddr\t{found.address}\n#MasterEpoch\t{found.master_epoch}")
    call.print(f"#SyncStateSetEpoch\t{found.sync_state_set_epoch}")


async def clean_broker_metadata(call: Call) -> None:
    ids = [int(part) for part in call.get("b").split(";") if part.strip().isdecimal()]
    await call.admin.controllers.clean_broker_metadata(
        call["a"], call["bn"], cluster=call.get("c"), broker_ids=ids, living_too=call.flag("l")
    )
    call.print(f"clear broker {call['bn']} metadata from controller success!")
