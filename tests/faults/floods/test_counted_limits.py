"""Every limit that is counted is documented, in force somewhere, and shown to count by a test."""

from __future__ import annotations

import re

import pytest

from orbitmq.auth.errors import AuthorizationError
from orbitmq.auth.local_only import check_source, networks_of
from orbitmq.broker.clients.registry import ClientLimits
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.metrics.own import LIMITS, collect_limits
from orbitmq.broker.pull.subscription_filter import SubscriptionTooLongError, check_length
from orbitmq.platform.limit_counts import Limit
from orbitmq.platform.memory_budget import UNSENT, MemoryBudget
from orbitmq.protocol.codes import RequestCode
from orbitmq.remoting.limits.address_share import AddressShare
from orbitmq.remoting.limits.connection_limits import Limits
from support.broker.client_registry_harness import GROUP, client_broker, consumer, heartbeat, subscription
from support.limit_counts import counts
from support.paths import PROJECT
from support.remoting_harness import ECHO, RawPeer, echo, eventually, request, serving

TEXT = (PROJECT / "docs" / "limits.md").read_text("utf-8")
ROWS = [line.removeprefix("| ").partition(" | ") for line in TEXT.splitlines() if line.startswith("| ")]


def documented() -> dict[str, str]:
    """By label, the beginning of the row of its limit."""
    section = TEXT.partition("## Counted limits")[2].partition("\n## ")[0]
    found = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([^|]+) \|$", section, re.MULTILINE)
    assert len(dict(found)) == len(found)
    return dict(found)


def test_every_counted_limit_has_its_row_with_default_and_setting() -> None:
    assert documented().keys() == {limit.value for limit in Limit}
    limits = [head for head, _, _ in ROWS]
    for label, beginning in documented().items():
        for part in beginning.split("; "):
            assert [head for head in limits if part in head], (label, part)


@pytest.mark.parametrize("folder", ["src/orbitmq", "tests"])
def test_every_counted_limit_is_used_by_the_code_and_by_a_test(folder: str) -> None:
    used = {
        name
        for path in (PROJECT / folder).rglob("*.py")
        if path.name != "limit_counts.py"
        for name in re.findall(r"\bLimit\.([A-Z_]+)\b", path.read_text("utf-8"))
    }
    assert {limit.name for limit in Limit} - used == set()


@counts(Limit.CONNECTIONS_OF_ADDRESS)
def test_a_connection_beyond_the_share_of_its_address_counts() -> None:
    share = AddressShare(1)
    assert share.take("10.0.0.1:1")
    before = counted(Limit.CONNECTIONS_OF_ADDRESS)
    assert not share.take("10.0.0.1:2")
    assert counted(Limit.CONNECTIONS_OF_ADDRESS) == before + 1


@counts(Limit.ADMIN_NETWORKS)
def test_an_administrative_request_from_elsewhere_counts() -> None:
    check_source("127.0.0.1:1", "127.0.0.1:10911", networks_of(""), "X")
    before = counted(Limit.ADMIN_NETWORKS)
    with pytest.raises(AuthorizationError):
        check_source("10.0.0.6:1", "10.0.0.5:10911", networks_of(""), "X")
    assert counted(Limit.ADMIN_NETWORKS) == before + 1


@counts(Limit.SUBSCRIPTION_LENGTH, Limit.SUBSCRIPTION_TAGS)
def test_subscriptions_that_are_too_long_count() -> None:
    config = BrokerConfig(max_subscription_length=10, max_subscription_tags=2)
    check_length(config, "TAG", "a||b")
    for expression in ("x" * 11, "a||b||c"):
        with pytest.raises(SubscriptionTooLongError):
            check_length(config, "TAG", expression)


@counts(Limit.GROUPS_OF_CONNECTION, Limit.SUBSCRIPTIONS_OF_GROUP)
async def test_heartbeats_with_too_many_groups_or_topics_count() -> None:
    limits = ClientLimits(groups_of_connection=1, subscriptions_of_group=1)
    async with client_broker(limits=limits) as broker, broker.client() as client:
        for beat in (
            heartbeat("c", consumer("A"), consumer("B")),
            heartbeat("c", consumer(GROUP, *map(subscription, "ab"))),
        ):
            assert (await client.asks(RequestCode.HEART_BEAT, beat.encode())).code == 1


@counts(Limit.MEMORY)
async def test_a_connection_that_is_closed_for_the_memory_budget_counts() -> None:
    budget = MemoryBudget(1 << 20)
    limits = Limits(sweep_seconds=0.005)
    async with serving({ECHO: echo}, limits, budget=budget) as server, RawPeer.connected(server) as peer:
        await peer.ask(request(ECHO, 1))
        # A frame that is not finished; then something else takes the rest of the budget.
        peer.send(request(ECHO, 2, body=bytes(400_000))[:-1])
        await eventually(lambda: budget.used >= 400_000)
        budget.charge(UNSENT, budget.limit)
        await eventually(lambda: not server.connections)
        budget.release(UNSENT, budget.limit)


def test_every_limit_is_on_the_page_before_it_has_refused_anything() -> None:
    samples = list(collect_limits((("cluster", "c"),)))
    assert [(instrument, labels) for instrument, labels, _ in samples] == [
        (LIMITS, (("cluster", "c"), ("limit", limit.value))) for limit in Limit
    ]


def counted(limit: Limit) -> float:
    """The value of a limit on the page of metrics."""
    (found,) = [value for _, labels, value in collect_limits(()) if labels == (("limit", limit.value),)]
    assert isinstance(found, int)
    return found
