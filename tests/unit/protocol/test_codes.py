"""The numbers and names of the protocol, where they have rules or must agree with each other."""

from __future__ import annotations

import pytest

from orbitmq.protocol import names
from orbitmq.protocol.codes import LanguageCode, RequestCode, ResponseCode
from orbitmq.protocol.message import flags, property_names
from orbitmq.protocol.versions import CURRENT_VERSION, version_name, version_ordinal
from support.wire_captures import all_captured


def test_every_captured_request_code_has_a_name_but_those_made_up_to_be_unknown() -> None:
    unknown = {frame.code for frame in all_captured() if not frame.is_response} - set(RequestCode)

    assert unknown == {7777}


def test_every_captured_response_code_has_a_name() -> None:
    assert {frame.code for frame in all_captured() if frame.is_response} <= set(ResponseCode)


def test_only_pop_and_lite_codes_do_not_fit_a_binary_header() -> None:
    assert {code for code in RequestCode if code > 32767} == set(range(200050, 200057)) | set(
        range(200070, 200080)
    ) | {200151}


def test_languages_are_numbered_without_gaps() -> None:
    assert [language.value for language in LanguageCode] == list(range(14))


@pytest.mark.parametrize(
    ("release", "ordinal"),
    [
        ((4, 0, 0), 213),
        ((4, 5, 2), 317),
        ((4, 6, 0), 333),
        ((4, 9, 0), 393),
        ((4, 9, 4), 401),
        ((4, 9, 8), 409),
        ((5, 0, 0), 413),
        ((5, 1, 4), 441),
        ((5, 3, 3), 479),
        ((5, 5, 0), 513),
    ],
)
def test_a_release_has_its_version_number(release: tuple[int, int, int], ordinal: int) -> None:
    assert version_ordinal(*release) == ordinal
    assert version_name(ordinal) == "V{}_{}_{}".format(*release)
    assert version_ordinal(*release, snapshot=True) == ordinal - 1
    assert version_name(ordinal - 1) == "V{}_{}_{}_SNAPSHOT".format(*release)


@pytest.mark.parametrize(
    ("ordinal", "name"),
    [
        (0, "V3_0_0_SNAPSHOT"),
        (14, "V3_0_0_BETA9"),
        (15, "V3_0_0_FINAL"),
        (16, "V3_0_1_SNAPSHOT"),
        (45, "V3_0_15"),
        (46, "V3_1_0_SNAPSHOT"),
        (85, "V3_2_9"),
        (86, "V3_3_1_SNAPSHOT"),
        (121, "V3_4_9"),
        (211, "V3_9_9"),
        (612, "HIGHER_VERSION"),
        (9999, "HIGHER_VERSION"),
    ],
)
def test_old_and_future_version_numbers_have_the_names_that_tools_print(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name


def test_a_negative_version_number_has_no_name() -> None:
    with pytest.raises(ValueError, match="-1"):
        version_name(-1)


@pytest.mark.parametrize("release", [(3, 4, 9), (4, 10, 0), (5, 0, 10), (5, -1, 0)])
def test_a_release_outside_the_regular_numbering_has_no_number(release: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no version number"):
        version_ordinal(*release)


def test_the_version_we_claim_is_the_one_the_captures_were_made_with() -> None:
    claimed = {frame.header["version"] for frame in all_captured() if frame.is_response and not frame.to_server}

    assert claimed == {CURRENT_VERSION}


def test_permissions_print_as_the_tools_print_them() -> None:
    assert flags.perm_text(flags.PERM_READ_WRITE) == "RW-"
    assert flags.perm_text(flags.PERM_READ | flags.PERM_WRITE | flags.PERM_INHERIT) == "RWX"
    assert flags.perm_text(flags.PERM_READ) == "R--"
    assert flags.perm_text(0) == "---"


def test_the_bits_of_a_message_sys_flag_do_not_overlap() -> None:
    parts = [
        flags.COMPRESSED,
        flags.MULTI_TAGS,
        flags.TRANSACTION_MASK,
        flags.BORN_HOST_V6,
        flags.STORE_HOST_V6,
        flags.NEED_UNWRAP,
        flags.INNER_BATCH,
        flags.COMPRESSION_MASK,
    ]

    assert sum(parts) == 0x7FF


def test_property_names_are_told_apart_and_hold_no_separator() -> None:
    constants = {
        name: value
        for name, value in vars(property_names).items()
        if name.isupper() and isinstance(value, str) and not name.endswith("SEPARATOR")
    }

    assert len(set(constants.values())) == len(constants)
    assert not any(mark in value for value in constants.values() for mark in "\x01\x02")


def test_topics_closed_to_clients_are_system_topics() -> None:
    assert names.TOPICS_CLOSED_TO_CLIENTS < names.SYSTEM_TOPICS
    assert set(names.GROUPS_OF_A_NEW_BROKER) < names.SYSTEM_GROUPS


@pytest.mark.parametrize(
    ("topic", "is_system"),
    [("TBW102", True), ("rmq_sys_REVIVE_LOG_DefaultCluster", True), ("orders", False), ("%RETRY%g", False)],
)
def test_a_system_topic_is_known_by_name_or_prefix(topic: str, is_system: bool) -> None:
    assert names.is_system_topic(topic) is is_system


@pytest.mark.parametrize(
    ("group", "is_system"), [("TOOLS_CONSUMER", True), ("CID_RMQ_SYS_X", True), ("my_group", False)]
)
def test_a_system_group_is_known_by_name_or_prefix(group: str, is_system: bool) -> None:
    assert names.is_system_group(group) is is_system
