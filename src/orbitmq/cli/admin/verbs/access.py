"""``orbitmq user`` and ``orbitmq rule``: users and rules of access, where brokers authenticate."""

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.admin.framework.arguments import AtBroker
from orbitmq.cli.admin.framework.operator import ChangeOptions, Operator, verb
from orbitmq.cli.admin.framework.view import Table, View

if TYPE_CHECKING:
    from orbitmq.admin import Change
    from orbitmq.protocol.bodies import PolicyEntryInfo

user_app = typer.Typer(help="Users: list, create, alter, delete.", no_args_is_help=True)
rule_app = typer.Typer(help="Rules of access: list, create, alter, delete.", no_args_is_help=True)

User = Annotated[str, typer.Argument(metavar="USER")]
Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="User:name")]
Super = Annotated[bool | None, typer.Option("--super/--normal", help="Whether rules do not apply to it.")]


@verb(user_app, "list")
async def list_users(
    operator: Operator,
    pattern: Annotated[str, typer.Argument(metavar="[PATTERN]", help="Only names with this in them.")] = "",
    broker: AtBroker = "",
) -> View:
    """List users, without their passwords."""
    found = await operator.admin.access.users(broker=broker, name_filter=pattern)
    rows = [(one.username, one.user_type, one.user_status) for one in found]
    return View.of(Table("name type status", rows, "there are no users"))


@verb(user_app, "create")
async def create_user(
    operator: Operator, user: User, change: ChangeOptions, super_user: Super = None, broker: AtBroker = ""
) -> View:
    """Create a user. The password is read from standard input."""
    from orbitmq.protocol.bodies import UserInfo  # noqa: PLC0415 - not imported for help texts

    after = UserInfo(user, _password(), "Super" if super_user else "Normal")

    async def make(dry: bool) -> "list[Change]":
        changes = await operator.admin.access.user_changes(user, after, broker=broker)
        if not dry:
            await operator.admin.access.create_user(
                user, after.password or "", user_type=after.user_type or "Normal", broker=broker
            )
        return changes

    return await operator.change(change, make)


@verb(user_app, "alter")
async def alter_user(
    operator: Operator,
    user: User,
    change: ChangeOptions,
    super_user: Super = None,
    enable: Annotated[bool | None, typer.Option("--enable/--disable")] = None,
    password: Annotated[bool, typer.Option("--password", help="Read a new password from standard input.")] = False,
    broker: AtBroker = "",
) -> View:
    """Alter a user."""
    from orbitmq.protocol.bodies import UserInfo  # noqa: PLC0415

    kind = None if super_user is None else "Super" if super_user else "Normal"
    status = None if enable is None else "enable" if enable else "disable"
    after = UserInfo(user, _password() if password else None, kind, status)

    async def make(dry: bool) -> "list[Change]":
        changes = await operator.admin.access.user_changes(user, after, broker=broker)
        if not dry:
            await operator.admin.access.alter_user(
                user, password=after.password, user_type=kind, status=status, broker=broker
            )
        return changes

    return await operator.change(change, make)


@verb(user_app, "delete")
async def delete_user(operator: Operator, user: User, change: ChangeOptions, broker: AtBroker = "") -> View:
    """Delete a user."""

    async def make(dry: bool) -> "list[Change]":
        changes = await operator.admin.access.user_changes(user, None, broker=broker)
        if not dry:
            await operator.admin.access.delete_user(user, broker=broker)
        return changes

    return await operator.change(change, make, destroys=f"delete the user {user}")


@verb(rule_app, "list")
async def list_rules(
    operator: Operator,
    subject: Annotated[str, typer.Argument(metavar="[SUBJECT]", help="User:name; all if omitted.")] = "",
    resource: Annotated[str, typer.Option(help="Only rules for this resource.")] = "",
    broker: AtBroker = "",
) -> View:
    """List rules of access."""
    found = await operator.admin.access.rules(broker=broker, subject=subject, resource=resource)
    rows = [
        (one.subject, policy.policy_type, entry.resource, entry.actions, entry.source_ips, entry.decision)
        for one in found
        for policy in one.policies or ()
        for entry in policy.entries or ()
    ]
    return View.of(Table("subject kind resource actions sourceIps decision", rows, "there are no rules"))


Resource = Annotated[list[str], typer.Option("--resource", "-r", help="Topic:orders, Group:*, …; may be repeated.")]
Action = Annotated[list[str], typer.Option("--action", "-a", help="Pub, Sub, Create, …, All; may be repeated.")]
Sources = Annotated[list[str] | None, typer.Option("--source", help="IP address or range; may be repeated.")]
Deny = Annotated[bool, typer.Option("--deny", help="Deny instead of allow.")]


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """A rule for several resources."""

    resource: Annotated[list[str], typer.Option("--resource", "-r", help="Topic:orders, Group:*, …; repeatable.")]
    action: Annotated[list[str], typer.Option("--action", "-a", help="Pub, Sub, Create, …, All; repeatable.")]
    source: Annotated[list[str] | None, typer.Option(help="IP address or range; may be repeated.")] = None
    deny: Annotated[bool, typer.Option("--deny", help="Deny instead of allow.")] = False


@verb(rule_app, "create")
async def create_rule(
    operator: Operator, subject: Subject, rule: Rule, change: ChangeOptions, broker: AtBroker = ""
) -> View:
    """Add rules for a subject."""
    return await _write_rules(operator, subject, rule, change, broker, is_new=True)


@verb(rule_app, "alter")
async def alter_rule(
    operator: Operator, subject: Subject, rule: Rule, change: ChangeOptions, broker: AtBroker = ""
) -> View:
    """Replace the rules of a subject for some resources."""
    return await _write_rules(operator, subject, rule, change, broker, is_new=False)


async def _write_rules(
    operator: Operator, subject: str, rule: Rule, change: ChangeOptions, broker: str, *, is_new: bool
) -> View:
    entries = _entries(rule)
    access = operator.admin.access

    async def make(dry: bool) -> "list[Change]":
        changes = await access.rule_changes(subject, entries, broker=broker)
        if not dry:
            write = access.create_rules if is_new else access.alter_rules
            await write(subject, entries, broker=broker)
        return changes

    return await operator.change(change, make)


@verb(rule_app, "delete")
async def delete_rule(
    operator: Operator,
    subject: Subject,
    change: ChangeOptions,
    resource: Annotated[str, typer.Option("--resource", "-r", help="Only those for this resource.")] = "",
    broker: AtBroker = "",
) -> View:
    """Delete the rules of a subject."""

    async def make(dry: bool) -> "list[Change]":
        changes = await operator.admin.access.rule_changes(subject, None, resource=resource, broker=broker)
        if not dry:
            await operator.admin.access.delete_rules(subject, resource=resource, broker=broker)
        return changes

    return await operator.change(change, make, destroys=f"delete the rules of {subject}")


def _entries(rule: Rule) -> "list[PolicyEntryInfo]":
    from orbitmq.protocol.bodies import PolicyEntryInfo  # noqa: PLC0415 - not imported for help texts

    decision = "Deny" if rule.deny else "Allow"
    return [PolicyEntryInfo(resource, rule.action, rule.source or None, decision) for resource in rule.resource]


def _password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    given = sys.stdin.readline().rstrip("\n")
    if not given:
        raise typer.BadParameter("give the password on standard input")
    return given
