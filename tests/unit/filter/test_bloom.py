"""The Bloom filter of consume queue extensions.

``tests/data/filter/bloom.jsonl.gz``: settings, and what the ``BloomFilter`` of Apache RocketMQ 5.5.0 computed with
them: its shape, the bit positions of some keys, the bitmap of them all, and which other keys that bitmap hits.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from orbitmq.filter import BloomFilter, bloom_filter, compile_subscription
from orbitmq.protocol.message.record import decode_record
from support import paths
from support.store import golden

DATA = str(paths.DATA / "filter" / "bloom.jsonl.gz")
FILTERS = str(paths.DATA / "config" / "extra" / "consumerFilter.json")


def apache_filters() -> list[dict[str, Any]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def mask_of(bloom: BloomFilter, key: str) -> int:
    group, _, topic = key.partition("#")
    return bloom.mask(bloom.positions(group, topic))


def test_shapes_positions_and_bitmaps_are_rocketmq_s() -> None:
    rows = apache_filters()
    assert len(rows) > 300
    for row in rows:
        bloom = bloom_filter(row["errorPercent"], row["subscriptions"])
        assert (bloom.hash_count, bloom.bit_count) == (row["hashes"], row["bits"])
        for key, positions in row["positions"].items():
            group, _, topic = key.partition("#")
            assert list(bloom.positions(group, topic)) == positions
        bitmap = bloom.bitmap([mask_of(bloom, key) for key in row["positions"]])
        assert bitmap.hex() == row["bitmap"]
        assert [key for key in row["others"] if bloom.may_match(bitmap, mask_of(bloom, key))] == row["hits"]


def test_the_default_filter_has_112_bits_and_3_hashes() -> None:
    bloom = bloom_filter()
    assert bloom == BloomFilter(bit_count=112, hash_count=3)
    assert bloom.positions("GroupA", "TopicA") == (29, 107, 11)
    assert bloom.positions("CID", "TopicTest") == (3, 15, 34)


def test_the_bitmaps_that_a_broker_wrote_are_the_ones_we_compute() -> None:
    """Evaluates the broker's own SQL subscriptions on its own records and compares its extension units."""
    with open(FILTERS, encoding="utf-8") as file:
        saved = json.load(file)["filterDataByTopic"]["TopicSql"]["groupFilterData"].values()
    bloom = bloom_filter()
    subscriptions = []
    for data in saved:
        positions = bloom.positions(data["consumerGroup"], data["topic"])
        assert {"bitNum": bloom.bit_count, "bitPos": list(positions)} == data["bloomFilterData"]
        check = compile_subscription(data["expressionType"], data["expression"]).matches_properties
        subscriptions.append((check, bloom.mask(positions)))
    log = golden.commit_log("extra")
    seen = set()
    for unit in golden.expected_queue_units("extra"):
        if unit["topic"] != "TopicSql" or "extBitMap" not in unit:
            continue
        start = unit["physicalOffset"]
        properties = decode_record(log[start : start + unit["size"]]).properties
        matching = [mask for check, mask in subscriptions if check(properties)]
        assert bloom.bitmap(matching).hex() == unit["extBitMap"]
        seen.add(len(matching))
    assert seen == {0, 1, 2}


def test_a_bitmap_of_another_length_rules_nothing_out() -> None:
    bloom = bloom_filter()
    mask = mask_of(bloom, "g#t")
    assert not bloom.may_match(bytes(14), mask)
    assert bloom.may_match(bytes(13), mask)
    assert bloom.may_match(b"", mask)


@pytest.mark.parametrize(("percent", "count"), [(0, 32), (100, 32), (-1, 32), (20, 0)])
def test_settings_that_make_no_filter_are_refused(percent: int, count: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        bloom_filter(percent, count)
