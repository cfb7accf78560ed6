"""A client that sends another long subscription with every request: the broker caches a bounded part of them."""

from __future__ import annotations

import pytest

from orbitmq.broker.fast_path.pull import MAX_ROUTE_KEY_BYTES
from orbitmq.broker.pull import subscription_filter as carried_filters
from orbitmq.filter import CompiledFilter
from orbitmq.filter.compiled_cache import COST_OF_CHARACTER, FIXED_COST, CompiledCache
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.java import _cached_tags_code, string_hash, tags_code
from support.broker.requests import CONSUMERS, TOPIC, talk
from support.native.marks import needs_native


async def test_pulls_with_always_new_subscriptions_fill_a_bounded_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 3000
    cache = CompiledCache[CompiledFilter](10 * (FIXED_COST + COST_OF_CHARACTER * longest))
    monkeypatch.setattr(carried_filters, "_cache", cache)
    async with talk() as (_, client):
        await client.stores(properties={"TAGS": "wanted"})
        for number in range(50):
            tags = f"wanted||{number:0{longest - 8}d}"
            answer = await client.pulls(tags=tags)
            assert answer.code == ResponseCode.SUCCESS
            assert 0 < cache.bytes_used <= 10 * (FIXED_COST + COST_OF_CHARACTER * longest)
        assert len(cache) == 10
        assert cache.get(None, tags) is not None


@needs_native
async def test_the_fast_path_caches_no_route_for_a_pull_with_a_long_subscription() -> None:
    async with talk() as (broker, client):
        await client.stores()
        assert broker._fast_path is not None
        pulls = broker._fast_path._pulls
        assert pulls is not None
        for number in range(20):
            await client.pulls(tags=f"{number:0{MAX_ROUTE_KEY_BYTES}d}")
        assert pulls._native.route_count == 0
        await client.pulls()
        assert pulls._native.route_count == 1
        assert 0 < pulls._route_bytes < MAX_ROUTE_KEY_BYTES


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("x" * 101, "has 101 characters, at most 100 are allowed (maxSubscriptionLength)"),
        ("||".join("abcdef"), "has 6 tags, at most 5 are allowed (maxSubscriptionTags)"),
    ],
)
async def test_a_subscription_over_the_limit_is_refused_with_the_name_of_the_setting(
    expression: str, complaint: str
) -> None:
    async with talk(maxSubscriptionLength=100, maxSubscriptionTags=5) as (_, client):
        await client.stores()
        answer = await client.pulls(tags=expression)
        assert answer.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert complaint in (answer.remark or "")
        popped = await client.asks(
            RequestCode.POP_MESSAGE, consumerGroup=CONSUMERS, topic=TOPIC, queueId=0, maxMsgNums=1,
            invisibleTime=60_000, pollTime=0, bornTime=0, initMode=0, expType="TAG", exp=expression,
        )  # fmt: skip
        assert popped.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
        assert complaint in (popped.remark or "")
        assert (await client.pulls(tags="a||b")).code == ResponseCode.PULL_RETRY_IMMEDIATELY


def test_the_hash_of_a_long_tag_is_computed_and_not_cached() -> None:
    before = _cached_tags_code.cache_info()
    assert tags_code("t" * 32_000) == string_hash("t" * 32_000)
    assert tags_code(b"t" * 32_000) == string_hash("t" * 32_000)
    assert _cached_tags_code.cache_info() == before
