"""What is read of a whole batch at once is what is read of it item by item."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.java import index_hash, tags_code
from orbitmq.protocol.message.batch import encode_batch, item_bounds
from orbitmq.protocol.message.properties import index_fields
from orbitmq.store.append.batch_decoder import BatchItems
from orbitmq.store.append.batch_encoder import properties_of_items
from orbitmq.store.index.batch_keys import BatchKeys

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = tuple[int, bytes, bytes]

FLAGS = st.integers(-(1 << 31), (1 << 31) - 1)
ANY = st.lists(st.tuples(FLAGS, st.binary(max_size=30), st.binary(max_size=30)), min_size=1, max_size=12)
ALIKE = st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(1, 12)).flatmap(
    lambda sizes: st.lists(
        st.tuples(
            FLAGS,
            st.binary(min_size=sizes[0], max_size=sizes[0]),
            st.binary(min_size=sizes[1], max_size=sizes[1]),
        ),
        min_size=sizes[2],
        max_size=sizes[2],
    )
)

_TEXTS = st.text(st.characters(codec="ascii", exclude_characters="\x01\x02\0"), min_size=1, max_size=12)
_ODD = st.sampled_from(["ü", "a b", "TAGS\x01x", "x" * 300, ""])
_NAMED = st.tuples(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS", "XTAGS", "TAGSX", "k", ""]), _TEXTS)
PLAIN = st.lists(_NAMED, max_size=5, unique_by=lambda entry: entry[0])
ODD = st.lists(_NAMED | st.tuples(st.sampled_from(["UNIQ_KEY", "KEYS", "TAGS"]), _ODD), max_size=5)


def text_of(entries: list[tuple[str, str]]) -> bytes:
    return "".join(f"{name}\x01{value}\x02" for name, value in entries).encode()


def bounds(items: BatchItems) -> tuple[list[int], list[int]]:
    assert items.ends.tolist() == [*items.starts.tolist()[1:], len(items.batch)]
    return items.starts.tolist(), items.body_ends.tolist()


def outcome(read: Callable[[], tuple[list[int], list[int]]]) -> tuple[list[int], list[int]] | str:
    try:
        return read()
    except ProtocolError as error:
        return str(error)


@given(ANY | ALIKE)
def test_items_are_found_where_their_lengths_lead(items: Sequence[Item]) -> None:
    batch = encode_batch(items)
    found = BatchItems.of(batch)
    assert bounds(found) == item_bounds(batch)
    assert properties_of_items(found) == [properties for _, _, properties in items]


@given(ALIKE)
def test_items_of_the_same_sizes_are_known_as_such(items: Sequence[Item]) -> None:
    assert BatchItems.of(encode_batch(items)).is_alike


@given(ANY | ALIKE, st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_batch_is_read_or_refused_as_item_by_item(items: Sequence[Item], data: st.DataObject) -> None:
    batch = bytearray(encode_batch(items))
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(0, len(batch) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(batch[: data.draw(st.integers(1, len(batch)))])
    assert outcome(lambda: bounds(BatchItems.of(damaged))) == outcome(lambda: item_bounds(damaged))


@given(st.lists(PLAIN | ODD, min_size=1, max_size=12) | st.lists(PLAIN, min_size=1, max_size=12))
@example([[("UNIQ_KEY", f"{number:032X}")] for number in range(5)])
@example([[], [("TAGS", "a")], []])
@example([[("KEYS", "a"), ("KEYS", "b")]])
@settings(max_examples=300, deadline=None)
def test_keys_and_tags_of_a_batch_are_those_of_its_messages(messages: list[list[tuple[str, str]]]) -> None:
    texts = [text_of(entries) for entries in messages]
    found = BatchKeys.of(BatchItems.of(encode_batch((0, b"body", text) for text in texts)))
    # What is not plain is left to whoever reads message by message.
    assume(found is not None)
    assert found is not None
    codes, entries = [], []
    for row, text in enumerate(texts):
        tags, keys, unique_key = (value and value.decode() for value in index_fields(text))
        codes.append(tags_code(tags) if tags else 0)
        entries += [
            (row, index_hash(f"Topic#{key}")) for key in (unique_key, keys, f"T#{tags}" if tags else None) if key
        ]
    rows, hashes = found.index_entries("Topic")
    assert found.tags_codes().tolist() == codes
    assert list(zip(rows.tolist(), hashes.tolist(), strict=True)) == entries


@given(st.lists(PLAIN, min_size=1, max_size=12))
def test_properties_as_clients_write_them_are_read_at_once(messages: list[list[tuple[str, str]]]) -> None:
    assume(not any(name == "KEYS" and " " in value for entries in messages for name, value in entries))
    items = BatchItems.of(encode_batch((0, b"body", text_of(entries)) for entries in messages))
    assert BatchKeys.of(items) is not None
