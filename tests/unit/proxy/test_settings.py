"""Settings of clients: what is refused in them."""

from __future__ import annotations

import pytest

from orbitmq.proxy.clients.settings import check_settings
from orbitmq.proxy.errors import StatusError
from orbitmq.proxy.proto import definition_pb2 as pb


def settings(properties: dict[str, str]) -> pb.Settings:
    found = pb.Settings(client_type=pb.PRODUCER, client_properties=properties)
    found.publishing.topics.add(name="orders")
    return found


def test_client_properties_that_are_allowed() -> None:
    check_settings(settings({"team": "billing", "a.b-c_1": "x" * 256}))


@pytest.mark.parametrize(
    "properties",
    [
        {"1a": "x"},
        {"": "x"},
        {"a b": "x"},
        {"k" * 65: "x"},
        {"rocketmq.x": "x"},
        {"a": "x" * 257},
        {f"k{number}": "x" for number in range(33)},
        {f"k{number}": "x" * 250 for number in range(17)},
    ],
)
def test_client_properties_that_are_refused(properties: dict[str, str]) -> None:
    with pytest.raises(StatusError) as refused:
        check_settings(settings(properties))
    assert refused.value.code == pb.INVALID_CLIENT_PROPERTIES


@pytest.mark.parametrize("kind", ["publishing", "subscription"])
def test_names_are_checked(kind: str) -> None:
    found = pb.Settings()
    if kind == "publishing":
        found.publishing.topics.add(name="a b")
    else:
        found.subscription.group.name = "a b"
    with pytest.raises(StatusError):
        check_settings(found)
