"""Captured requests of clients and tools to Apache's broker are sent again here, and answered the same.

Every captured scenario is played to a broker of its own, which has the settings of the captured one and is made to
know what that one knew. Compared are codes, remarks, header fields and bodies, message by message; what is compared
by its name only is in ``broker_comparison``, and what is left out altogether in ``broker_replay``.
"""

from __future__ import annotations

from collections import Counter

import pytest

from orbitmq.broker.long_polling import table
from orbitmq.protocol.codes import ResponseCode
from orbitmq.protocol.message.record import iter_records
from support.broker.capture_replay import NOT_SERVED, live
from support.broker.captured_broker import frames
from support.broker.response_diff import differences, record_differences
from support.wire_captures import DIRECTORY, LIVES

SCENARIOS = [scenario for life in LIVES for scenario in life if frames(scenario)]

NO_BATCH = "a body that is no batch is refused as what it is, and not as a failure that is worth another try"
NOT_SUBSCRIBED = "groups that have neither clients nor offsets are no consumers of a topic"

EXCEPTED = {
    "java_json_21_errors_send:11": NO_BATCH,
    "java_mixed_jsonclient_binaryserver:11": NO_BATCH,
    "java_json_20_errors:85": "a pull whose expression does not compile is refused, and not answered unfiltered",
    "java_json_20_errors:167": "for that the pull before did not move the group's offset",
    "java_json_18_query_view:33": "at an offset where no record begins there is no message",
    "admin:148": NOT_SUBSCRIBED,
    "admin:196": NOT_SUBSCRIBED,
    "admin2:1180": "static topics are not served",
    "ha:37": "a consumer that says it is at -1 has not said where it is; that is not kept",
}
"""Answers that are not the same, and why. Each of them must differ, or it has no place here."""


@pytest.fixture(autouse=True)
def _time_that_passes_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is moved by hand; what looks at it has to look often."""
    monkeypatch.setattr(table, "SWEEP_SECONDS", 0.001)


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_every_request_is_answered_as_apache_answers_it(scenario: str) -> None:
    lived = await live(scenario)
    found = {str(one): list(differences(one, lived.kept)) for one in lived.exchanges.values()}
    excepted = {name for name in EXCEPTED if name.startswith(f"{scenario}:")}
    assert {name: different for name, different in found.items() if different and name not in excepted} == {}
    assert {name for name in excepted if not found[name]} == set(), "these are the same by now"
    assert lived.unwanted == []
    # What the broker tells its clients unasked: that their group has changed, and what it wants to know of them.
    assert Counter(lived.notified_here) == Counter(lived.notified_there)
    ours, theirs = (
        [next(iter_records(one.body or b"")) for one in questions]
        for questions in (lived.questions_here, lived.questions_there)
    )
    assert list(record_differences(ours, theirs, {record.physical_offset for record in theirs})) == []
    asked = [one for one in frames(scenario) if one.to_broker and not one.command.is_response]
    assert len(lived.exchanges) + len(lived.left_out) == len(asked)
    assert lived.exchanges


def test_every_capture_with_a_broker_in_it_is_played() -> None:
    everything = {path.name.removesuffix(".jsonl.gz") for path in DIRECTORY.glob("*.jsonl.gz")}
    assert everything - {scenario for life in LIVES for scenario in life} == {"ha_stream"}
    without = {scenario for life in LIVES for scenario in life} - set(SCENARIOS)
    assert without == {
        *("broker_register_json", "broker_unregister_json"),
        *("broker_register_binary", "broker_register_binary_compressed"),
        *("java_json_01_producer_start_route", "java_binary_01_producer_start_route"),
    }


def test_little_is_left_out_or_excepted() -> None:
    requests = [
        one for scenario in SCENARIOS for one in frames(scenario) if one.to_broker and not one.command.is_response
    ]
    left_out = [one for one in requests if one.command.code in NOT_SERVED]
    assert len(requests) - len(left_out) >= 2098
    assert len(left_out) <= 39
    assert len(EXCEPTED) <= 9
    answers = [one.answer for one in requests if one.answer is not None and one not in left_out]
    assert len(answers) > 1640
    assert len([answer for answer in answers if answer.code != ResponseCode.SUCCESS]) > 250
