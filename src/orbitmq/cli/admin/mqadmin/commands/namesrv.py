"""Commands of ``mqadmin`` about name servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.cli.admin.mqadmin.java import settings_order

if TYPE_CHECKING:
    from orbitmq.cli.admin.mqadmin.call import Call


async def get_namesrv_config(call: Call) -> None:
    for address in call.admin.config.name_servers:
        call.print(f"============{address}============")
        found = await call.admin.name_servers.settings(address)
        for name in settings_order(found):
            call.print(f"{name:<50}=  {found[name]}")


async def update_namesrv_config(call: Call) -> None:
    await call.admin.name_servers.alter_settings({call["k"]: call["v"]})
    servers = ", ".join(call.admin.config.name_servers)
    call.print(f"update name server config success![{servers}]\n{call['k']} : {call['v']}")


async def update_kv_config(call: Call) -> None:
    await call.admin.name_servers.put(call["s"], call["k"], call["v"])
    call.print("create or update kv config to namespace success.")


async def delete_kv_config(call: Call) -> None:
    await call.admin.name_servers.delete(call["s"], call["k"])
    call.print("delete kv config from namespace success.")
