"""Tag expressions.

``tests/data/filter/tags.jsonl.gz``: expressions, and the ``SubscriptionData`` that Apache RocketMQ 5.5.0's
``FilterAPI`` made of them; null where it threw. Sets are sorted.
"""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from orbitmq.filter import FilterSyntaxError, parse_tags
from orbitmq.protocol.java import string_hash
from orbitmq.protocol.message.properties import encode
from support import paths

DATA = str(paths.DATA / "filter" / "tags.jsonl.gz")


def apache_subscriptions() -> list[dict[str, Any]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.mark.parametrize("row", apache_subscriptions(), ids=lambda row: repr(row["expression"]))
def test_an_expression_reads_as_in_rocketmq(row: dict[str, Any]) -> None:
    if row["subString"] is None:
        with pytest.raises(FilterSyntaxError, match="has no tag"):
            parse_tags(row["expression"])
        return
    tags = parse_tags(row["expression"])
    assert tags.expression == row["subString"]
    assert set(tags.tags) == set(row["tagsSet"])
    assert len(tags.tags) == len(row["tagsSet"])
    assert sorted(tags.codes) == row["codeSet"]


def test_a_star_matches_every_code_and_every_tag() -> None:
    for expression in ("*", ""):
        tags = parse_tags(expression)
        assert tags.matches_all
        assert tags.code_check()(0)
        assert tags.code_check()(-1)
        assert tags.matches_tag(None)
        assert tags.matches_tag("TagA")
        assert tags.properties_check()(b"")


def test_a_star_among_tags_is_a_tag() -> None:
    tags = parse_tags("* || TagA")
    assert not tags.matches_all
    assert tags.matches_tag("*")
    assert not tags.matches_tag("TagB")
    assert not tags.matches_tag(None)


@pytest.mark.parametrize("expression", ["TagA", "TagA || 标签", "Tag1||TagA|| Tag3 "])
def test_a_code_is_compared_by_its_low_32_bits(expression: str) -> None:
    check = parse_tags(expression).code_check()
    code = string_hash("TagA")
    assert check(code)
    assert check(code | 0x7654_3210_0000_0000)
    assert not check(code + 1)
    assert not check(0)


def test_a_negative_hash_is_found_in_a_sign_extended_code() -> None:
    tag = "Orders"
    assert string_hash(tag) < 0
    assert parse_tags(tag).code_check()(string_hash(tag))
    assert parse_tags(f"{tag}||x").code_check()(string_hash(tag))


def test_tags_that_share_a_hash_are_told_apart_by_the_exact_check() -> None:
    tags = parse_tags("Aa")
    assert tags.code_check()(string_hash("BB"))
    assert not tags.matches_tag("BB")
    assert not tags.properties_check()(encode({"TAGS": "BB"}))
    assert tags.properties_check()(encode({"TAGS": "Aa"}))
    assert parse_tags("Aa||BB").codes == (string_hash("Aa"),)


def test_a_message_without_a_tag_is_not_wanted_by_tag() -> None:
    tags = parse_tags("TagA||TagB")
    assert not tags.code_check()(0)
    assert not tags.matches_tag(None)
    assert not tags.properties_check()(encode({"KEYS": "k"}))


def test_blanks_name_no_tag_and_match_nothing() -> None:
    tags = parse_tags("  ")
    assert not tags.code_check()(0)
    assert not tags.matches_tag("a")
    assert not tags.properties_check()(encode({"TAGS": " "}))
