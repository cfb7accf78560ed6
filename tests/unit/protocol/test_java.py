"""Java's string hash and its reading of UTF-8. The numbers were printed by Java 17."""

from __future__ import annotations

import numpy as np
import pytest

from orbitmq.protocol.java import decode_utf8, hash_many, index_hash, index_hashes, string_hash, tags_code

HASHES = {
    "": 0,
    "a": 97,
    "Aa": 2112,
    "BB": 2112,
    "TagA": 2598919,
    "*": 42,
    "TopicTest#KEY1": -1656969516,
    "polygenelubricants": -(2**31),
    "\x00": 0,
    "\x00a": 97,
    "中文": 646394,
    "😀": 1772899,
    "é": 233,
    "\x7f\x80": 4065,
    "\ud800": 55296,
}


def slow_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


@pytest.mark.parametrize(("text", "value"), HASHES.items())
def test_a_hash_is_what_java_computes(text: str, value: int) -> None:
    assert string_hash(text) == value


@pytest.mark.parametrize("length", [1, 23, 24, 25, 26, 255, 511, 512, 513, 1024, 1025, 5000])
@pytest.mark.parametrize("letters", ["xyz0", "xé", "x\uffff", "x😀"])
def test_short_and_long_texts_are_hashed_alike(letters: str, length: int) -> None:
    text = (letters * length)[:length]
    assert string_hash(text) == slow_hash(text)
    assert hash_many([text.encode(), b"short"]).tolist() == [slow_hash(text), slow_hash("short")]


def test_a_tags_code_is_the_hash_of_the_whole_value() -> None:
    assert tags_code("TagA") == tags_code(b"TagA") == 2598919
    assert tags_code("") == tags_code(b"") == 0
    assert tags_code("A || B") == slow_hash("A || B")
    assert tags_code("中文".encode()) == 646394


def test_many_hashes_equal_the_single_ones() -> None:
    texts = [text for text in HASHES if text != "\ud800"]
    hashes = hash_many([text.encode() for text in texts])
    assert hashes.dtype == np.int32
    assert hashes.tolist() == [HASHES[text] for text in texts]


def test_many_ascii_hashes_equal_the_single_ones() -> None:
    texts = [f"TopicTest#{'k' * (number % 70)}{number}" for number in range(300)]
    assert hash_many([text.encode() for text in texts]).tolist() == [slow_hash(text) for text in texts]


def test_there_may_be_no_texts_and_empty_ones() -> None:
    assert hash_many([]).tolist() == []
    assert index_hashes([]).tolist() == []
    assert hash_many([b"", b""]).tolist() == [0, 0]
    assert hash_many([b"", b"a", b""]).tolist() == [0, 97, 0]


def test_an_index_hash_is_never_negative() -> None:
    assert index_hash("TopicTest#KEY1") == 1656969516
    assert index_hash("polygenelubricants") == 0
    assert index_hash("TagA") == 2598919
    texts = [b"TopicTest#KEY1", b"polygenelubricants", b"TagA", b""]
    assert index_hashes(texts).tolist() == [1656969516, 0, 2598919, 0]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        pytest.param("41", "A", id="ASCII"),
        pytest.param("c3a9", "é", id="two bytes"),
        pytest.param("f09f9880", "😀", id="four bytes"),
        pytest.param("ff41", "\ufffdA", id="no lead byte"),
        pytest.param("c041", "\ufffdA", id="overlong lead"),
        pytest.param("e28241", "\ufffdA", id="cut in the middle"),
        pytest.param("e282", "\ufffd", id="cut at the end"),
        pytest.param("eda08041", "\ufffdA", id="surrogate"),
        pytest.param("edbfbfedb080", "\ufffd\ufffd", id="two surrogates"),
        pytest.param("eda041", "\ufffdA", id="cut surrogate"),
        pytest.param("eda0", "\ufffd", id="surrogate cut at the end"),
        pytest.param("ed41", "\ufffdA", id="surrogate without a second byte"),
        pytest.param("ed", "\ufffd", id="lead byte at the end"),
        pytest.param("f5808080", "\ufffd" * 4, id="beyond unicode"),
    ],
)
def test_damaged_utf_8_reads_as_in_java(data: str, text: str) -> None:
    assert decode_utf8(bytes.fromhex(data)) == text
    assert tags_code(bytes.fromhex(data)) == hash_many([bytes.fromhex(data)]).item() == slow_hash(text)
