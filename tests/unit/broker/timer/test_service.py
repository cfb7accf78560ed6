"""Timer: deferral, delivery, rolling, recall, failures and clock changes."""

from __future__ import annotations

import pytest

from orbitmq.broker.deferred.delivery_loop import RETRY_MS, SLICE_RECORDS
from orbitmq.broker.timer import dequeue
from orbitmq.protocol.message.properties import encode, parse
from orbitmq.protocol.names import TIMER_TOPIC
from orbitmq.store import AppendRefusedError, PutStatus, StoredMessage
from support.broker.timer_harness import DAY, SECOND, Timers, properties_of, small_timers
from support.store.stores import T0, TOPIC, read_all

HOUR = 3600 * SECOND


@pytest.fixture
def timers() -> Timers:
    return small_timers()


def slot_of(timers: Timers, **properties: str) -> int | None:
    """The slot of a message with these properties; None if it is not deferred."""
    parked = timers.service.defer(encode(properties), TOPIC, 1)
    return None if parked is None else int(parse(parked[2])["TIMER_OUT_MS"])


# Deferral


def test_a_message_with_a_delivery_time_is_stored_under_the_timer_topic(timers: Timers) -> None:
    parked = timers.service.defer(encode({"TIMER_DELIVER_MS": str(T0 + 4567), "KEYS": "k"}), TOPIC, 2)
    assert parked is not None
    assert parked[:2] == (TIMER_TOPIC, 0)
    assert parse(parked[2]) == {
        "TIMER_DELIVER_MS": str(T0 + 4567),
        "KEYS": "k",
        "TIMER_OUT_MS": str(T0 + 4000),
        "REAL_TOPIC": TOPIC,
        "REAL_QID": "2",
    }


@pytest.mark.parametrize(
    ("name", "value", "slot"),
    [
        ("TIMER_DELIVER_MS", T0 + 1, 0),
        ("TIMER_DELIVER_MS", T0 + 999, 0),
        ("TIMER_DELIVER_MS", T0 + 1000, 0),
        ("TIMER_DELIVER_MS", T0 + 1001, 1000),
        ("TIMER_DELAY_MS", 3500, 3000),
        ("TIMER_DELAY_MS", "+3500", 3000),
        ("TIMER_DELAY_SEC", 3, 2000),
    ],
)
def test_a_slot_is_over_when_its_messages_are_due(timers: Timers, name: str, value: object, slot: int) -> None:
    assert slot_of(timers, **{name: str(value)}) == T0 + slot


def test_a_delay_in_seconds_precedes_milliseconds_and_these_a_time(timers: Timers) -> None:
    every = {"TIMER_DELIVER_MS": str(T0 + 50_500), "TIMER_DELAY_MS": "20500", "TIMER_DELAY_SEC": "10"}
    assert slot_of(timers, **every) == T0 + 9000
    del every["TIMER_DELAY_SEC"]
    assert slot_of(timers, **every) == T0 + 20_000


@pytest.mark.parametrize("name", ["TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"])
@pytest.mark.parametrize("value", ["0", "-5"])
def test_a_message_whose_time_has_come_is_not_deferred(timers: Timers, name: str, value: str) -> None:
    assert slot_of(timers, **{name: value}) is None


def test_a_message_delivered_by_the_timer_is_not_deferred_again(timers: Timers) -> None:
    assert slot_of(timers, TIMER_DELAY_SEC="5", TIMER_OUT_MS=str(T0)) is None
    assert slot_of(timers, KEYS="k") is None


@pytest.mark.parametrize("value", ["x", "1.5", " 1", "1e3", "0x10", "9" * 30, "--1"])
def test_a_malformed_time_is_refused(timers: Timers, value: str) -> None:
    for name in ("TIMER_DELIVER_MS", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"):
        with pytest.raises(AppendRefusedError) as refused:
            slot_of(timers, **{name: value})
        assert refused.value.status is PutStatus.WHEEL_TIMER_MSG_ILLEGAL


def test_a_time_too_far_away_is_refused_and_the_farthest_is_not() -> None:
    timers = small_timers(timer_max_delay_sec=100)
    assert slot_of(timers, TIMER_DELAY_SEC="100") == T0 + 99_000
    with pytest.raises(AppendRefusedError, match="bigger than the max delay 100000ms"):
        slot_of(timers, TIMER_DELAY_MS="100001")


def test_a_recall_of_a_past_time_is_refused(timers: Timers) -> None:
    with pytest.raises(AppendRefusedError, match="if set del msg"):
        slot_of(timers, TIMER_DELIVER_MS=str(T0), TIMER_DEL_UNIQKEY="k")


def test_a_crowded_slot_refuses_at_random_and_then_always(monkeypatch: pytest.MonkeyPatch) -> None:
    timers = small_timers(timer_congest_num_each_slot=10)
    for number in range(11):
        timers.send_in(5, b"%d" % number)
    timers.look()
    monkeypatch.setattr(timers.service._random, "randrange", lambda _: 50)
    timers.send_in(5, b"lucky")
    monkeypatch.setattr(timers.service._random, "randrange", lambda _: 999)
    with pytest.raises(AppendRefusedError, match="max num limit is 20 or the current value is greater than 10"):
        timers.send_in(5, b"unlucky")
    monkeypatch.setattr(timers.service._random, "randrange", lambda _: 0)
    for number in range(8):
        timers.send_in(5, b"more%d" % number)
    timers.look()
    with pytest.raises(AppendRefusedError) as refused:
        timers.send_in(5, b"never")
    assert refused.value.status is PutStatus.WHEEL_TIMER_FLOW_CONTROL
    assert timers.send_in(6, b"another slot")


# Delivery


@pytest.mark.parametrize("wanted", [1, 500, 999, 1000, 1001, 4999, 5000, 12_345])
def test_a_message_is_delivered_soon_after_its_time_and_never_before(timers: Timers, wanted: int) -> None:
    timers.send("TIMER_DELAY_MS", wanted)
    timers.look()
    while not timers.delivered:
        timers.wait(1)
    (record,) = timers.delivered
    assert T0 + wanted <= record.store_timestamp <= T0 + wanted + SECOND


def test_a_message_is_delivered_as_it_was_sent_with_timer_properties(timers: Timers) -> None:
    clock = timers.clock
    clock.advance(300)
    properties = encode({"KEYS": "k", "TAGS": "TagA", "UNIQ_KEY": "u", "TIMER_DELAY_SEC": "2", "WAIT": "true"})
    parked = timers.service.defer(properties, TOPIC, 3)
    assert parked is not None
    timers.store.append(StoredMessage(
        parked[0], 0, b"hello", parked[2], flag=7, sys_flag=1, born_timestamp=T0 - 5, born_host=b"\1\2\3\4\0\0\0\5",
        reconsume_times=2,
    ))  # fmt: skip
    timers.wait(100)
    timers.wait(3000)
    (record,) = read_all(timers.store, TOPIC, 3)

    assert (record.body, record.flag, record.sys_flag) == (b"hello", 7, 1)
    assert (record.born_timestamp, record.born_host, record.reconsume_times) == (T0 - 5, b"\1\2\3\4\0\0\0\5", 2)
    assert properties_of(record) == {
        "KEYS": "k",
        "TAGS": "TagA",
        "UNIQ_KEY": "u",
        "TIMER_DELAY_SEC": "2",
        "WAIT": "true",
        "TIMER_OUT_MS": str(T0 + 2000),
        "REAL_TOPIC": TOPIC,
        "REAL_QID": "3",
        "TIMER_ENQUEUE_MS": str(T0),
        "TIMER_DEQUEUE_MS": str(T0 + 3400),
    }


def test_messages_of_one_slot_are_delivered_in_order_of_arrival(timers: Timers) -> None:
    bodies = [b"%03d" % number for number in range(100)]
    for body in bodies:
        timers.send_in(5, body)
    timers.look()
    timers.wait(6000)
    assert timers.bodies() == bodies


def test_slots_are_delivered_in_order(timers: Timers) -> None:
    for seconds in (9, 3, 7, 1, 5):
        timers.send_in(seconds, b"%d" % seconds)
    timers.look()
    timers.wait(20_000)
    assert timers.bodies() == [b"1", b"3", b"5", b"7", b"9"]


def test_a_message_due_before_its_entry_is_delivered_at_once(timers: Timers) -> None:
    timers.store.config.timer_stop_enqueue = True
    timers.send_in(1, b"late")
    timers.wait(5000)
    timers.store.config.timer_stop_enqueue = False
    timers.look()
    (record,) = timers.delivered
    assert properties_of(record)["TIMER_ENQUEUE_MS"] == str(2**63 - 1)
    assert timers.counts.of(TOPIC) == 0


def test_a_slice_is_bounded_however_many_messages_are_due(timers: Timers) -> None:
    for number in range(200):
        timers.send_in(5, b"%d" % number)
    timers.service.run_slice()
    assert timers.service.queue_offset == SLICE_RECORDS
    timers.look()
    timers.clock.advance(10_000)
    timers.service.run_slice()
    assert len(timers.delivered) == SLICE_RECORDS
    timers.look()
    assert len(timers.delivered) == 200


def test_large_messages_make_short_slices() -> None:
    timers = small_timers(mapped_file_size_commit_log=1 << 22)
    for number in range(10):
        timers.send_in(5, b"%d" % number + bytes(100_000), UNIQ_KEY="k")
    timers.look()
    timers.clock.advance(10_000)
    timers.service.run_slice()
    assert 0 < len(timers.delivered) < 5


def test_a_long_chain_is_followed_in_several_slices(timers: Timers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dequeue, "SLICE_UNITS", 7)
    for number in range(50):
        timers.send_in(5, b"%02d" % number)
    timers.look()
    timers.clock.advance(10_000)
    timers.service.run_slice()
    assert timers.delivered == []
    timers.look()
    assert timers.bodies() == [b"%02d" % number for number in range(50)]


def test_an_idle_timer_wakes_once_a_second(timers: Timers) -> None:
    assert timers.look() == SECOND
    timers.clock.advance(400)
    assert timers.look() == 600


def test_a_higher_precision_delivers_earlier() -> None:
    timers = small_timers(timer_precision_ms=100)
    timers.send("TIMER_DELAY_MS", 250)
    timers.look()
    timers.wait(249)
    assert timers.delivered == []
    timers.wait(51)
    assert timers.bodies() == [b"hello"]


@pytest.mark.parametrize("setting", ["timer_stop_enqueue", "timer_stop_dequeue"])
def test_the_timer_can_be_halted(timers: Timers, setting: str) -> None:
    setattr(timers.store.config, setting, True)
    timers.send_in(5)
    timers.look()
    timers.wait(10_000)
    assert timers.delivered == []
    setattr(timers.store.config, setting, False)
    timers.look()
    assert timers.bodies() == [b"hello"]


# Rolling


def test_a_message_beyond_the_wheel_rolls_until_it_is_in_range() -> None:
    timers = small_timers(timer_roll_window_slot=3600)
    timers.send("TIMER_DELAY_SEC", 10 * 3600)
    timers.look()
    end = T0 + 10 * HOUR
    while timers.clock.now_ms() < end - SECOND:
        timers.wait(HOUR // 4)
        assert timers.delivered == [] or timers.clock.now_ms() >= end
    timers.wait(2000)
    (record,) = timers.delivered
    found = properties_of(record)
    assert record.store_timestamp >= end
    assert 5 <= int(found["TIMER_ROLL_TIMES"]) <= 12
    assert found["TIMER_OUT_MS"] == str(end - SECOND)
    assert timers.counts.of(TOPIC) == 0


@pytest.mark.parametrize(("seconds", "slot"), [(3599, 3598), (3602, 1800), (4800, 1800), (4802, 3600)])
def test_a_message_rolls_to_the_same_slot_as_in_apaches_broker(seconds: int, slot: int) -> None:
    timers = small_timers(timer_roll_window_slot=3600)
    timers.send("TIMER_DELAY_SEC", seconds)
    timers.look()
    assert timers.service.files.wheel.next_busy(T0, T0 + DAY) == T0 + slot * SECOND


@pytest.mark.parametrize("window", [1, 604_741, -5])
def test_a_roll_window_beyond_the_wheel_is_clamped(window: int) -> None:
    timers = small_timers(timer_roll_window_slot=window, timer_max_delay_sec=1_000_000)
    timers.send("TIMER_DELAY_SEC", 604_000)
    timers.look()
    assert timers.service.files.wheel.next_busy(T0, T0 + 8 * DAY) == T0 + 603_999 * SECOND


# Recall


def test_a_recalled_message_is_not_delivered(timers: Timers) -> None:
    for body in (b"one", b"two", b"three"):
        timers.send_in(60, body)
    timers.take_back(b"two", 60)
    timers.look()
    assert timers.counts.of(TOPIC) == 2
    assert timers.service.waiting == 2
    timers.wait(61_000)
    assert timers.bodies() == [b"one", b"three"]
    assert timers.counts.of(TOPIC) == 0


def test_a_key_without_topic_recalls_no_message_of_another_topic(timers: Timers) -> None:
    timers.send_in(60, b"one")
    timers.send_in(60, b"0", TIMER_DEL_UNIQKEY="Other+one", UNIQ_KEY="marker")
    timers.look()
    timers.wait(61_000)
    assert timers.bodies() == [b"one"]


def test_a_recall_that_is_not_entered_yet_stops_a_due_message(timers: Timers) -> None:
    timers.send_in(5, b"one")
    for number in range(200):
        timers.send_in(3600, b"%d" % number)
    timers.take_back(b"one", 5)
    timers.service.run_slice()
    timers.wait(6000)
    assert timers.bodies() == []


def test_a_key_with_its_topic_recalls_too(timers: Timers) -> None:
    timers.send_in(60, b"one")
    timers.send_in(60, b"0", TIMER_DEL_UNIQKEY=f"{TOPIC}+one", UNIQ_KEY="marker")
    timers.look()
    timers.wait(61_000)
    assert timers.bodies() == []


def test_a_recall_of_a_missing_message_leaves_the_count_correct(timers: Timers) -> None:
    timers.send_in(60, b"one")
    timers.take_back(b"nobody", 60)
    timers.look()
    timers.wait(61_000)
    assert timers.bodies() == [b"one"]
    assert timers.counts.of(TOPIC) == 0


def test_a_rolling_message_can_be_recalled_before_and_after_it_rolled() -> None:
    timers = small_timers(timer_roll_window_slot=3600)
    for body in (b"early", b"late", b"kept"):
        timers.send_in(7200, body)
    timers.look()
    timers.take_back(b"early", 7200)
    timers.wait(5000 * SECOND)
    timers.take_back(b"late", 2200)
    for _ in range(10):
        timers.wait(600 * SECOND)
    assert timers.bodies() == [b"kept"]


# Failures


def test_a_refusing_store_is_retried(timers: Timers, caplog: pytest.LogCaptureFixture) -> None:
    for body in (b"one", b"two"):
        timers.send_in(5, body)
    timers.look()
    timers.store.appender.gate.close("test", "it rests")
    timers.clock.advance(10_000)
    for _ in range(5):
        assert timers.service.run_slice() == timers.clock.now_ms() + RETRY_MS
        timers.clock.advance(RETRY_MS)
    assert len(caplog.records) == 1
    timers.store.appender.gate.open("test")
    timers.look()
    assert timers.bodies() == [b"one", b"two"]
    assert timers.counts.of(TOPIC) == 0


def test_a_message_without_a_real_topic_is_skipped(timers: Timers, caplog: pytest.LogCaptureFixture) -> None:
    for properties in (
        {"TIMER_OUT_MS": str(T0 + 2000)},
        {"TIMER_OUT_MS": "x"},
        {"TIMER_OUT_MS": str(T0 + 2000), "REAL_TOPIC": TOPIC, "REAL_QID": "-1"},
        {"KEYS": "k"},
    ):
        timers.store.append(StoredMessage(TIMER_TOPIC, 0, b"strange", encode(properties)))
    timers.send_in(2, b"plain")
    timers.look()
    timers.wait(5000)
    assert timers.bodies() == [b"plain"]
    assert len(caplog.records) == 4


def test_a_message_that_no_queue_accepts_is_skipped(timers: Timers, caplog: pytest.LogCaptureFixture) -> None:
    timers.send_in(2, b"plain")
    parked = timers.service.defer(encode({"TIMER_DELAY_SEC": "2", "K": "v" * 32_600}), TOPIC, 1)
    assert parked is not None
    timers.store.append(
        StoredMessage(*parked[:2], b"too many properties", parked[2][:32_760].rpartition(b"\2")[0] + b"\2")
    )
    timers.send_in(2, b"after")
    timers.look()
    timers.wait(5000)
    assert {b"plain", b"after"} <= set(timers.bodies())
    assert not [record for record in caplog.records if record.exc_info]


# Clock changes


def test_a_clock_that_is_set_back_neither_advances_nor_repeats_a_message(timers: Timers) -> None:
    timers.send_in(2, b"before")
    timers.send_in(100, b"far")
    timers.look()
    timers.wait(50_000)
    assert timers.bodies() == [b"before"]
    timers.clock._now_ms = T0 - 30_000  # an operator corrects it
    timers.send_in(10, b"after")
    timers.look()
    timers.wait(9_999)
    assert timers.bodies() == [b"before"]
    timers.wait(1001)
    assert timers.bodies() == [b"before", b"after"]
    timers.wait(60_000)
    timers.wait(70_000)
    assert timers.bodies() == [b"before", b"after", b"far"]


def test_a_clock_that_is_set_back_by_years_goes_back_once(timers: Timers, monkeypatch: pytest.MonkeyPatch) -> None:
    timers.wait(10_000)
    timers.clock._now_ms = T0 - 10 * 365 * DAY
    backs: list[int] = []
    go_back = timers.service._enqueue._go_back_to

    def counted(time: int) -> None:
        backs.append(time)
        go_back(time)

    monkeypatch.setattr(timers.service._enqueue, "_go_back_to", counted)
    for seconds in range(60, 10, -1):
        timers.send_in(seconds, b"%d" % seconds)
    timers.look()
    timers.wait(61_000)
    assert sorted(timers.bodies()) == sorted(b"%d" % seconds for seconds in range(60, 10, -1))
    assert len(backs) == 1


def test_a_clock_that_jumps_ahead_by_a_century_delivers_every_message(timers: Timers) -> None:
    timers.send_in(5, b"before")
    timers.look()
    timers.wait(120 * 365 * DAY)
    assert timers.bodies() == [b"before"]
    timers.send_in(5, b"after")
    timers.wait(6000)
    assert timers.bodies() == [b"before", b"after"]


def test_a_clock_that_is_set_back_in_the_middle_of_a_slot_repeats_nothing(timers: Timers) -> None:
    bodies = [b"%03d" % number for number in range(SLICE_RECORDS * 3 // 2)]
    for body in bodies:
        timers.send_in(5, body)
    timers.look()
    timers.clock.advance(6000)
    timers.service.run_slice()
    assert len(timers.delivered) == SLICE_RECORDS
    timers.clock._now_ms = T0
    timers.send_in(3, b"sooner")
    timers.look()
    timers.wait(10_000)
    assert timers.bodies() == [*bodies[:SLICE_RECORDS], b"sooner", *bodies[SLICE_RECORDS:]]


def test_a_clock_that_is_set_back_while_messages_are_entered_counts_none_twice(timers: Timers) -> None:
    for _ in range(SLICE_RECORDS * 3 // 2):
        timers.send_in(5)
    timers.look()
    timers.clock.advance(6000)
    timers.service.run_slice()
    timers.clock._now_ms = T0
    for seconds in (60, 60, 3, 90):
        timers.send_in(seconds)
    timers.service.run_slice()
    assert timers.counts.of(TOPIC) == SLICE_RECORDS // 2 + 4
    timers.wait(100_000)
    assert timers.counts.of(TOPIC) == 0
