"""``plain_acl.yml``, the accounts of RocketMQ's first access control (4.4 to 5.3.2)."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

from orbitmq.auth.errors import AccessError
from orbitmq.auth.policies import (
    USER_PREFIX,
    Acl,
    Decision,
    Policy,
    PolicyEntry,
    PolicyType,
    User,
    UserType,
)
from orbitmq.auth.resources import Action, Pattern, Resource, ResourceType, group_resource, topic_resource
from orbitmq.platform.settings import ConfigError

MAX_FILE_BYTES = 4 << 20
MAX_ACCOUNTS = 10_000
MIN_KEY_LENGTH = 7
"""RocketMQ refuses access keys and secrets of 6 characters and fewer."""

_ACTIONS = {
    "PUB": (Action.PUB,),
    "SUB": (Action.SUB,),
    "PUB|SUB": (Action.PUB, Action.SUB),
    "SUB|PUB": (Action.PUB, Action.SUB),
}


@dataclasses.dataclass(frozen=True, slots=True)
class PlainAccount:
    """One account. Permissions are texts: ``PUB``, ``SUB``, ``PUB|SUB``, ``DENY``."""

    access_key: str
    secret: str = dataclasses.field(repr=False)
    white_address: str = ""
    is_admin: bool = False
    default_topic_permission: str = "DENY"
    default_group_permission: str = "DENY"
    topics: tuple[tuple[str, str], ...] = ()
    groups: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class PlainAccess:
    """The accounts of all files, and the addresses that need none."""

    accounts: tuple[PlainAccount, ...] = ()
    white_addresses: tuple[str, ...] = ()


def plain_files(conf: str) -> list[str]:
    """The files of a ``conf`` directory: ``plain_acl.yml`` and those below ``acl/``."""
    name = os.path.join(conf, "plain_acl.yml")
    found = [name] if os.path.isfile(name) else []
    below = os.path.join(conf, "acl")
    if os.path.isdir(below):
        found += sorted(
            os.path.join(below, one)
            for one in os.listdir(below)
            if one.endswith((".yml", ".yaml")) and one != "tools.yml"
        )
    return found


def read_plain_access(conf: str) -> PlainAccess:
    """The accounts of a ``conf`` directory. Raises ConfigError."""
    accounts: dict[str, PlainAccount] = {}
    addresses: list[str] = []
    for path in plain_files(conf):
        document = _document(path)
        addresses += [str(one) for one in _list(document.get("globalWhiteRemoteAddresses"))]
        for raw in _list(document.get("accounts")):
            account = _account(raw, path)
            if account.access_key in accounts:
                raise ConfigError(f"{path}: the account {account.access_key} is in another file too, or twice")
            accounts[account.access_key] = account
    if len(accounts) > MAX_ACCOUNTS:
        raise ConfigError(f"{conf} has {len(accounts)} accounts, at most {MAX_ACCOUNTS}")
    return PlainAccess(tuple(accounts.values()), tuple(addresses))


def imported(conf: str) -> tuple[dict[str, User], dict[str, Acl]]:
    """Users and rules for the accounts of a ``conf`` directory, as RocketMQ migrates them. Raises ConfigError.

    White lists of addresses are not imported: a user signs its requests wherever it is.
    """
    return _users_of(read_plain_access(conf))


def _users_of(access: PlainAccess) -> tuple[dict[str, User], dict[str, Acl]]:
    users, acls = {}, {}
    for account in access.accounts:
        kind = UserType.SUPER if account.is_admin else UserType.NORMAL
        users[account.access_key] = User(account.access_key, account.secret, kind)
        custom = [_entry(topic_resource(name), permission) for name, permission in account.topics]
        custom += [_entry(group_resource(name), permission) for name, permission in account.groups]
        default = [
            _entry(Resource(kind, "", Pattern.ANY), permission)
            for kind, permission in (
                (ResourceType.TOPIC, account.default_topic_permission),
                (ResourceType.GROUP, account.default_group_permission),
            )
        ]
        policies = ((PolicyType.CUSTOM, custom), (PolicyType.DEFAULT, default))
        acls[account.access_key] = Acl(
            USER_PREFIX + account.access_key,
            tuple(Policy(which, tuple(entries)) for which, entries in policies if entries),
        )
    return users, acls


def accounts_as_users(access: PlainAccess) -> tuple[dict[str, User], dict[str, Acl]]:
    """Users and rules that mean what the accounts mean to RocketMQ's first access control.

    There an account with a permission for a topic has no other one for it, while default rules of the second one
    also fill up what custom rules leave open.
    """
    users, acls = _users_of(access)
    return users, {name: dataclasses.replace(acl, is_plain=True) for name, acl in acls.items()}


def _entry(resource: Resource, permission: str) -> PolicyEntry:
    actions = _ACTIONS.get(permission)
    if actions is None:
        return PolicyEntry(resource, (Action.ALL,), decision=Decision.DENY)
    return PolicyEntry(resource, actions)


def _document(path: str) -> dict[str, Any]:
    try:
        import yaml  # noqa: PLC0415  # only brokers that read such a file need it
    except ImportError:
        raise ConfigError(f"{path}: reading it needs PyYAML; install orbitmq[pipelines]") from None
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_FILE_BYTES + 1)
        if len(text) > MAX_FILE_BYTES:
            raise ConfigError(f"{path} is longer than {MAX_FILE_BYTES} bytes")
        document = yaml.safe_load(text)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror or error}") from error
    except yaml.YAMLError as error:
        # Without the text of the error, which quotes the file and may show a secret.
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" at line {mark.line + 1}"
        raise ConfigError(f"{path} is not YAML{where}") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: accounts and globalWhiteRemoteAddresses are expected")
    return document


def _account(raw: object, path: str) -> PlainAccount:
    if not isinstance(raw, dict):
        raise ConfigError(f"{path}: an account has accessKey and secretKey")
    access_key, secret = str(raw.get("accessKey") or ""), str(raw.get("secretKey") or "")
    if len(access_key) < MIN_KEY_LENGTH or len(secret) < MIN_KEY_LENGTH:
        raise ConfigError(
            f"{path}: accessKey and secretKey of an account must have at least {MIN_KEY_LENGTH} characters "
            f"(accessKey={access_key})"
        )
    try:
        return PlainAccount(
            access_key,
            secret,
            str(raw.get("whiteRemoteAddress") or ""),
            raw.get("admin") is True,
            _permission(raw.get("defaultTopicPerm")),
            _permission(raw.get("defaultGroupPerm")),
            _permissions(raw.get("topicPerms")),
            _permissions(raw.get("groupPerms")),
        )
    except AccessError as error:
        raise ConfigError(f"{path}: account {access_key}: {error}") from None


def _permission(raw: object) -> str:
    """A permission; whatever is none denies."""
    text = str(raw or "").strip()
    return text if text in _ACTIONS else "DENY"


def _permissions(raw: object) -> tuple[tuple[str, str], ...]:
    found = []
    for one in _list(raw):
        name, equals, permission = str(one).partition("=")
        if not equals or "=" in permission:
            raise AccessError(f"{str(one)[:80]!r} is not name=permission")
        found.append((name.strip(), _permission(permission)))
    return tuple(found)


def _list(raw: object) -> list[Any]:
    return raw if isinstance(raw, list) else []
