"""Plan of a migration: its options, the ranges and targets of its rounds, and their state files."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.client.errors import OrbitMQError
from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.migrate.endpoints import Address, Queue, Span
from orbitmq.spark.pipelines.migrate.plan import left_of, narrowed, next_spans, routed, topics_of
from orbitmq.spark.pipelines.migrate.request import MigrateRequest
from orbitmq.spark.pipelines.migrate.state import Migration, Round
from orbitmq.spark.pipelines.migrate.verify import joined
from orbitmq.spark.pipelines.spark_job import PipelineError

if TYPE_CHECKING:
    from pathlib import Path

A0, A1, A2 = (Queue("a", str(number)) for number in range(3))
GIVEN: dict[str, Any] = {"source": "kafka://k:9092", "target": "rocketmq://n:9876", "topics": ("a",)}


def test_what_is_left_begins_where_the_last_round_ended() -> None:
    bounds = {A0: (0, 10), A1: (5, 8), A2: (3, 3)}
    assert left_of(bounds, {A0: 4, A1: 8}, "it") == {A0: (4, 10)}
    assert left_of(bounds, {}, "it") == {A0: (0, 10), A1: (5, 8)}


def test_messages_that_are_gone_and_queues_that_was_recreated_are_reported() -> None:
    with pytest.raises(PipelineError, match="a 0 has lost the messages from 2 to 5"):
        left_of({A0: (5, 10)}, {A0: 2}, "it")
    with pytest.raises(PipelineError, match="a 0 was migrated up to 20 and ends at 10"):
        left_of({A0: (0, 10)}, {A0: 20}, "it")


def test_a_round_has_no_more_than_it_may_and_something_of_each_queue() -> None:
    left = {A0: (0, 1000), A1: (0, 10), A2: (7, 1007)}
    spans = next_spans(left, 100)
    assert spans == [Span(A0, 0, 45), Span(A1, 0, 10), Span(A2, 7, 52)]
    assert [span.length for span in next_spans(left, 1)] == [1, 1, 1]
    assert [span.length for span in next_spans(left, 10_000)] == [1000, 10, 1000]


def test_rounds_come_to_the_end_of_every_queue() -> None:
    left = {A0: (0, 1000), A1: (0, 10), A2: (7, 90)}
    done: dict[Queue, int] = {}
    for _ in range(100):
        if not (rest := left_of(left, done, "it")):
            break
        done |= {span.queue: span.end for span in next_spans(rest, 64)}
    assert done == {A0: 1000, A1: 10, A2: 90}


def test_a_queue_goes_to_the_one_of_its_number_or_shares_one() -> None:
    here = [Queue("b", f"broker-a:{number}") for number in (0, 1, 10, 2)]
    sources = [Queue("a", str(number)) for number in (10, 2, 0, 1)]
    found = routed(sources, {"b": here}, {"a": "b"})
    assert [found[queue].name for queue in sorted(sources, key=lambda queue: queue.order)] == [
        "broker-a:0",
        "broker-a:1",
        "broker-a:2",
        "broker-a:10",
    ]
    found = routed([A0, A1, A2], {"b": here[:2]}, {"a": "b"})
    assert [found[queue].name for queue in (A0, A1, A2)] == ["broker-a:0", "broker-a:1", "broker-a:0"]
    same = [Queue("a", "y:0"), Queue("a", "x:1")]
    targets = [Queue("a", f"{broker}:{number}") for broker in "xyz" for number in (0, 1)]
    assert routed(same, {"a": targets}, {"a": "a"}) == {queue: queue for queue in same}


def test_what_is_written_of_a_round_is_left_out() -> None:
    spans = [Span(A0, 0, 10), Span(A1, 0, 10), Span(A2, 5, 10)]
    assert narrowed(spans, {A0: 3, A1: 9, A2: 2}) == [Span(A0, 4, 10), Span(A2, 5, 10)]


def test_topics_may_have_other_names() -> None:
    assert topics_of(["a", "b:c"]) == {"a": "a", "b": "c"}
    for wrong in (["a:"], [":a"], ["a", "a:b"], ["a:c", "b:c"], []):
        with pytest.raises(PipelineError):
            topics_of(wrong)


def test_an_address_names_servers_and_hides_secrets() -> None:
    address = Address.of("kafka://one:9092,two:9092?sasl.password=secret&security.protocol=SASL_SSL")
    assert address.servers == ("one:9092", "two:9092")
    assert dict(address.settings)["sasl.password"] == "secret"
    assert str(address) == "kafka://one:9092,two:9092"
    for wrong in ("http://a:1", "a:9092", "kafka://", "kafka://host", "rocketmq://a b:1", "rocketmq://a:1?x=y"):
        with pytest.raises(OptionError):
            Address.of(wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_messages": 0},
        {"name": "../up"},
        {"topics": ("a b",)},
        {"topics": ("%RETRY%group",)},
        {"source": "rocketmq://n:9876"},
    ],
)
def test_a_request_that_cannot_be_done_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(OrbitMQError):
        MigrateRequest(**{**GIVEN, **wrong})


def test_the_same_request_is_known_by_the_same_name() -> None:
    request = MigrateRequest(**GIVEN)
    assert request.known_as == MigrateRequest(**GIVEN, max_messages=5, verify=False).known_as
    assert request.known_as != MigrateRequest(**{**GIVEN, "topics": ("a:b",)}).known_as
    assert MigrateRequest(**GIVEN, name="it").known_as == "it"


def round_of(number: int, start: int, end: int) -> Round:
    to = Queue("b", "broker-a:0")
    return Round(number=number, spans=(Span(A0, start, end),), routes={A0: to}, ends={to: 17}, began_ms=5)


def test_rounds_are_found_again_as_they_were(tmp_path: Path) -> None:
    state = Migration(str(tmp_path), "it")
    assert state.rounds() == []
    first, second = round_of(1, 0, 10), round_of(2, 10, 30)
    state.write(first)
    state.write(dataclasses.replace(first, is_done=True))
    state.write(second)
    assert Migration(str(tmp_path), "it").rounds() == [dataclasses.replace(first, is_done=True), second]
    assert joined([first, second]) == [Span(A0, 0, 30)]


def test_a_round_that_is_damaged_or_missing_is_reported(tmp_path: Path) -> None:
    state = Migration(str(tmp_path), "it")
    state.write(round_of(1, 0, 10))
    state.write(round_of(3, 10, 20))
    with pytest.raises(PipelineError, match="round 2 of the migration 'it' is missing"):
        state.rounds()
    (tmp_path / "it" / "00000001.json").write_text("{")
    with pytest.raises(PipelineError, match="damaged"):
        state.rounds()


def test_a_migration_is_run_by_one_at_a_time_and_stays_what_it_was(tmp_path: Path) -> None:
    state = Migration(str(tmp_path), "it")
    with state.locked(), pytest.raises(PipelineError, match="being run by process"), state.locked():
        pass
    what = MigrateRequest(**GIVEN).what
    state.check(what)
    state.begin(what)
    state.check(what)
    with pytest.raises(PipelineError, match="another --name"):
        state.check(MigrateRequest(**{**GIVEN, "topics": ("a:b",)}).what)
