"""Every body against the same class in Java, and against what went over the wire.

``data/bodies/java_bodies.jsonl.gz`` holds, for each class of RocketMQ 5.5.0, the JSON of a new instance and of one
with every field filled, as RocketMQ's own serializer wrote them.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from typing import Any

import pytest

from orbitmq.protocol import bodies, fastjson
from orbitmq.protocol.bodies import (
    BatchAckMessageRequestBody,
    Body,
    BrokerStatsData,
    CheckClientRequestBody,
    ClusterInfo,
    ConsumerConnection,
    ConsumerOffsetSerializeWrapper,
    ConsumerRunningInfo,
    ConsumeStats,
    ConsumeStatsList,
    DataVersion,
    DelayOffsetSerializeWrapper,
    GetBrokerMemberGroupResponseBody,
    GetConsumerListByGroupResponseBody,
    GroupList,
    HARuntimeInfo,
    HeartbeatData,
    KVTable,
    LockBatchRequestBody,
    LockBatchResponseBody,
    MessageRequestModeSerializeWrapper,
    ProducerConnection,
    ProducerTableInfo,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    QueryConsumeQueueResponseBody,
    RegisterBrokerBody,
    ResetOffsetBody,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TimerMetricsSerializeWrapper,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigAndQueueMapping,
    TopicList,
    TopicQueueMappingDetail,
    TopicRouteData,
    TopicStatsTable,
    UnlockBatchRequestBody,
    UserInfo,
    is_compressed,
)
from orbitmq.store import config_tables as config_json
from support import wire_captures
from support.paths import DATA

VECTORS = str(DATA / "bodies")

# Shapes of the bodies that were captured, by request code.
REQUESTS: dict[int, type[Body]] = {
    34: HeartbeatData,
    41: LockBatchRequestBody,
    42: UnlockBatchRequestBody,
    46: CheckClientRequestBody,
    103: RegisterBrokerBody,
    200: SubscriptionGroupConfig,
    322: DataVersion,
    400: QueryAssignmentRequestBody,
    401: SetMessageRequestModeRequestBody,
    513: TopicQueueMappingDetail,
    3001: UserInfo,
    200151: BatchAckMessageRequestBody,
}
RESPONSES: dict[int, type[Body]] = {
    21: TopicConfigAndMappingSerializeWrapper,
    28: KVTable,
    38: GetConsumerListByGroupResponseBody,
    41: LockBatchResponseBody,
    43: ConsumerOffsetSerializeWrapper,
    45: DelayOffsetSerializeWrapper,
    61: TimerMetricsSerializeWrapper,
    103: KVTable,
    105: TopicRouteData,
    106: ClusterInfo,
    201: SubscriptionGroupWrapper,
    202: TopicStatsTable,
    203: ConsumerConnection,
    204: ProducerConnection,
    206: TopicList,
    208: ConsumeStats,
    222: ResetOffsetBody,
    300: GroupList,
    305: TopicList,
    307: ConsumerRunningInfo,
    315: BrokerStatsData,
    317: ConsumeStatsList,
    321: QueryConsumeQueueResponseBody,
    328: ProducerTableInfo,
    351: TopicConfigAndQueueMapping,
    352: SubscriptionGroupConfig,
    400: QueryAssignmentResponseBody,
    402: MessageRequestModeSerializeWrapper,
    901: GetBrokerMemberGroupResponseBody,
    907: HARuntimeInfo,
}
V5_5_0 = 513
SEND_MESSAGE_V2 = 310
"""Its bodies are messages; some happen to be JSON."""
GET_COLD_DATA_FLOW_CTR_INFO = 2003
"""Answered with text for people."""


def java_bodies() -> list[dict[str, Any]]:
    with gzip.open(os.path.join(VECTORS, "java_bodies.jsonl.gz"), "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def body_named(name: str) -> type[Body]:
    found: type[Body] = getattr(bodies, name, None) or getattr(config_json, name)
    return found


@pytest.mark.parametrize("vector", java_bodies(), ids=lambda vector: vector["body"])
def test_a_filled_body_is_written_as_java_writes_it(vector: dict[str, Any]) -> None:
    body = body_named(vector["body"]).decode(vector["sample"])
    assert body.encode().decode() == vector["sample"]
    assert body.encode(pretty=True).decode() == vector["samplePretty"]
    assert body.encode(browser_compatible=True).decode() == vector["sampleBrowser"]
    for form in ("samplePretty", "sampleBrowser"):
        assert body_named(vector["body"]).decode(vector[form]) == body


@pytest.mark.parametrize(
    "vector", [vector for vector in java_bodies() if "default" in vector], ids=lambda vector: vector["body"]
)
def test_a_new_body_has_the_values_of_a_new_one_in_java(vector: dict[str, Any]) -> None:
    # Java stamps some with the time at which they are made.
    in_java = fastjson.loads(re.sub(r'("(?:timestamp|timeStamp|subVersion)":)[0-9]+', r"\g<1>0", vector["default"]))
    here = fastjson.loads(body_named(vector["body"])().encode())
    in_java = {name: value for name, value in in_java.items() if not name.endswith("Str")}
    assert {name: value for name, value in here.items() if name in in_java} == in_java
    # Names and tables that are null in Java are empty here.
    assert all(value in ("", [], {}) for name, value in here.items() if name not in in_java)


def test_java_knows_every_body() -> None:
    known = {vector["body"] for vector in java_bodies()}
    ours = {name for name in bodies.__all__ if isinstance(getattr(bodies, name), type)}
    ours = {name for name in ours if issubclass(getattr(bodies, name), Body)}
    # The first is the base; the second is a broker's own table, the third a part of GetLiteTopicInfoResponseBody.
    assert ours - known == {"Body", "LmqConsumerOffsetSerializeWrapper", "ClientGroup"}


@pytest.mark.parametrize("scenario", wire_captures.SCENARIOS)
def test_captured_bodies_are_understood_and_written_back(scenario: str) -> None:
    for frame in wire_captures.captured(scenario):
        data = frame.frame[2]
        if not data or data[:1] not in b"{[":
            continue
        plain = fastjson.loads(data)
        code = frame.request_code if frame.is_response else frame.code
        if code in (SEND_MESSAGE_V2, GET_COLD_DATA_FLOW_CTR_INFO):
            continue
        assert code is not None
        body = (RESPONSES if frame.is_response else REQUESTS)[code].decode(data)
        written = body.encode()
        assert type(body).decode(written) == body, frame
        # The Node client calls itself Java, but not 5.5.0.
        if frame.header["language"] == "JAVA" and frame.header["version"] == V5_5_0 and data != b"{}":
            # A name server answers 105 in the standard form, or the plain one to old clients.
            assert data in (written, body.encode(browser_compatible=True, sort_maps=True)), frame
        else:
            assert_says_no_less(plain, fastjson.loads(written), str(frame))


def assert_says_no_less(sent: Any, written: Any, where: str) -> None:
    """Everything that was sent is there; what was left out may have been added with its default."""
    if isinstance(sent, dict):
        for name, value in sent.items():
            assert name in written, f"{where}: {name} was lost"
            assert_says_no_less(value, written[name], where)
    elif isinstance(sent, list):
        assert len(sent) == len(written), where
        for one, other in zip(sent, written, strict=True):
            assert_says_no_less(one, other, where)
    else:
        assert sent == written, where


def test_a_captured_compressed_registration_is_written_back_byte_for_byte() -> None:
    frames = wire_captures.captured("broker_register_binary_compressed")
    registrations = [frame.frame[2] for frame in frames if frame.code == 103 and is_compressed(frame.frame[2])]
    assert registrations
    for data in registrations:
        body = RegisterBrokerBody.decode_compressed(data)
        topics = body.topic_config_serialize_wrapper.topic_config_table
        assert len(topics) == 28
        assert topics["T_delay"].attributes == {"message.type": "DELAY"}
        assert topics["BenchmarkTest"].read_queue_nums == 1024
        assert body.encode_compressed() == data
