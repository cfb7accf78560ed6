"""Authentication hook: maps the metadata of a call to the user who makes it, and checks what the call asks for."""

from __future__ import annotations

import binascii
import hmac
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from orbitmq.auth.decision import Requirement, authorize
from orbitmq.auth.errors import AuthenticationError, AuthorizationError, QuotaError
from orbitmq.auth.local_only import check_source, host_of, networks_of
from orbitmq.auth.quotas.of_users import charge
from orbitmq.auth.requirements import GET, PUB, SUB, of_both
from orbitmq.auth.resources import group_resource, topic_resource
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.proto import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from orbitmq.auth.access import AccessControl
    from orbitmq.auth.guard import Users
    from orbitmq.auth.policies import User

Authenticate: TypeAlias = "Callable[[str, Mapping[str, str], object, str], str]"
"""Called with the name of the RPC, the metadata, the request (None for Telemetry) and the caller's address.

It returns the subject, or raises ``StatusError(UNAUTHORIZED)``.
"""

MAX_SKEW_SECONDS = (14 * 60 + 15) * 60.0
"""Of the date that a call signs, and nothing else: a recorded signature is of no use any more after this time.

The clients of Java, Python and Go sign their local time and call it UTC; zones are up to 14 hours away.
"""

_NEVER_REFUSED = frozenset(
    {
        *("Heartbeat", "NotifyClientTermination", "Telemetry", "AckMessage", "ChangeInvisibleDuration"),
        *("EndTransaction", "UpdateOffset"),
    }
)
"""Calls that finish something, or keep a client alive."""

_CONSUMERS = frozenset(
    {pb.PUSH_CONSUMER, pb.PULL_CONSUMER, pb.SIMPLE_CONSUMER, pb.LITE_PUSH_CONSUMER, pb.LITE_SIMPLE_CONSUMER}
)


def anonymous(_rpc: str, _metadata: Mapping[str, str], _request: object, _address: str) -> str:
    """Admits every call, as a server without access control does."""
    return ""


def hook_of(access: AccessControl) -> Authenticate:
    """The hook for the users and rules of a broker."""
    table = access.table
    return anonymous if table is None else _Hook(table, access).check


def admin_hook_of(access: AccessControl) -> Authenticate:
    """The hook for the Admin service of a broker: without users, who may administer by the remoting port."""
    return hook_of(access) if access.table is not None else from_this_machine(access.settings.admin_networks)


def from_this_machine(networks: str = "") -> Authenticate:
    """Admits calls from this machine and from these networks, as servers without users do for administration."""
    admitted = networks_of(networks)

    def check(rpc: str, _metadata: Mapping[str, str], _request: object, address: str) -> str:
        try:
            check_source(address, "", admitted, f"the call {rpc}")
        except AuthorizationError as error:
            raise StatusError(pb.FORBIDDEN, str(error)) from None
        return ""

    return check


class _Hook:
    def __init__(self, table: Users, access: AccessControl) -> None:
        self._table = table
        self._authorizes = access.authorizes
        self._settings, self._quota = access.settings, access.user_quota

    def check(self, rpc: str, metadata: Mapping[str, str], request: Any, address: str) -> str:
        try:
            user = authenticated(self._table, metadata, datetime.now(UTC))
        except AuthenticationError as error:
            raise StatusError(pb.UNAUTHORIZED, str(error)) from None
        if rpc not in _NEVER_REFUSED:
            try:
                charge(self._quota, user, None, self._settings.max_requests_per_second_of_user)
            except QuotaError as error:
                raise StatusError(pb.TOO_MANY_REQUESTS, str(error)) from None
        if self._authorizes and request is not None and not user.is_super:
            try:
                rule = _RULES.get(rpc)
                if rule is None:
                    raise AuthorizationError(f"the call {rpc} is for super users only")
                authorize(user, self._table.acls.get(user.name), rule(request), host_of(address))
            except AuthorizationError as error:
                raise StatusError(pb.FORBIDDEN, str(error)) from None
        return user.name


def authenticated(table: Users, metadata: Mapping[str, str], now: datetime) -> User:
    """The user who signed the date of a call. Raises AuthenticationError."""
    items = dict(
        part.strip().partition("=")[::2] for part in metadata.get("authorization", "").split(" ", 1)[-1].split(",")
    )
    name = items.get("Credential", "").partition("/")[0]
    if not name:
        raise AuthenticationError("username cannot be null.")
    user = table.users.get(name)
    if user is None:
        raise AuthenticationError(f"User:{name} is not found.")
    if not user.is_enabled:
        raise AuthenticationError(f"User:{name} is disabled.")
    date = metadata.get("x-mq-date-time", "")
    try:
        signature = binascii.unhexlify(items.get("Signature", ""))
        signed = _date_of(date)
    except ValueError:
        raise AuthenticationError("check signature failed.") from None
    if not hmac.compare_digest(hmac.digest(user.secret, date.encode(), "sha1"), signature):
        raise AuthenticationError("check signature failed.")
    if abs((now - signed).total_seconds()) > MAX_SKEW_SECONDS:
        raise AuthenticationError("the date of the signature is too old, or the clocks differ")
    return user


def _date_of(text: str) -> datetime:
    """The date as clients write it: Rust's in RFC 3339, the others in the short form. Raises ValueError."""
    if "-" in text:
        date = datetime.fromisoformat(text)
        return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
    return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)


def _pub(request: Any) -> Iterator[Requirement]:
    yield Requirement(topic_resource(request.topic.name), (PUB,))


def _send(request: Any) -> Iterator[Requirement]:
    for topic in dict.fromkeys(message.topic.name for message in request.messages):
        yield Requirement(topic_resource(topic), (PUB,))


def _both(request: Any) -> Iterator[Requirement]:
    return of_both(request.topic.name, request.group.name, (SUB,))


def _queue_and_group(request: Any) -> Iterator[Requirement]:
    return of_both(request.message_queue.topic.name, request.group.name, (SUB,))


def _queue(request: Any) -> Iterator[Requirement]:
    yield Requirement(topic_resource(request.message_queue.topic.name), (SUB, GET))


def _route(request: Any) -> Iterator[Requirement]:
    yield Requirement(topic_resource(request.topic.name), (PUB, SUB, GET))


def _heartbeat(request: Any) -> Iterator[Requirement]:
    if request.client_type in _CONSUMERS or request.group.name:
        yield Requirement(group_resource(request.group.name), (SUB,))


def _termination(request: Any) -> Iterator[Requirement]:
    if request.group.name:
        yield Requirement(group_resource(request.group.name), (SUB,))


_RULES: dict[str, Callable[[Any], Iterator[Requirement]]] = {
    "QueryRoute": _route,
    "QueryAssignment": _both,
    "Heartbeat": _heartbeat,
    "NotifyClientTermination": _termination,
    "SendMessage": _send,
    "RecallMessage": _pub,
    "EndTransaction": _pub,
    "AckMessage": _both,
    "ChangeInvisibleDuration": _both,
    "ForwardMessageToDeadLetterQueue": _both,
    "ReceiveMessage": _queue_and_group,
    "PullMessage": _queue_and_group,
    "UpdateOffset": _queue_and_group,
    "GetOffset": _queue_and_group,
    "QueryOffset": _queue,
    "SyncLiteSubscription": _both,
}
