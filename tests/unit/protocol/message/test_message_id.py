"""Offset ids and unique ids."""

from __future__ import annotations

import datetime
import itertools

import pytest

from orbitmq.protocol import ProtocolError
from orbitmq.protocol.hosts import host_bytes
from orbitmq.protocol.message.message_id import (
    UniqueId,
    UniqueIdFactory,
    decode_offset_id,
    decode_unique_id,
    encode_offset_id,
    join_offset_ids,
    month_start,
)
from support.store import golden

UTC = datetime.UTC
SHANGHAI = datetime.timezone(datetime.timedelta(hours=8))


class SummerTime(datetime.tzinfo):
    """An hour ahead of UTC, two from April to October."""

    def utcoffset(self, when: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=1) + self.dst(when)

    def dst(self, when: datetime.datetime | None) -> datetime.timedelta:
        return datetime.timedelta(hours=int(when is not None and 4 <= when.month <= 10))

    def tzname(self, when: datetime.datetime | None) -> str:
        return "summer" if self.dst(when) else "winter"


BERLIN = SummerTime()


def millis(year: int, month: int, day: int, hour: int = 0, zone: datetime.tzinfo = UTC) -> int:
    return int(datetime.datetime(year, month, day, hour, tzinfo=zone).timestamp()) * 1000


class Clock:
    def __init__(self, now: int) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


def test_an_offset_id_is_host_and_offset() -> None:
    host = host_bytes("127.0.0.1:10911")
    assert encode_offset_id(host, 0) == "7F00000100002A9F0000000000000000"
    assert encode_offset_id(host, 0xABCDEF) == "7F00000100002A9F0000000000ABCDEF"
    assert decode_offset_id("7F00000100002A9F0000000000ABCDEF") == (host, 0xABCDEF)
    assert decode_offset_id("7f00000100002a9f0000000000abcdef") == (host, 0xABCDEF)


def test_an_offset_id_of_an_ipv6_broker_has_56_characters() -> None:
    host = host_bytes("[::1]:13911")
    text = "0000000000000000000000000000000100003657000000000000011C"
    assert encode_offset_id(host, 284) == text
    assert decode_offset_id(text) == (host, 284)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7F",
        "7F00000100002A9F000000000000000",
        "7F00000100002A9F00000000000000000",
        "7F00000100002A9F00000000000000000000",
        "G" * 32,
        "7F00000100002A9F 00000000000000 ",
        " " * 32,
        "7F" * 16 + " " * 24,
        "é" * 32,
        "0" * 57,
    ],
)
def test_what_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError):
        decode_offset_id(text)
    with pytest.raises(ProtocolError):
        decode_unique_id(text)


def test_an_id_with_an_impossible_port_or_offset_is_no_offset_id() -> None:
    with pytest.raises(ProtocolError, match="port 65536"):
        decode_offset_id("7F000001000100000000000000000000")
    with pytest.raises(ProtocolError, match="offset -1"):
        decode_offset_id("7F00000100002A9FFFFFFFFFFFFFFFFF")


def test_a_unique_id_is_made_of_its_parts() -> None:
    clock = Clock(millis(2023, 11, 14, 22))
    make = UniqueIdFactory(bytes([10, 0, 0, 1]), 0x1_2345, 0x5FFD2B27, clock, zone=UTC)
    assert make() == "0A00000123455FFD2B27" + f"{(13 * 24 + 22) * 3_600_000:08X}" + "0000"
    assert make()[-4:] == "0001"


def test_an_ipv6_client_makes_ids_of_56_characters() -> None:
    address = bytes.fromhex("fd000000000000000000000000000002")
    clock = Clock(millis(2026, 11, 15))
    text = UniqueIdFactory(address, 7, 9, clock, zone=UTC)()
    assert len(text) == 56
    assert decode_unique_id(text) == UniqueId(address, 7, 9, 14 * 86_400_000, 0)


def test_the_counter_wraps_at_16_bits() -> None:
    make = UniqueIdFactory(bytes(4), 0, 0, Clock(0), itertools.count(65535), UTC)
    assert [make()[-4:], make()[-4:]] == ["FFFF", "0000"]


def test_a_negative_class_loader_hash_is_written_as_java_does() -> None:
    text = UniqueIdFactory(bytes(4), 0, -1, Clock(0), zone=UTC)()
    assert decode_unique_id(text).class_loader_hash == 0xFFFFFFFF


def test_the_time_starts_anew_every_month() -> None:
    clock = Clock(millis(2024, 1, 31, 23))
    make = UniqueIdFactory(bytes(4), 0, 0, clock, zone=UTC)
    assert decode_unique_id(make()).month_millis == (30 * 24 + 23) * 3_600_000
    clock.now = millis(2024, 2, 1) - 1
    assert decode_unique_id(make()).month_millis == 31 * 86_400_000 - 1
    clock.now = millis(2024, 2, 1)
    assert decode_unique_id(make()).month_millis == 0
    clock.now = millis(2024, 12, 25)
    assert decode_unique_id(make()).month_millis == 24 * 86_400_000
    clock.now = millis(2025, 1, 1, 1)
    assert decode_unique_id(make()).month_millis == 3_600_000


def test_a_clock_set_back_over_the_first_of_the_month_counts_as_zero() -> None:
    clock = Clock(millis(2024, 2, 1))
    make = UniqueIdFactory(bytes(4), 0, 0, clock, zone=UTC)
    clock.now -= 999_999
    assert decode_unique_id(make()).month_millis == 0
    clock.now -= 1
    assert decode_unique_id(make()).month_millis == 2**32 - 1_000_000


@pytest.mark.parametrize("zone", [UTC, SHANGHAI, BERLIN, None], ids=["UTC", "Shanghai", "Berlin", "local"])
@pytest.mark.parametrize("month", range(1, 13))
def test_the_time_of_an_id_is_found_again(zone: datetime.tzinfo | None, month: int) -> None:
    for day, hour in [(1, 0), (1, 3), (15, 12), (28, 23)]:
        made = millis(2024, month, day, hour, zone or UTC)
        text = UniqueIdFactory(bytes(4), 0, 0, Clock(made), zone=zone)()
        for later in (1, 3_600_000, 86_400_000):
            assert decode_unique_id(text).time_ms(made + later, zone) == made


def test_an_id_of_last_month_is_not_taken_for_the_future() -> None:
    made = millis(2024, 2, 29, 20)
    identity = decode_unique_id(UniqueIdFactory(bytes(4), 0, 0, Clock(made), zone=UTC)())
    assert identity.time_ms(millis(2024, 3, 1, 5), UTC) == made
    assert identity.time_ms(millis(2024, 3, 29), UTC) == made


def test_a_month_starts_at_midnight_of_its_zone() -> None:
    assert month_start(millis(2024, 3, 31, 12), UTC) == millis(2024, 3, 1)
    assert month_start(millis(2024, 3, 31, 12), BERLIN) == millis(2024, 3, 1, 0, BERLIN)
    assert month_start(millis(2024, 2, 29, 17), SHANGHAI) == millis(2024, 3, 1, 0, SHANGHAI)
    assert month_start(0, UTC) == 0


@pytest.mark.parametrize("size", [0, 3, 8, 17])
def test_a_factory_needs_an_address(size: int) -> None:
    with pytest.raises(ProtocolError):
        UniqueIdFactory(bytes(size), 0, 0, Clock(0))


@pytest.mark.parametrize("name", golden.SETS)
def test_the_ids_of_a_java_client_hold_the_time_of_sending(name: str) -> None:
    compared = 0
    for row in golden.expected_records(name):
        if not row.get("topic", "").startswith("TopicBulk"):
            continue
        identity = decode_unique_id(row["properties"]["UNIQ_KEY"])
        # The id is made when the message is prepared, a moment before the born timestamp is taken.
        made = identity.time_ms(row["storeTimestamp"] + 1, UTC)
        assert row["bornTimestamp"] - 5_000 < made <= row["bornTimestamp"]
        assert identity.address == bytes.fromhex("fd000000000000000000000000000002")
        compared += 1
    assert compared > 0 or name == "ipv6"


@pytest.mark.parametrize("count", [1, 2, 15, 16, 100])
@pytest.mark.parametrize("host", ["127.0.0.1:10911", "[::1]:10911"])
def test_the_ids_of_a_batch_are_those_of_its_messages(host: str, count: int) -> None:
    offsets = [number * 0x1234567890AB for number in range(count)]
    joined = ",".join(encode_offset_id(host_bytes(host), offset) for offset in offsets)
    assert join_offset_ids(host_bytes(host), offsets) == joined
