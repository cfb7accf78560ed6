"""Options of a reader of topics: what they mean, and one sentence for each mistake."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.bodies import MessageQueue
from orbitmq.spark.errors import OptionError
from orbitmq.spark.topic_source.offset_bounds import Moment, PerQueue, QueueEdge
from orbitmq.spark.topic_source.options import DEFAULT_GROUP, SourceOptions

if TYPE_CHECKING:
    from orbitmq.spark.topic_source.offset_bounds import Where


def options(**given: str) -> SourceOptions:
    return SourceOptions.of({"nameserver": "127.0.0.1:9876", "subscribe": "orders", **given})


def only(**given: str) -> SourceOptions:
    return SourceOptions.of({"nameserver": "127.0.0.1:9876", **given})


def test_omitted_options_have_their_defaults() -> None:
    made = options()
    assert (made.nameserver, made.subscribed.topics) == ("127.0.0.1:9876", ("orders",))
    assert (made.fail_on_data_loss, made.include_properties, made.columns) == (True, True, None)
    assert (made.expression, made.expression_type, made.tags, made.keys) == ("*", "TAG", None, None)
    assert (made.group, made.pull_group) == (None, DEFAULT_GROUP)
    assert (made.retry_seconds, made.poll_seconds) == (60.0, 0.1)
    assert (made.max_offsets, made.min_offsets, made.min_partitions) == (None, None, None)


def test_names_of_options_have_no_case() -> None:
    made = SourceOptions.of({"nameServer": "a:1;b:2", "SUBSCRIBE": "orders", "maxoffsetspertrigger": "7"})
    assert (made.nameserver, made.max_offsets) == ("a:1;b:2", 7)


def test_the_name_server_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", "ns:9876")
    assert SourceOptions.of({"subscribe": "orders"}).nameserver == "ns:9876"
    monkeypatch.delenv("NAMESRV_ADDR")
    with pytest.raises(OptionError, match=r"^nameserver is missing"):
        SourceOptions.of({"subscribe": "orders"})


def test_topics_are_a_list_a_pattern_or_queues() -> None:
    assert only(subscribe=" a , b,a ").subscribed.topics == ("a", "b")
    pattern = only(subscribePattern="ord.*").subscribed
    assert pattern.wants_topic("orders")
    assert not pattern.wants_topic("my-orders")
    everywhere = only(assign='{"t": [0, 2]}').subscribed
    assert everywhere.wants(MessageQueue("t", "broker-b", 2))
    assert not everywhere.wants(MessageQueue("t", "broker-b", 1))
    by_broker = only(assign='{"t": {"broker-a": [0], "broker-b": [1]}}').subscribed
    assert by_broker.wants(MessageQueue("t", "broker-b", 1))
    assert not by_broker.wants(MessageQueue("t", "broker-a", 1))
    assert not by_broker.wants(MessageQueue("u", "broker-a", 0))


def test_the_topic_of_the_sink_is_read_if_nothing_else_is_reported() -> None:
    assert only(topic="orders").subscribed.topics == ("orders",)
    assert only(topic="orders", subscribe="bills").subscribed.topics == ("bills",)


def test_options_of_spark_and_of_the_sink_are_passed_over() -> None:
    passed_over = {"checkpointLocation": "/tmp/x", "producerGroup": "p", "batchBytes": "1m"}
    assert dataclasses.replace(options(**passed_over), given={}) == dataclasses.replace(options(), given={})


@pytest.mark.parametrize(
    ("given", "starting"),
    [
        ({"startingOffsets": "earliest"}, QueueEdge.EARLIEST),
        ({"startingOffsets": "Latest"}, QueueEdge.LATEST),
        ({"startingOffsets": "1970-01-01T00:00:01.5Z"}, Moment(1500)),
        ({"startingOffsets": "1970-01-01 01:00:00+01:00"}, Moment(0)),
        ({"startingOffsets": "1970-01-02"}, Moment(86_400_000)),
        ({"startingTimestamp": "99"}, Moment(99)),
        ({"startingTimestamp": "99", "startingOffsets": "earliest"}, Moment(99)),
        ({"startingOffsets": '{"t":{"a":{"0":5}}}'}, PerQueue({("t", "a", "0"): 5})),
        ({"startingOffsets": '{"t":-2}'}, PerQueue({("t",): -2})),
        (
            {"startingOffsetsByTimestamp": '{"t":{"a":{"0":5}},"u":9}', "startingOffsets": "earliest"},
            PerQueue({("t", "a", "0"): 5, ("u",): 9}, is_time=True),
        ),
    ],
)
def test_a_start_is_an_end_of_the_queues_a_time_or_offsets(given: dict[str, str], starting: Where) -> None:
    assert options(**given).starting == starting


def test_what_is_reported_of_a_queue_comes_before_what_is_reported_of_its_topic() -> None:
    where = PerQueue.of("startingOffsets", '{"t": {"a": {"0": 5}, "b": -1}, "u": -2}')
    assert where.find(MessageQueue("t", "a", 0)) == 5
    assert where.find(MessageQueue("t", "a", 1)) is None
    assert where.find(MessageQueue("t", "b", 7)) == -1
    assert where.find(MessageQueue("u", "x", 0)) == -2


def test_batches_begin_at_the_oldest_message_and_streams_at_the_newest() -> None:
    assert (options().for_batch().starting, options().for_batch().ending) == (QueueEdge.EARLIEST, QueueEdge.LATEST)
    assert options().for_stream().starting is QueueEdge.LATEST


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("15m", 900.0), ("30s", 30.0), ("500ms", 0.5), ("2h", 7200.0), ("1 minute", 60.0), ("3 days", 259200.0),
     ("2 min", 120.0), ("7", 0.007), ("10 milliseconds", 0.01)],
)  # fmt: skip
def test_a_delay_has_a_unit(text: str, seconds: float) -> None:
    assert options(minOffsetsPerTrigger="5", maxTriggerDelay=text).max_trigger_delay == pytest.approx(seconds)


def test_a_filter_is_by_tag_or_by_sql() -> None:
    tagged = options(tags="a || b")
    assert (tagged.expression, tagged.expression_type, tagged.tags) == ("a || b", "TAG", frozenset("ab"))
    assert options(tags="*").tags is None
    sql = options(sql92="amount > 5")
    assert (sql.expression, sql.expression_type, sql.tags) == ("amount > 5", "SQL92", None)
    assert options(keys="k1, k2").keys == frozenset({"k1", "k2"})


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"subscrib": "x"}, "there is no option 'subscrib' for reading topics: did you mean subscribe?"),
        ({"maxOffsetPerTrigger": "5"}, "did you mean maxOffsetsPerTrigger?"),
        (
            {"subscribePattern": "x"},
            "one of subscribe, subscribePattern and assign .* subscribe and subscribePattern",
        ),
        ({"subscribe": " , "}, "^subscribe=, names nothing"),
        ({"subscribe": ""}, "^subscribe is empty"),
        ({"subscribe": "a b"}, "^subscribe cannot be used: .*'a b'"),
        (
            {"startingOffsets": "yesterday"},
            "^startingOffsets=yesterday is not possible: it is earliest, latest, a time",
        ),
        ({"startingOffsets": "{"}, "^startingOffsets is not JSON"),
        ({"startingOffsets": "{}"}, "^startingOffsets names no queue"),
        ({"startingOffsets": '{"t": 5}'}, "^startingOffsets cannot be used: an offset belongs to a queue"),
        ({"startingOffsets": '{"t": {"b": {"0": -3}}}'}, "^startingOffsets cannot be used: -3 is not an offset"),
        ({"startingOffsets": '{"t": {"b": {"x": 3}}}'}, "^startingOffsets cannot be used: 'x' is not a number"),
        ({"startingOffsets": '{"t": {"b": {"0": "3"}}}'}, "^startingOffsets cannot be read at t/b/0"),
        ({"startingOffsets": '{"t": {"b": {"0": {"1": 2}}}}'}, "^startingOffsets cannot be read at t/b/0"),
        ({"startingTimestamp": "2026-01-01"}, "^startingTimestamp=2026-01-01 is not a time: it is in milliseconds"),
        (
            {"startingOffsetsByTimestamp": '{"t": -1}'},
            "^startingOffsetsByTimestamp cannot be used: -1 is not a time",
        ),
        ({"startingOffsetsByTimestampStrategy": "x"}, "^startingOffsetsByTimestampStrategy=x is not possible"),
        ({"maxOffsetsPerTrigger": "0"}, "^maxOffsetsPerTrigger=0 is not possible: it is a whole number of 1"),
        ({"maxOffsetsPerTrigger": "many"}, "^maxOffsetsPerTrigger=many is not possible"),
        ({"minPartitions": "-1"}, "^minPartitions=-1 is not possible"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "3"}, "^minOffsetsPerTrigger=9 is more than max"),
        ({"maxTriggerDelay": "5m"}, "^maxTriggerDelay limits the wait of minOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "9", "maxTriggerDelay": "soon"}, "^maxTriggerDelay=soon is not a time"),
        ({"failOnDataLoss": "maybe"}, "^failOnDataLoss=maybe is not possible: it is one of true, false"),
        ({"groupId": "a b"}, "^groupId cannot be used: .*'a b'"),
        ({"columns": "topic,bdy"}, "^columns=topic,bdy cannot be used: there is no column 'bdy'"),
        ({"columns": "topic,topic"}, "^columns=topic,topic cannot be used: a column is named twice"),
        ({"tags": "||"}, "^tags=.* cannot be read"),
        ({"tags": "a", "sql92": "b > 1"}, "^tags and sql92 are both given"),
        ({"sql92": "amount >"}, "^sql92=amount > cannot be read"),
        ({"keys": ","}, "^keys=, names nothing"),
        ({"bodyFormat": "xml"}, "^bodyFormat=xml is not possible: it is one of json"),
        ({"mode": "PERMISSIVE"}, "^mode needs bodyFormat: give that option as well"),
        ({"bodyFormat": "json", "mode": "x"}, "^mode=x is not possible: it is one of FAILFAST"),
        ({"bodyFormat": "json", "columns": "topic"}, "^columns cannot be given with bodyFormat=json"),
        ({"retrySeconds": "-1"}, "^retrySeconds=-1 is not possible: it is a number of 0 or more"),
        ({"pollMillis": "x"}, "^pollMillis=x is not possible"),
    ],
)
def test_every_mistake_has_one_sentence(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence) as raised:
        options(**given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "^one of subscribe, subscribePattern and assign says what to read: none is given"),
        ({"subscribePattern": "("}, r"^subscribePattern=\( is not a regular expression"),
        ({"assign": "[]"}, "^assign is not a JSON object"),
        ({"assign": "{}"}, "^assign names no queue"),
        ({"assign": '{"t": []}'}, "^assign cannot be read at 't'"),
        ({"assign": '{"t": {"b": ["0"]}}'}, "^assign cannot be read at 't'"),
    ],
)
def test_what_to_read_has_to_be_reported_in_one_way(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        only(**given)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets of a batch cannot be latest"),
        ({"startingOffsets": '{"t": {"b": {"0": -1}}}'}, "startingOffsets of a batch cannot be latest"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest"),
        ({"endingOffsets": '{"t": -2}'}, "endingOffsets cannot be earliest"),
    ],
)
def test_a_batch_has_to_have_something_to_read(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        options(**given).for_batch()


@pytest.mark.parametrize(
    ("name", "value"), [("maxOffsetsPerTrigger", "5"), ("minOffsetsPerTrigger", "5"), ("maxTriggerDelay", "5m")]
)
def test_a_batch_has_no_triggers(name: str, value: str) -> None:
    given = {"minOffsetsPerTrigger": "1", name: value} if name == "maxTriggerDelay" else {name: value}
    with pytest.raises(OptionError, match=r"OffsetsPerTrigger is for streams: a batch reads everything"):
        options(**given).for_batch()
    options(**given).for_stream()


def test_a_path_is_not_a_topic() -> None:
    with pytest.raises(OptionError, match=r"^load\('orders'\) is not possible: a topic is read with .option"):
        options(path="orders")


def test_filters_are_pushed_down_only_for_one_use() -> None:
    assert not options().push_filters
    assert options(pushFilters="once").push_filters
    with pytest.raises(OptionError, match=r"^pushFilters=true is not possible: .* give pushFilters=once"):
        options(pushFilters="true")


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    value = {"endingOffsets": "latest", "endingTimestamp": "5"}.get(name, '{"t": 5}')
    with pytest.raises(OptionError, match=f"^{name} is for batches"):
        options(**{name: value}).for_stream()
