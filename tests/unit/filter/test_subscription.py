"""A subscription becomes the checks that a broker makes."""

from __future__ import annotations

import pytest

from orbitmq.filter import (
    FilterError,
    FilterSyntaxError,
    compile_subscription,
    is_tag_type,
    subscription_data,
)
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.java import string_hash
from orbitmq.protocol.message.properties import encode


@pytest.mark.parametrize("expression_type", ["TAG", "", None])
def test_no_type_is_the_tag_type(expression_type: str | None) -> None:
    compiled = compile_subscription(expression_type, "TagA || TagB")
    assert is_tag_type(expression_type)
    assert compiled.expression_type == "TAG"
    assert not compiled.matches_all
    assert compiled.matches_code is not None
    assert compiled.matches_code(string_hash("TagB"))
    assert not compiled.matches_code(string_hash("TagC"))
    assert compiled.matches_properties(encode({"TAGS": "TagA"}))
    assert not compiled.matches_properties(encode({"TAGS": "TagC"}))


def test_a_star_needs_no_check() -> None:
    assert compile_subscription("TAG", "*").matches_all
    assert compile_subscription("TAG", "").matches_all


def test_sql_is_asked_of_the_properties_and_not_of_the_code() -> None:
    compiled = compile_subscription("SQL92", "price > 10 AND TAGS = 'TagA'")
    assert not is_tag_type("SQL92")
    assert compiled.matches_code is None
    assert compiled.matches_properties(encode({"TAGS": "TagA", "price": "11"}))
    assert not compiled.matches_properties(encode({"TAGS": "TagA", "price": "10"}))
    assert not compiled.matches_properties(encode({"TAGS": "TagA", "price": "dear"}))
    assert not compiled.matches_properties(b"")


def test_a_wrong_expression_carries_the_response_code_of_its_answer() -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        compile_subscription("SQL92", "a > > 3")
    assert caught.value.response_code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert (caught.value.line, caught.value.column) == (1, 5)


@pytest.mark.parametrize("expression_type", ["tag", "sql92", "SQL", "XPATH"])
def test_another_type_is_refused(expression_type: str) -> None:
    with pytest.raises(FilterError, match="use TAG or SQL92"):
        compile_subscription(expression_type, "*")


def test_a_client_announces_tags_with_their_hashes() -> None:
    data = subscription_data("T", "TAG", " a ||b|| a", 7)
    assert (data.topic, data.sub_string, data.sub_version) == ("T", " a ||b|| a", 7)
    assert (data.tags_set, data.code_set, data.expression_type) == (["a", "b"], [97, 98], "TAG")
    everything = subscription_data("T", None, "", 7)
    assert (everything.sub_string, everything.tags_set, everything.code_set) == ("*", [], [])


def test_a_client_announces_sql_as_it_is_written() -> None:
    data = subscription_data("T", "SQL92", "a > 5", 7)
    assert (data.sub_string, data.expression_type, data.tags_set, data.code_set) == ("a > 5", "SQL92", [], [])
    with pytest.raises(FilterError, match="needs an expression"):
        subscription_data("T", "SQL92", "", 7)
