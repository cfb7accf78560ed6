"""Counters: what they count, and their figures of the last minute, hour and day."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

import pytest

from orbitmq.broker.stats.admin import StatsRequests
from orbitmq.broker.stats.counters import BrokerStats
from orbitmq.broker.stats.samples import DAY, HOUR, MINUTE, NUMS, Counter, PutTimes, Rate, total_text
from orbitmq.protocol.bodies import BrokerStatsData, BrokerStatsItem
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.processor import RequestRefusedError
from orbitmq.testing import ManualClock
from support.wire_captures import captured

T0 = 1_700_000_000_000
TOPIC, GROUP, CLUSTER = "TopicA", "CG_a", "DefaultCluster"
SECOND, HOUR_MS = 1000, 3_600_000


class Counting:
    """Counters with a manual clock, sampled every ten seconds of it."""

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(T0)
        self.stats = BrokerStats(self.clock, CLUSTER, **settings)

    def wait(self, ms: int) -> None:
        for _ in range(ms // 10_000):
            self.clock.advance(10_000)
            self.stats.sample_counters()

    def view(self, name: str, key: str) -> tuple[BrokerStatsItem, BrokerStatsItem, BrokerStatsItem]:
        found = self.stats.view(name, key)
        assert found is not None
        minute, hour, day = found.stats_minute, found.stats_hour, found.stats_day
        assert minute is not None
        assert hour is not None
        assert day is not None
        return minute, hour, day

    def sums(self, name: str, key: str) -> tuple[int, int, int]:
        minute, hour, day = self.view(name, key)
        return minute.sum, hour.sum, day.sum


@pytest.fixture
def counting() -> Counting:
    return Counting()


def test_messages_are_counted_by_topic_and_queue(counting: Counting) -> None:
    counting.stats.put(TOPIC, 0, 1, 300)
    counting.stats.put(TOPIC, 1, 3, 900)
    counting.stats.put("TopicB", 0, 1, 100)
    counting.wait(10 * SECOND)
    minute = counting.view("TOPIC_PUT_NUMS", TOPIC)[0]
    assert minute == BrokerStatsItem(sum=4, tps=0.4, avgpt=2.0)
    assert counting.view("TOPIC_PUT_SIZE", TOPIC)[0] == BrokerStatsItem(sum=1200, tps=120.0, avgpt=600.0)
    assert counting.sums("QUEUE_PUT_NUMS", f"{TOPIC}@1")[0] == 3
    assert counting.sums("QUEUE_PUT_SIZE", f"{TOPIC}@0")[0] == 300
    assert counting.stats.minute_tps("TOPIC_PUT_NUMS", TOPIC) == 0.4
    assert counting.stats.minute_tps("TOPIC_PUT_SIZE", TOPIC) == 120.0
    assert counting.stats.minute_tps("TOPIC_PUT_NUMS", "TopicC") == 0.0


def test_reads_are_counted_by_group_topic_and_queue(counting: Counting) -> None:
    for _ in range(12):
        counting.stats.got(GROUP, TOPIC, 2, 1, 100)
    counting.stats.got(GROUP, TOPIC, 3, 4, 400)
    counting.stats.got("CG_b", TOPIC, 2, 9, 900)
    counting.wait(10 * SECOND)
    assert counting.view("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}")[0] == BrokerStatsItem(16, 1.6, 16 / 13)
    assert counting.sums("GROUP_GET_SIZE", f"{TOPIC}@{GROUP}")[0] == 1600
    assert counting.sums("QUEUE_GET_NUMS", f"{TOPIC}@3@{GROUP}")[0] == 4
    assert counting.sums("QUEUE_GET_SIZE", f"{TOPIC}@2@{GROUP}")[0] == 1200


def test_rare_events_are_counted_by_topic_and_group(counting: Counting) -> None:
    counting.stats.sent_back(GROUP, TOPIC)
    counting.stats.sent_back(GROUP, TOPIC)
    counting.stats.dead_letter(GROUP, TOPIC)
    counting.stats.add("CHANNEL_ACTIVITY", "CONNECT", 5)
    counting.wait(10 * SECOND)
    assert counting.view("SNDBCK_PUT_NUMS", f"{TOPIC}@{GROUP}")[0] == BrokerStatsItem(2, 0.2, 1.0)
    assert counting.sums("DLQ_PUT_NUMS", f"{TOPIC}@{GROUP}")[0] == 1
    assert counting.sums("CHANNEL_ACTIVITY", "CONNECT")[0] == 5


def test_the_whole_broker_is_counted_with_and_without_its_own_topics(counting: Counting) -> None:
    counting.stats.put(TOPIC, 0, 5, 500)
    counting.stats.put("SCHEDULE_TOPIC_XXXX", 2, 2, 200)
    counting.stats.got(GROUP, TOPIC, 0, 3, 300)
    counting.stats.got("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 1, 100)
    counting.stats.delivered(2, 7, 700)
    counting.wait(10 * SECOND)
    assert counting.view("BROKER_PUT_NUMS", CLUSTER)[0] == BrokerStatsItem(7, 0.7, 0.0)
    assert counting.sums("BROKER_GET_NUMS", CLUSTER)[0] == 4
    assert counting.sums("BROKER_PUT_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER)[0] == 5
    assert counting.sums("BROKER_GET_NUMS_WITHOUT_SYSTEM_TOPIC", CLUSTER)[0] == 3
    assert counting.sums("GROUP_GET_NUMS", "SCHEDULE_TOPIC_XXXX@SCHEDULE_CONSUMER")[0] == 7
    assert (counting.stats.user_puts, counting.stats.user_gets) == (5, 3)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("TOPIC_PUT_NUMS", "TopicB"),
        ("GROUP_GET_NUMS", TOPIC),
        ("GROUP_GET_NUMS", f"{TOPIC}@CG_b"),
        ("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}@x"),
        ("QUEUE_PUT_NUMS", TOPIC),
        ("QUEUE_PUT_NUMS", f"{TOPIC}@9"),
        ("QUEUE_PUT_NUMS", f"{TOPIC}@x"),
        ("QUEUE_PUT_NUMS", f"{TOPIC}@0@{GROUP}"),
        ("QUEUE_GET_NUMS", f"{TOPIC}@0"),
        ("QUEUE_GET_NUMS", f"{TOPIC}@0@CG_b"),
        ("BROKER_PUT_NUMS", "OtherCluster"),
        ("SNDBCK_PUT_NUMS", f"{TOPIC}@{GROUP}"),
        ("NO_SUCH_NAME", TOPIC),
        ("GROUP_GET_FALL_SIZE", f"0@{TOPIC}@{GROUP}"),
        ("", ""),
    ],
)
def test_a_counter_without_counts_does_not_exist(counting: Counting, name: str, key: str) -> None:
    counting.stats.put(TOPIC, 0, 1, 1)
    counting.stats.got(GROUP, TOPIC, 0, 1, 1)
    counting.wait(10 * SECOND)
    assert counting.stats.view(name, key) is None


def test_queue_counters_need_the_detail_setting() -> None:
    counting = Counting(detailed=False)
    counting.stats.put(TOPIC, 0, 1, 1)
    counting.stats.got(GROUP, TOPIC, 0, 1, 1)
    counting.wait(10 * SECOND)
    assert counting.stats.view("QUEUE_PUT_NUMS", f"{TOPIC}@0") is None
    assert counting.stats.view("QUEUE_GET_NUMS", f"{TOPIC}@0@{GROUP}") is None
    assert counting.sums("TOPIC_PUT_NUMS", TOPIC)[0] == 1


def test_a_counter_without_samples_has_zeros(counting: Counting) -> None:
    counting.stats.put(TOPIC, 0, 1, 1)
    zero = BrokerStatsItem(0, 0.0, 0.0)
    assert counting.view("TOPIC_PUT_NUMS", TOPIC) == (zero, zero, zero)


# Minutes, hours, days


def test_a_minute_is_seven_samples_of_ten_seconds() -> None:
    counter = Counter()
    for number in range(20):
        counter.nums += 10
        counter.times += 5
        counter.sample(MINUTE, T0 + number * 10_000)
        sampled = min(number + 1, 6)
        assert counter.over(MINUTE, NUMS) == BrokerStatsItem(sum=10 * sampled, tps=1.0, avgpt=2.0)


@pytest.mark.parametrize(("span", "interval", "points"), [(HOUR, 600_000, 7), (DAY, HOUR_MS, 25)])
def test_hours_and_days_have_their_own_samples(span: Any, interval: int, points: int) -> None:
    counter = Counter()
    for number in range(2 * points):
        counter.nums += 3
        counter.sample(span, T0 + number * interval)
    assert counter.over(span, NUMS) == BrokerStatsItem(3 * (points - 1), 3000 / interval, 0.0)


def test_a_counter_that_stopped_leaves_the_minute_and_stays_in_the_hour(counting: Counting) -> None:
    counting.wait(60 * SECOND)
    counting.stats.put(TOPIC, 0, 6, 1)
    counting.wait(10 * SECOND)
    assert counting.sums("TOPIC_PUT_NUMS", TOPIC) == (6, 0, 0)
    counting.wait(590 * SECOND)
    assert counting.sums("TOPIC_PUT_NUMS", TOPIC) == (0, 6, 0)
    counting.wait(HOUR_MS)
    assert counting.sums("TOPIC_PUT_NUMS", TOPIC) == (0, 0, 6)


def test_a_clock_that_is_set_back_gives_no_negative_rates() -> None:
    counter = Counter()
    counter.nums = 5
    counter.sample(MINUTE, T0)
    counter.sample(MINUTE, T0 - 1_000_000)
    assert counter.over(MINUTE, NUMS).tps == 0.0
    rate = Rate()
    for second in range(20):
        rate.sample(T0 - second * SECOND, second)
    assert rate.per_second(10) == 0.0


# Rates


def test_rates_cover_ten_sixty_and_six_hundred_seconds() -> None:
    rate = Rate()
    texts = {}
    for second in range(1, 700):
        rate.sample(T0 + second * SECOND, 2 * second)
        texts[second] = rate.text()
    assert texts[10] == "  "
    assert texts[11] == "2.0  "
    assert texts[61] == "2.0 2.0 "
    assert texts[601] == texts[699] == "2.0 2.0 2.0"


def test_a_total_of_unknown_rates_is_zero() -> None:
    one, other = Rate(), Rate()
    assert total_text(one, other) == "0.0 0.0 0.0"
    for second in range(11):
        one.sample(second * SECOND, second)
        other.sample(second * SECOND, 2 * second)
    assert total_text(one, other) == "3.0 0.0 0.0"


async def test_a_sample_is_taken_every_second(counting: Counting) -> None:
    for _ in range(12):
        counting.stats.put(TOPIC, 0, 2, 100)
        counting.stats.got(GROUP, TOPIC, 0, 4, 100)
        counting.stats.missed_get()
        counting.clock.advance(SECOND)
        counting.stats.sample()
    assert counting.stats.put_rate.per_second(10) == 2.0
    assert counting.stats.found_rate.per_second(10) == 1.0
    assert counting.stats.miss_rate.per_second(10) == 1.0
    assert counting.stats.transfer_rate.per_second(10) == 4.0
    # Sampled at the first and at the eleventh second.
    assert counting.sums("TOPIC_PUT_NUMS", TOPIC)[0] == 22


async def test_many_counters_are_sampled_in_slices(counting: Counting) -> None:
    for number in range(1200):
        counting.stats.put(f"Topic{number}", 0, 1, 1)
        counting.stats.sent_back(GROUP, f"Topic{number}")
        counting.stats.got(GROUP, f"Topic{number}", 0, 1, 1)
    counting.stats.sample()
    assert counting.sums("TOPIC_PUT_NUMS", "Topic0")[0] == 1
    assert counting.sums("GROUP_GET_NUMS", f"Topic1199@{GROUP}")[0] == 0
    for _ in range(10):
        await asyncio.sleep(0)
    assert counting.sums("GROUP_GET_NUMS", f"Topic1199@{GROUP}")[0] == 1
    assert counting.sums("SNDBCK_PUT_NUMS", f"Topic1199@{GROUP}")[0] == 1


# Store times


def test_the_store_times_of_a_minute_are_reported_when_it_is_over() -> None:
    times = PutTimes()
    assert times.distribution() == "null"
    for ms in (0, 3, 10, 11, 700, 20_000):
        times.add(ms)
    times.end_minute(100)
    assert times.distribution() == (
        "[<=0ms]:95 [0~10ms]:2 [10~50ms]:1 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:1 [1~2s]:0 "
        "[2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:1 "
    )
    assert times.longest_ms == 20_000
    times.end_minute(3)
    assert times.distribution().startswith("[<=0ms]:3 [0~10ms]:0 ")
    assert times.longest_ms == 20_000


def test_percentiles_are_rounded_up_to_a_step() -> None:
    times = PutTimes()
    assert times.percentile(0.99) == 1.0
    for ms in (1, 21, 53, 101, 210, 501, 1001, 50_000):
        times = PutTimes()
        times.add(ms)
        times.end_minute(1)
        expected = {1: 1, 21: 22, 53: 55, 101: 110, 210: 250, 501: 600, 1001: 2000, 50_000: 10_000}[ms]
        assert times.percentile(1.0) == expected
    times.add(5)
    times.end_minute(1000)
    assert (times.percentile(0.99), times.percentile(0.999), times.percentile(1.0)) == (1.0, 1.0, 5.0)


async def test_a_minute_ends_every_sixty_seconds(counting: Counting) -> None:
    counting.stats.put(TOPIC, 0, 7, 7)
    counting.stats.put_took(30)
    for _ in range(60):
        counting.stats.sample()
    assert counting.stats.put_times.distribution().startswith("[<=0ms]:6 [0~10ms]:0 [10~50ms]:1 ")


# Days, and dropped counters


def test_at_midnight_today_becomes_yesterday() -> None:
    counting = Counting()
    counting.clock.advance(86_400_000 - T0 % 86_400_000 - 20_000)
    counting.wait(10 * SECOND)
    counting.stats.put(TOPIC, 0, 5, 1)
    counting.stats.put("SCHEDULE_TOPIC_XXXX", 0, 5, 1)
    counting.stats.got(GROUP, TOPIC, 0, 2, 1)
    counting.wait(10 * SECOND)
    assert (counting.stats.put_mornings, counting.stats.get_mornings) == ((0, 5), (0, 2))
    counting.stats.put(TOPIC, 0, 1, 1)
    counting.clock.advance(86_400_000)
    counting.stats.sample_counters()
    assert (counting.stats.put_mornings, counting.stats.get_mornings) == ((5, 6), (2, 2))


def test_idle_counters_are_dropped(counting: Counting) -> None:
    counting.stats.put(TOPIC, 0, 5, 1)
    counting.stats.put("SCHEDULE_TOPIC_XXXX", 0, 3, 1)
    counting.stats.got(GROUP, TOPIC, 0, 2, 1)
    counting.stats.got("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC", 0, 1, 1)
    counting.stats.sent_back(GROUP, TOPIC)
    counting.wait(20 * HOUR_MS)
    counting.stats.put("TopicB", 0, 1, 1)
    assert counting.stats.view("TOPIC_PUT_NUMS", TOPIC) is not None
    counting.wait(8 * HOUR_MS)
    assert counting.stats.view("TOPIC_PUT_NUMS", TOPIC) is None
    assert counting.stats.view("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}") is None
    assert counting.stats.view("SNDBCK_PUT_NUMS", f"{TOPIC}@{GROUP}") is None
    assert counting.stats.view("TOPIC_PUT_NUMS", "TopicB") is not None
    assert (counting.stats.puts.nums, counting.stats.user_puts) == (9, 6)
    assert (counting.stats.gets.nums, counting.stats.user_gets) == (3, 2)
    counting.stats.put(TOPIC, 0, 1, 1)
    assert counting.stats.view("TOPIC_PUT_NUMS", TOPIC) is not None


def test_an_operator_may_have_idle_counters_dropped_sooner() -> None:
    counting = Counting(max_idle_minutes=30)
    counting.stats.put(TOPIC, 0, 5, 1)
    counting.wait(25 * 60 * SECOND)
    assert counting.stats.view("TOPIC_PUT_NUMS", TOPIC) is not None
    counting.wait(30 * 60 * SECOND)
    assert counting.stats.view("TOPIC_PUT_NUMS", TOPIC) is None


def test_the_counters_of_a_deleted_topic_are_dropped(counting: Counting) -> None:
    for topic in (TOPIC, "TopicB"):
        counting.stats.put(topic, 0, 5, 1)
        counting.stats.got(GROUP, topic, 0, 2, 1)
        counting.stats.sent_back(GROUP, topic)
        counting.stats.fell_behind(GROUP, topic, 0, 1000, 5)
    counting.stats.forget_topic(TOPIC)
    counting.stats.forget_topic("TopicC")
    for name, key in (
        ("TOPIC_PUT_NUMS", "{}"),
        ("GROUP_GET_NUMS", "{}@CG_a"),
        ("SNDBCK_PUT_NUMS", "{}@CG_a"),
        ("QUEUE_PUT_NUMS", "{}@0"),
    ):
        assert counting.stats.view(name, key.format(TOPIC)) is None
        assert counting.stats.view(name, key.format("TopicB")) is not None
    assert counting.stats.behind == {(0, "TopicB", GROUP): (1000, 5)}
    assert counting.stats.puts.nums == 10


def test_the_counters_of_a_deleted_group_are_dropped(counting: Counting) -> None:
    for group in (GROUP, "CG_b"):
        counting.stats.got(group, TOPIC, 0, 2, 1)
        counting.stats.sent_back(group, TOPIC)
    counting.stats.forget_group(GROUP)
    assert counting.stats.view("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}") is None
    assert counting.stats.view("SNDBCK_PUT_NUMS", f"{TOPIC}@{GROUP}") is None
    assert counting.stats.view("GROUP_GET_NUMS", f"{TOPIC}@CG_b") is not None


def test_counts_over_the_counter_limit_are_in_the_totals_only() -> None:
    counting = Counting(max_counters=3)
    for number in range(5):
        counting.stats.put(f"Topic{number}", 0, 1, 10)
        counting.stats.got(GROUP, f"Topic{number}", 0, 1, 10)
        counting.stats.sent_back(GROUP, f"Topic{number}")
    counting.wait(10 * SECOND)
    assert counting.stats.view("TOPIC_PUT_NUMS", "Topic0") is not None
    assert counting.stats.view("TOPIC_PUT_NUMS", "Topic4") is None
    assert counting.stats.view("GROUP_GET_NUMS", f"Topic4@{GROUP}") is None
    assert counting.stats.view("SNDBCK_PUT_NUMS", f"Topic4@{GROUP}") is None
    assert counting.sums("BROKER_PUT_NUMS", CLUSTER)[0] == 5
    assert counting.sums("BROKER_GET_NUMS", CLUSTER)[0] == 5
    counting.stats.forget_topic("Topic0")
    counting.stats.put("Topic4", 0, 1, 10)
    assert counting.stats.view("TOPIC_PUT_NUMS", "Topic4") is not None


# Request


def asked(stats: BrokerStats, **fields: str) -> Command:
    request = Command(RequestCode.VIEW_BROKER_STATS_DATA, 1, ext_fields=fields)
    return StatsRequests(stats).view(request, cast("Any", None))


EXCHANGES = [
    (question, answer)
    for question in captured("admin2")
    if question.code == RequestCode.VIEW_BROKER_STATS_DATA and not question.is_response
    for answer in captured("admin2")
    if answer.is_response
    and (answer.connection, answer.header["opaque"]) == (question.connection, question.header["opaque"])
]


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: str(exchange[0]))
def test_a_response_equals_that_of_apache(counting: Counting, exchange: Any) -> None:
    question, answer = exchange
    if answer.code == ResponseCode.SYSTEM_ERROR:
        with pytest.raises(RequestRefusedError) as refused:
            asked(counting.stats, **question.ext_fields)
        assert (refused.value.code, str(refused.value)) == (answer.code, answer.header["remark"])
        return
    key = question.ext_fields["statsKey"]
    topic, _, group = key.partition("@")
    counting.stats.put(topic, 0, 1, 1)
    counting.stats.got(group, topic, 0, 1, 1)
    found = asked(counting.stats, **question.ext_fields)
    theirs = json.loads(answer.frame[2])
    assert found.body is not None
    assert {name: list(item) for name, item in json.loads(found.body).items()} == {
        name: list(item) for name, item in theirs.items()
    }
    assert BrokerStatsData.decode(answer.frame[2]).encode() == answer.frame[2]


def test_a_request_without_a_key_is_refused(counting: Counting) -> None:
    with pytest.raises(ProtocolError):
        asked(counting.stats, statsName="TOPIC_PUT_NUMS")
    assert StatsRequests(counting.stats).handlers.keys() == {RequestCode.VIEW_BROKER_STATS_DATA}


def test_counts_that_are_not_by_key(counting: Counting) -> None:
    counting.stats.put_failed()
    counting.stats.missed_get()
    counting.stats.get_took(7)
    counting.stats.get_took(3)
    assert (counting.stats.failed_puts, counting.stats.missed_gets, counting.stats.longest_get_ms) == (1, 1, 7)
