"""Authentication and authorization of calls of the gRPC protocol."""

from __future__ import annotations

import hmac
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from orbitmq.auth.errors import AuthenticationError
from orbitmq.auth.policies import Acl, Policy, PolicyEntry, PolicyType, User, UserType
from orbitmq.auth.quotas.quota import Quota
from orbitmq.auth.resources import Action, resource_of
from orbitmq.proxy.auth_hook import MAX_SKEW_SECONDS, authenticated, from_this_machine, hook_of
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc

if TYPE_CHECKING:
    from orbitmq.auth.access import AccessControl

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def entry(text: str, *actions: Action) -> PolicyEntry:
    resource = resource_of(text)
    assert resource is not None
    return PolicyEntry(resource, actions)


TABLE: Any = SimpleNamespace(
    users={"alice": User("alice", "alices-secret"), "root": User("root", "roots-secret", UserType.SUPER)},
    acls={
        "alice": Acl(
            "User:alice",
            (Policy(PolicyType.CUSTOM, (entry("Topic:orders", Action.PUB), entry("Group:billing", Action.SUB))),),
        )
    },
)


def signed(name: str, secret: str, at: datetime | None = None, form: str = "%Y%m%dT%H%M%SZ") -> dict[str, str]:
    date = (at or datetime.now(UTC)).strftime(form)
    signature = hmac.digest(secret.encode(), date.encode(), "sha1").hex().upper()
    text = f"MQv2-HMAC-SHA1 Credential={name}/region/Rocketmq, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"authorization": text, "x-mq-date-time": date}


def access(per_second: int = 0) -> AccessControl:
    settings = SimpleNamespace(max_requests_per_second_of_user=per_second)
    quota = Quota(lambda: per_second, lambda: 0)
    return cast("AccessControl", SimpleNamespace(table=TABLE, settings=settings, user_quota=quota, authorizes=True))


def check(name: str, request: Any, metadata: dict[str, str] | None = None) -> str:
    given = signed("alice", "alices-secret") if metadata is None else metadata
    return hook_of(access())(name, given, request, "10.0.0.1:5")


def message(topic: str) -> pb.Message:
    return pb.Message(topic=pb.Resource(name=topic))


def received(topic: str, group: str) -> rpc.ReceiveMessageRequest:
    queue = pb.MessageQueue(topic=pb.Resource(name=topic))
    return rpc.ReceiveMessageRequest(group=pb.Resource(name=group), message_queue=queue)


def test_a_signed_date_names_the_user() -> None:
    assert authenticated(TABLE, signed("alice", "alices-secret", NOW), NOW).name == "alice"


def test_dates_are_read_in_the_form_of_the_rust_client_too() -> None:
    metadata = signed("alice", "alices-secret", form="%Y-%m-%dT%H:%M:%S.123456+00:00")
    assert authenticated(TABLE, metadata, datetime.now(UTC)).name == "alice"


def test_without_users_administration_comes_from_this_machine_or_listed_networks() -> None:
    check_admin = from_this_machine("10.1.0.0/16")
    for address in ("127.0.0.1:5", "[::1]:5", "10.1.2.3:5"):
        assert check_admin("ResetGroupOffset", {}, None, address) == ""
    with pytest.raises(StatusError, match="adminNetworks") as caught:
        check_admin("ResetGroupOffset", {}, None, "10.2.0.1:5")
    assert caught.value.code == pb.FORBIDDEN


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"authorization": "x"},
        signed("mallory", "alices-secret", NOW),
        signed("alice", "wrong", NOW),
        {**signed("alice", "alices-secret", NOW), "x-mq-date-time": "20260102T030406Z"},
        {**signed("alice", "alices-secret", NOW), "x-mq-date-time": ""},
        {"authorization": "MQv2-HMAC-SHA1 Credential=alice, Signature=zz", "x-mq-date-time": "20260102T030405Z"},
        signed("alice", "alices-secret", NOW - timedelta(hours=14, minutes=16)),
        signed("alice", "alices-secret", NOW + timedelta(hours=14, minutes=16)),
    ],
)
def test_any_other_metadata_is_refused(metadata: dict[str, str]) -> None:
    with pytest.raises(AuthenticationError):
        authenticated(TABLE, metadata, NOW)


def test_a_call_does_what_the_rules_allow() -> None:
    assert check("SendMessage", rpc.SendMessageRequest(messages=[message("orders")])) == "alice"
    assert check("Telemetry", None) == "alice"
    assert check("AnythingNew", object(), signed("root", "roots-secret")) == "root"


@pytest.mark.parametrize(
    ("name", "request_", "needed"),
    [
        ("SendMessage", rpc.SendMessageRequest(messages=[message("orders"), message("secrets")]), "Topic:secrets"),
        ("ReceiveMessage", received("secrets", "billing"), "Topic:secrets"),
        ("AckMessage", rpc.AckMessageRequest(topic=pb.Resource(name="orders")), "Topic:orders"),
        ("Heartbeat", rpc.HeartbeatRequest(client_type=pb.PUSH_CONSUMER, group=pb.Resource(name="o")), "Group:o"),
        ("AnythingNew", object(), "super users only"),
    ],
)
def test_a_call_that_no_rule_allows_is_forbidden(name: str, request_: Any, needed: str) -> None:
    with pytest.raises(StatusError, match=needed) as caught:
        check(name, request_)
    assert caught.value.code == pb.FORBIDDEN


def test_a_call_without_a_signature_is_unauthorized() -> None:
    with pytest.raises(StatusError) as caught:
        check("QueryRoute", rpc.QueryRouteRequest(), {})
    assert caught.value.code == pb.UNAUTHORIZED


def test_calls_beyond_the_quota_of_a_user_are_refused_and_those_that_finish_something_are_not() -> None:
    hook = hook_of(access(per_second=2))
    alice, root = signed("alice", "alices-secret"), signed("root", "roots-secret")
    request = rpc.SendMessageRequest(messages=[message("orders")])
    for _ in range(2):
        hook("SendMessage", alice, request, "10.0.0.1:5")
    with pytest.raises(StatusError) as caught:
        hook("SendMessage", alice, request, "10.0.0.1:5")
    assert caught.value.code == pb.TOO_MANY_REQUESTS
    hook("Telemetry", alice, None, "10.0.0.1:5")
    for _ in range(5):
        hook("SendMessage", root, request, "10.0.0.1:5")


def test_a_recorded_signature_ends() -> None:
    recorded = signed("alice", "alices-secret", NOW)
    assert authenticated(TABLE, recorded, NOW + timedelta(seconds=MAX_SKEW_SECONDS)).name == "alice"
    for moved in (MAX_SKEW_SECONDS + 1, -MAX_SKEW_SECONDS - 1):
        with pytest.raises(AuthenticationError, match="too old"):
            authenticated(TABLE, recorded, NOW + timedelta(seconds=moved))
