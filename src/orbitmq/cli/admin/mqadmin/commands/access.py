"""Commands of ``mqadmin`` about users and rules of access."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.admin.errors import InvalidRequestError, NotFoundError
from orbitmq.protocol.bodies import PolicyEntryInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.cli.admin.mqadmin.call import Call
    from orbitmq.protocol.bodies import AclInfo, UserInfo

_USER = "{:<16}  {:<22}  {:<22}  {:<22}".format
_RULE = "{:<16}  {:<10}  {:<22}  {:<20}  {:<24}  {:<10}".format


async def create_user(call: Call) -> None:
    name = call["u"]
    for broker in await call.brokers():
        await call.admin.access.create_user(
            name, call["p"], user_type=call.get("t", "Normal"), broker=broker.address
        )
        call.print(f"create user to {broker.address} success.")


async def update_user(call: Call) -> None:
    if not any(call.flag(name) for name in ("p", "t", "s")):
        raise InvalidRequestError("give -p, -t or -s")
    for broker in await call.brokers():
        await call.admin.access.alter_user(
            call["u"],
            password=call.get("p") or None,
            user_type=call.get("t") or None,
            status=call.get("s") or None,
            broker=broker.address,
        )
        call.print(f"update user to {broker.address} success.")


async def delete_user(call: Call) -> None:
    for broker in await call.brokers():
        await call.admin.access.delete_user(call["u"], broker=broker.address)
        call.print(f"delete user to {broker.address} success.")


async def get_user(call: Call) -> None:
    for broker in await call.brokers():
        try:
            found = await call.admin.access.user(call["u"], broker=broker.address)
        except NotFoundError:
            call.print(f"No user with name {call['u']}")
            continue
        _print_users(call, [found])


async def list_user(call: Call) -> None:
    for broker in await call.brokers():
        _print_users(call, await call.admin.access.users(broker=broker.address, name_filter=call.get("f")))


def _print_users(call: Call, users: Iterable[UserInfo]) -> None:
    call.print(_USER("#UserName", "#Password", "#UserType", "#UserStatus"))
    for one in users:
        call.print(_USER(*(value or "" for value in (one.username, one.password, one.user_type, one.user_status))))


async def copy_user(call: Call) -> None:
    wanted = {part.strip() for part in call.get("u").split(",") if part.strip()}
    there = {one.username for one in await call.admin.access.users(broker=call["t"])}
    for one in await call.admin.access.users(broker=call["f"]):
        if not wanted or one.username in wanted:
            await call.admin.access.put_user(call["t"], one, exists=one.username in there)
            call.print(f"copy user of {one.username} from {call['f']} to {call['t']} success.")


async def create_acl(call: Call) -> None:
    for broker in await call.brokers():
        await call.admin.access.create_rules(call["s"], _entries(call), broker=broker.address)
        call.print(f"create acl to {broker.address} success.")


async def update_acl(call: Call) -> None:
    for broker in await call.brokers():
        await call.admin.access.alter_rules(call["s"], _entries(call), broker=broker.address)
        call.print(f"update acl to {broker.address} success.")


def _entries(call: Call) -> list[PolicyEntryInfo]:
    actions = _parts(call["a"])
    sources = _parts(call.get("i")) or None
    return [PolicyEntryInfo(resource, actions, sources, call["d"]) for resource in _parts(call["r"])]


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


async def delete_acl(call: Call) -> None:
    for broker in await call.brokers():
        await call.admin.access.delete_rules(call["s"], resource=call.get("r"), broker=broker.address)
        call.print(f"delete acl to {broker.address} success.")


async def get_acl(call: Call) -> None:
    for broker in await call.brokers():
        try:
            found = await call.admin.access.rules_of(call.get("s"), broker=broker.address)
        except NotFoundError:
            call.print(f"No acl with subject {call.get('s')}")
            continue
        _print_rules(call, [found])


async def list_acl(call: Call) -> None:
    for broker in await call.brokers():
        found = await call.admin.access.rules(broker=broker.address, subject=call.get("s"), resource=call.get("r"))
        _print_rules(call, found)


def _print_rules(call: Call, rules: Iterable[AclInfo]) -> None:
    call.print(_RULE("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"))
    for one in rules:
        for policy in one.policies or ():
            for entry in policy.entries or ():
                actions, sources = ",".join(entry.actions or ()), ",".join(entry.source_ips or ())
                cells = (one.subject, policy.policy_type, entry.resource, actions, sources, entry.decision)
                call.print(_RULE(*(cell or "" for cell in cells)))


async def copy_acl(call: Call) -> None:
    wanted = set(_parts(call.get("s")))
    there = {one.subject for one in await call.admin.access.rules(broker=call["t"])}
    for one in await call.admin.access.rules(broker=call["f"]):
        if not wanted or one.subject in wanted:
            await call.admin.access.put_rules(call["t"], one, exists=one.subject in there)
            call.print(f"copy acl of {one.subject} from {call['f']} to {call['t']} success.")
