"""``orbitmq user`` and ``orbitmq rule``: users and rules of access, where brokers authenticate."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.admin.framework.arguments import AtBroker
from orbitmq.cli.admin.framework.operator import ChangeOptions, Operator, confirm, verb
from orbitmq.cli.admin.framework.view import Table, View

if TYPE_CHECKING:
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
async def create_user(operator: Operator, user: User, super_user: Super = None, broker: AtBroker = "") -> View:
    """Create a user. The password is read from standard input."""
    found = await operator.admin.access.create_user(
        user, _password(), user_type="Super" if super_user else "Normal", broker=broker
    )
    return _addresses(found)


@verb(user_app, "alter")
async def alter_user(
    operator: Operator,
    user: User,
    super_user: Super = None,
    enable: Annotated[bool | None, typer.Option("--enable/--disable")] = None,
    password: Annotated[bool, typer.Option("--password", help="Read a new password from standard input.")] = False,
    broker: AtBroker = "",
) -> View:
    """Alter a user."""
    found = await operator.admin.access.alter_user(
        user,
        password=_password() if password else None,
        user_type=None if super_user is None else "Super" if super_user else "Normal",
        status=None if enable is None else "enable" if enable else "disable",
        broker=broker,
    )
    return _addresses(found)


@verb(user_app, "delete")
async def delete_user(operator: Operator, user: User, change: ChangeOptions, broker: AtBroker = "") -> View:
    """Delete a user."""
    if change.dry_run:
        await operator.admin.access.user(user, broker=broker)
        return View.of(Table("broker", []), "dry run: nothing was changed")
    if not change.yes:
        confirm(f"delete the user {user}")
    return _addresses(await operator.admin.access.delete_user(user, broker=broker))


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


@verb(rule_app, "create")
async def create_rule(
    operator: Operator,
    subject: Subject,
    resource: Resource,
    action: Action,
    source: Sources = None,
    deny: Deny = False,
    broker: AtBroker = "",
) -> View:
    """Add rules for a subject."""
    entries = _entries(resource, action, source, deny)
    return _addresses(await operator.admin.access.create_rules(subject, entries, broker=broker))


@verb(rule_app, "alter")
async def alter_rule(
    operator: Operator,
    subject: Subject,
    resource: Resource,
    action: Action,
    source: Sources = None,
    deny: Deny = False,
    broker: AtBroker = "",
) -> View:
    """Replace the rules of a subject for some resources."""
    entries = _entries(resource, action, source, deny)
    return _addresses(await operator.admin.access.alter_rules(subject, entries, broker=broker))


@verb(rule_app, "delete")
async def delete_rule(
    operator: Operator,
    subject: Subject,
    change: ChangeOptions,
    resource: Annotated[str, typer.Option("--resource", "-r", help="Only those for this resource.")] = "",
    broker: AtBroker = "",
) -> View:
    """Delete the rules of a subject."""
    if change.dry_run:
        return View.of(Table("broker", []), "dry run: nothing was changed")
    if not change.yes:
        confirm(f"delete the rules of {subject}")
    return _addresses(await operator.admin.access.delete_rules(subject, resource=resource, broker=broker))


def _entries(
    resources: list[str], actions: list[str], sources: list[str] | None, deny: bool
) -> "list[PolicyEntryInfo]":
    from orbitmq.protocol.bodies import PolicyEntryInfo  # noqa: PLC0415 - not imported for help texts

    decision = "Deny" if deny else "Allow"
    return [PolicyEntryInfo(resource, actions, sources or None, decision) for resource in resources]


def _password() -> str:
    if sys.stdin.isatty():
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    given = sys.stdin.readline().rstrip("\n")
    if not given:
        raise typer.BadParameter("give the password on standard input")
    return given


def _addresses(found: list[str]) -> View:
    return View.of(Table("broker", [(address,) for address in found]))
