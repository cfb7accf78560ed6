"""Offsets as Spark keeps them: one text for one position, and starts that can be resolved again."""

from __future__ import annotations

import json

import pytest

from orbitmq.client.query.range_reader import QueueRange
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.errors import OptionError
from orbitmq.spark.topic_source.offsets import Position, described

A0, A10, A2, B0 = (MessageQueue("t", *rest) for rest in (("a", 0), ("a", 10), ("a", 2), ("b", 0)))
OTHER = MessageQueue("s", "a", 0)


def text(position: Position) -> str:
    return json.dumps(position.to_json())


def test_the_text_of_a_position_is_always_in_one_order() -> None:
    one = Position({B0: 4, A10: 3, A2: 2, A0: 1, OTHER: 5})
    other = Position({OTHER: 5, A0: 1, A2: 2, A10: 3, B0: 4})
    assert (
        text(one) == text(other) == '{"s": {"a": {"0": 5}}, "t": {"a": {"0": 1, "2": 2, "10": 3}, "b": {"0": 4}}}'
    )


@pytest.mark.parametrize(
    "position",
    [
        Position({}),
        Position({}, is_first=True),
        Position({A0: 1, B0: 0}),
        Position({A0: 1, B0: 0}, is_first=True),
        Position({A0: 7, B0: 9}, {A0: 5}),
    ],
)
def test_a_position_survives_its_text(position: Position) -> None:
    again = Position.of_json(json.loads(text(position)))
    assert again == position
    assert text(again) == text(position)


def test_there_is_something_to_read_between_two_positions() -> None:
    start, end = Position({A0: 1, A2: 4, B0: 5}), Position({B0: 9, A0: 3, A2: 4})
    assert start.ranges_to(end) == [QueueRange(A0, 1, 3), QueueRange(B0, 5, 9)]


def test_a_queue_that_is_new_starts_where_the_end_says() -> None:
    start, end = Position({A0: 1}), Position({A0: 3, B0: 9}, {B0: 4})
    assert start.ranges_to(end) == [QueueRange(A0, 1, 3), QueueRange(B0, 4, 9)]


def test_the_first_batch_starts_where_it_did_whatever_is_the_newest_message_now() -> None:
    end = Position({A0: 3, B0: 9}, {A0: 2, B0: 4})
    for start in (Position({A0: 2, B0: 4}, is_first=True), Position({A0: 70, B0: 80}, is_first=True)):
        assert start.ranges_to(end) == [QueueRange(A0, 2, 3), QueueRange(B0, 4, 9)]


def test_a_first_batch_without_messages_stays_without_them() -> None:
    assert Position({A0: 1}, is_first=True).ranges_to(Position({A0: 5}, is_first=True)) == []


@pytest.mark.parametrize(
    "given",
    [None, [], 5, {"t": 5}, {"t": {"0": 5}}, {"t": {"a": {"x": 5}}}, {"t": {"a": {"0": "5"}}},
     {"t": {"a": {"0": -1}}}, {"t": {"a": {"0": True}}}, {"$began": 5, "t": {"a": {"0": 1}}}, {"logOffset": 3}],
)  # fmt: skip
def test_an_offset_of_another_source_is_refused(given: object) -> None:
    with pytest.raises(OptionError, match=r"^the checkpoint holds an offset that is not one of topics"):
        Position.of_json(given)


def test_queues_are_named_but_not_endlessly() -> None:
    assert described([B0, A0]) == "queue 0 of 't' on a, queue 0 of 't' on b"
    many = [MessageQueue("t", "a", number) for number in range(8)]
    assert described(many).endswith("queue 4 of 't' on a and 3 more")
