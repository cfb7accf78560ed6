"""Replays without Spark: what is requested, what there is of it, who sends it to where, and what is remembered."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.client.query.queue_offsets import Bounds
from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.archive.directory import Archive, ArchiveError
from orbitmq.spark.pipelines.replay.counter import LIFE_BITS, counted, parts_of
from orbitmq.spark.pipelines.replay.plan import plan, routed, shared_out
from orbitmq.spark.pipelines.replay.request import ReplayRequest
from orbitmq.spark.pipelines.replay.resume_point import to_read
from orbitmq.spark.pipelines.replay.state import REPLAYS, Replays, ReplayState, numbered
from orbitmq.spark.pipelines.replay.summary import planned_summary, summary_of
from orbitmq.spark.pipelines.spark_job import PipelineError
from support.cli.command import run as run_command
from support.spark.replay_harness import DAY_MS, START_MS, add_segment

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.spark.pipelines.replay.counter import Counted

ONE = MessageQueue("orders", "broker-a", 0)
TWO = MessageQueue("orders", "broker-a", 1)
FAR = MessageQueue("clicks", "broker-b", 7)


def request(**more: Any) -> ReplayRequest:
    return ReplayRequest(**{"archive": "a", "topics": ("orders",), "nameserver": "127.0.0.1:1", **more})


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    return Archive(str(tmp_path / "archive"))


# What is requested


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"topics": ()}, "say which topics to replay"),
        ({"rate": 1.0, "pace": 1.0}, "a replay has a rate or a pace, not both"),
        ({"rate": 0.0}, "a rate of 0 sends nothing"),
        ({"rate": float("nan")}, "a rate of nan sends nothing"),
        ({"pace": -2.0}, "a pace of -2 sends nothing"),
        ({"senders": 0}, "0 senders send nothing"),
        ({"name": "a/b"}, "cannot be the name of a replay"),
        ({"name": "a~2"}, "cannot be the name of a replay"),
        ({"start_ms": 5, "until_ms": 5}, "nothing was stored from a time until an earlier one"),
    ],
)
def test_what_cannot_be_requested_is_one_sentence(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        request(**given)


def test_a_topic_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(OptionError, match="topic cannot be used"):
        _ = request(to_topic="no such name!").writing
    with pytest.raises(OptionError, match="is the retry topic of a group"):
        _ = request(topics=("%RETRY%group",)).writing


def test_the_same_replay_has_the_same_name_however_fast_it_goes() -> None:
    name = request(rate=1.0).name_for("/archive")
    assert name == request(pace=2.0, senders=7).name_for("/archive")
    others = [
        request(topics=("clicks",)),
        request(to_topic="other"),
        request(start_ms=1),
        request(until_ms=1),
        request(nameserver="127.0.0.1:2"),
    ]
    assert len({name, request().name_for("/other"), *(one.name_for("/archive") for one in others)}) == 7
    assert request(name="mine").name_for("/archive") == "mine"


# What there is of it


def found(archive: Archive, requests: ReplayRequest, done: dict[MessageQueue, int] | None = None) -> Any:
    return counted(archive, parts_of(archive.segments(), requests), requests, done)


def rows_of(of: dict[MessageQueue, Counted]) -> dict[MessageQueue, int]:
    return {queue: one.rows for queue, one in of.items()}


def test_messages_are_counted_by_queue_and_time(archive: Archive) -> None:
    add_segment(archive, ONE, [START_MS + ms for ms in range(10)])
    add_segment(archive, TWO, [START_MS + DAY_MS + ms for ms in range(4)])
    add_segment(archive, FAR, [START_MS])
    of = found(archive, request())
    assert rows_of(of) == {ONE: 10, TWO: 4}
    assert (of[ONE].first_us, of[ONE].last_us) == (START_MS * 1000, (START_MS + 9) * 1000)
    # From the one on, and before the other.
    assert rows_of(found(archive, request(start_ms=START_MS + 4))) == {ONE: 6, TWO: 4}
    assert rows_of(found(archive, request(start_ms=START_MS + 4, until_ms=START_MS + 6))) == {ONE: 2}
    assert rows_of(found(archive, request(until_ms=START_MS + DAY_MS + 1))) == {ONE: 10, TWO: 1}
    assert found(archive, request(until_ms=START_MS)) == {}
    assert found(archive, request(start_ms=1 << 60)) == {}


def test_what_was_sent_is_not_counted_again(archive: Archive) -> None:
    add_segment(archive, ONE, [START_MS + ms for ms in range(10)])
    add_segment(archive, TWO, [START_MS] * 3)
    assert rows_of(found(archive, request(), {ONE: 6})) == {ONE: 3, TWO: 3}
    assert rows_of(found(archive, request(), {ONE: 9, TWO: 2})) == {}


def test_a_clock_that_went_back_is_noticed_within_a_segment_and_between_two(archive: Archive) -> None:
    add_segment(archive, ONE, [START_MS + ms for ms in (1, 5, 5, 4, 6)])
    add_segment(archive, TWO, [START_MS + 10, START_MS + 20])
    of = found(archive, request())
    assert (of[ONE].has_gone_back, of[TWO].has_gone_back) == (True, False)
    assert not found(archive, request(), {ONE: 2})[ONE].has_gone_back
    add_segment(archive, TWO, [START_MS + 19, START_MS + 30], first=2)
    assert found(archive, request())[TWO].has_gone_back


def test_a_queue_that_was_recreated_goes_on_behind_its_first_life(archive: Archive) -> None:
    add_segment(archive, ONE, [START_MS, START_MS + 1, START_MS + 2])
    add_segment(archive, ONE, [START_MS + 3, START_MS + 4], recreated=True)
    parts = parts_of(archive.segments(), request())
    assert [(len(part.files), part.life(ONE)) for part in parts] == [(1, 0), (1, 1)]
    of = found(archive, request())
    assert of[ONE].rows == 5
    assert not of[ONE].has_gone_back
    assert rows_of(found(archive, request(), {ONE: 1})) == {ONE: 3}
    assert rows_of(found(archive, request(), {ONE: 1 << LIFE_BITS})) == {ONE: 1}


def test_a_file_that_is_gone_is_an_error(archive: Archive) -> None:
    add_segment(archive, ONE, [START_MS])
    archive.files.delete_file(archive.within(archive.archived_files()[0].path))
    with pytest.raises(ArchiveError, match="the archive is damaged"):
        found(archive, request())


# Who sends it to where


def test_senders_get_whole_queues_and_about_the_same() -> None:
    queues = [MessageQueue("orders", "broker-a", number) for number in range(5)]
    rows = dict(zip(queues, [50, 30, 25, 20, 15], strict=True))
    shares = shared_out(rows, 2)
    loads = [sum(rows[queue] for queue in queues if shares[queue] == number) for number in range(2)]
    assert sorted(loads) == [70, 70]
    assert set(shared_out(rows, 100).values()) == {0, 1, 2, 3, 4}


def test_a_queue_goes_to_the_one_of_its_name_or_to_one_in_turn() -> None:
    targets = {"copy": [MessageQueue("copy", "broker-a", number) for number in (0, 1)]}
    routes = routed([ONE, TWO, FAR], "copy", targets)
    assert routes == {ONE: targets["copy"][0], TWO: targets["copy"][1], FAR: targets["copy"][0]}
    # To a topic of the same name, on another cluster.
    there = [MessageQueue("orders", "broker-x", number) for number in range(3)]
    assert routed([ONE, TWO], None, {"orders": there}) == {ONE: there[0], TWO: there[1]}


def test_a_plan_has_only_what_is_left(archive: Archive) -> None:
    add_segment(archive, ONE, [START_MS + ms for ms in range(4)])
    add_segment(archive, TWO, [START_MS + 10, START_MS + 2000])
    made = plan(found(archive, request(), {ONE: 1}), {ONE: TWO, TWO: TWO, FAR: ONE}, {ONE: 1}, 4)
    assert made.rows == {ONE: 2, TWO: 2}
    assert made.routes == {ONE: TWO, TWO: TWO}
    assert made.done == {ONE: 1}
    assert sorted(made.rows_by_sender) == [2, 2]
    assert made.total == 4
    assert made.span_seconds == pytest.approx(1.998)


# What is remembered


def state(**more: Any) -> ReplayState:
    given = {"name": "r", "archive": "/a", "what": request().what, "last_segment": 3, "messages": 9}
    return ReplayState(**{**given, "routes": {ONE: FAR, TWO: FAR}, "ends": {FAR: 5}, **more})


def test_a_state_is_read_as_it_was_written(archive: Archive, tmp_path: Path) -> None:
    archive.make()
    for replays in (Replays(archive), Replays(archive, str(tmp_path / "states"))):
        assert replays.last("r") == (0, None)
        replays.write(state())
        replays.write(state(finished_ms=7))
        replays.write(state(name=numbered("r", 2)))
        assert replays.read("r") == state(began_ms=replays.read("r").began_ms, finished_ms=7)  # type: ignore[union-attr]
        number, last = replays.last("r")
        assert (number, last and last.name) == (2, "r~2")
    assert (tmp_path / "states" / "r.json").exists()
    assert (tmp_path / "archive" / REPLAYS / "r.json").exists()


def test_a_damaged_state_is_named(archive: Archive, tmp_path: Path) -> None:
    (tmp_path / "archive" / REPLAYS).mkdir(parents=True)
    path = tmp_path / "archive" / REPLAYS / "r.json"
    path.write_text("{")
    with pytest.raises(PipelineError, match=r"r\.json: what is known of a replay is damaged"):
        Replays(archive).read("r")


def test_one_run_at_a_time(archive: Archive) -> None:
    archive.make()
    replays = Replays(archive)
    with (
        replays.locked("r"),
        pytest.raises(PipelineError, match="the replay 'r' is being run by process"),
        replays.locked("r"),
    ):
        pass
    with replays.locked("r"), replays.locked("other"):
        pass


def test_what_the_target_has_got_since_is_read() -> None:
    new = MessageQueue("copy", "broker-b", 0)
    begun = state(ends={FAR: 5, ONE: 3})
    assert to_read(begun, {FAR: Bounds(0, 9), ONE: Bounds(0, 3), new: Bounds(2, 4)}) == {FAR: (5, 9), new: (2, 4)}


def test_a_target_that_lost_its_messages_cannot_tell_what_was_written() -> None:
    with pytest.raises(PipelineError, match="has nothing before 6 any more, and the replay 'r' began at 5"):
        to_read(state(), {FAR: Bounds(6, 9)})
    with pytest.raises(PipelineError, match="it was recreated"):
        to_read(state(), {FAR: Bounds(0, 4)})


# The summary


def test_a_summary_says_how_fast_it_was_and_whether_that_is_enough(archive: Archive) -> None:
    add_segment(archive, ONE, [START_MS, START_MS + 10_000])
    made = plan(found(archive, request()), {ONE: FAR}, {}, 1)
    reported = [[0, 101, 1000, 0.0, 2.0, [0] * 400]]
    facts = summary_of(request(rate=50.0), state(), made, reported).facts
    assert (facts["asked_rate"], facts["reached_rate"], facts["kept_up"]) == (50.0, 50.0, True)
    facts = summary_of(request(rate=100.0), state(), made, reported).facts
    assert (facts["reached_rate"], facts["kept_up"]) == (50.0, False)
    assert "reached 50% of the requested rate" in facts["behind"]
    facts = summary_of(request(pace=5.0), state(), made, reported).facts
    assert (facts["asked_pace"], facts["reached_pace"], facts["kept_up"]) == (5.0, 5.0, True)
    assert "kept_up" not in summary_of(request(), state(), made, reported).facts


def test_a_plan_says_how_long_it_takes(archive: Archive) -> None:
    add_segment(archive, ONE, [START_MS, START_MS + 10_000])
    of = found(archive, request())
    assert planned_summary(request(pace=2.0), "r", of, {ONE: FAR}, is_begun=False).facts["seconds"] == 5
    facts = planned_summary(request(rate=4.0), "r", of, {ONE: FAR}, is_begun=True).facts
    assert facts["seconds"] == 0.5
    assert facts["stored_from"] == "2024-10-04T00:00:00.000+00:00"
    assert facts["begun"].startswith("yes")
    json.dumps(facts)
    assert dataclasses.asdict(of[ONE])["rows"] == 2


# The command, where Spark is not even started


def test_the_command_says_what_is_wrong_in_one_sentence(archive: Archive, tmp_path: Path) -> None:
    add_segment(archive, ONE, [START_MS])
    where = archive.root
    cases: list[tuple[list[object], str]] = [
        ([tmp_path / "none", "-t", "orders"], "there is no archive at"),
        ([where, "-t", "nothing"], "has no topic 'nothing': it has orders"),
        ([where, "-t", "orders", "--rate", 1, "--pace", 1], "a replay has a rate or a pace, not both"),
        ([where, "-t", "orders", "--rate", 0], "a rate of 0 sends nothing: it is a number above 0"),
        ([where, "-t", "orders", "--until", "2000-01-01"], "there is nothing to replay"),
    ]
    for arguments, sentence in cases:
        ran = run_command("pipeline", "replay", *arguments, "-n", "127.0.0.1:1")
        assert (ran.code, ran.out) == (1, "")
        assert sentence in ran.err.replace("\n", " ")
        assert "Traceback" not in ran.err
