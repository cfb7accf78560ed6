"""Configuration, errors, and the topology."""

from __future__ import annotations

import pickle

import pytest

from orbitmq.admin import (
    AdminClient,
    AdminConfig,
    ClientOfflineError,
    InvalidRequestError,
    NotFoundError,
    PartialFailureError,
    RefusedError,
    UnreachableError,
    UnsupportedError,
)
from orbitmq.admin.cluster.topology import Topology
from orbitmq.admin.errors import refusal
from orbitmq.admin.group.offsets import ResetTo
from orbitmq.client.errors import NotRunningError
from orbitmq.protocol.bodies import BrokerData, ClusterInfo


def test_errors_are_sentences_and_survive_pickling() -> None:
    errors = [
        RefusedError(1, "first line\nstack trace", "a:1"),
        NotFoundError("topic", "t", "create it"),
        UnreachableError("a:1", "no response within 5 s"),
        PartialFailureError("the change", ("a:1",), {"b:1": UnreachableError("b:1", "refused")}),
    ]
    for error in errors:
        assert "\n" not in str(error)
        assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert str(errors[0]) == "a:1 refused the request with code 1: first line"
    assert str(errors[3]) == "the change failed at 1 of 2 servers (done at a:1): b:1 does not respond: refused"


def test_codes_have_their_own_errors() -> None:
    assert type(refusal(3, "no", "a")) is UnsupportedError
    assert type(refusal(206, "no", "a")) is ClientOfflineError
    assert type(refusal(1, "no", "a")) is RefusedError


@pytest.mark.parametrize(
    "options", [{"timeout": 0}, {"max_concurrent_requests": 0}, {"access_key": "only"}, {"secret_key": "only"}]
)
def test_invalid_options_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError):
        AdminClient("127.0.0.1:1", **options)  # type: ignore[arg-type]


def test_a_client_without_name_servers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    with pytest.raises(InvalidRequestError, match="name server"):
        AdminClient()


async def test_a_client_that_is_not_started_says_so() -> None:
    with pytest.raises(NotRunningError, match="async with"):
        await AdminClient("127.0.0.1:1").topics.names()


async def test_an_unreachable_name_server_is_named() -> None:
    async with AdminClient("127.0.0.1:1") as admin:
        with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1 does not respond"):
            await admin.clusters.all()


def test_the_secret_is_not_printed() -> None:
    assert "12345678" not in repr(AdminConfig(name_servers=("a:1",), access_key="k", secret_key="12345678"))


def _topology() -> Topology:
    return Topology.of(
        ClusterInfo(
            {
                "a": BrokerData("one", "a", {0: "10.0.0.1:1", 1: "10.0.0.2:1"}),
                "b": BrokerData("one", "b", {1: "10.0.0.3:1"}),
                "c": BrokerData("two", "c", {0: "10.0.0.4:1"}),
            },
            {"one": ["a", "b"], "two": ["c"]},
        )
    )


def test_a_topology_tells_masters_slaves_and_readers_apart() -> None:
    topology = _topology()
    assert [one.address for one in topology.masters] == ["10.0.0.1:1", "10.0.0.4:1"]
    assert topology.without_master() == ["b"]
    assert [one.address for one in topology.readers("one")] == ["10.0.0.1:1", "10.0.0.3:1"]
    assert [one.address for one in topology.targets("one", slaves=True)] == [
        *("10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"),
    ]
    assert [one.address for one in topology.targets(broker="a")] == ["10.0.0.1:1"]
    assert [one.address for one in topology.targets(broker="10.0.0.2:1")] == ["10.0.0.2:1"]
    assert [one.address for one in topology.targets(broker="10.9.9.9:1")] == ["10.9.9.9:1"]


def test_a_change_names_its_cluster_where_there_are_several() -> None:
    with pytest.raises(InvalidRequestError, match="one, two"):
        _topology().targets()
    with pytest.raises(NotFoundError, match="one, two"):
        _topology().targets("three")
    with pytest.raises(NotFoundError, match="master of the broker"):
        _topology().targets(broker="b")
    with pytest.raises(NotFoundError, match="there are a, b, c"):
        _topology().targets(broker="z")


def test_a_reset_has_one_position() -> None:
    with pytest.raises(InvalidRequestError):
        ResetTo()
    with pytest.raises(InvalidRequestError):
        ResetTo(earliest=True, latest=True)
    with pytest.raises(InvalidRequestError):
        ResetTo(time_ms=-1)
