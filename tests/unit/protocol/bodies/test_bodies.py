"""Bodies: typed from JSON and back, what is forgiven, and what is refused with the name of the property."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from orbitmq.protocol import bodies
from orbitmq.protocol.bodies import (
    BatchAck,
    BatchAckMessageRequestBody,
    Body,
    BrokerData,
    ClusterInfo,
    ConsumeFromWhere,
    ConsumerData,
    ConsumerOffsetSerializeWrapper,
    ConsumeStats,
    ConsumeType,
    CustomizedRetryPolicy,
    DataVersion,
    GroupRetryPolicy,
    HeartbeatData,
    MessageModel,
    MessageQueue,
    OffsetWrapper,
    PopCheckPoint,
    ProducerData,
    QueryAssignmentResponseBody,
    ResetOffsetBody,
    SubscriptionData,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicRouteData,
    TopicStatsTable,
)
from orbitmq.protocol.errors import ProtocolError


def all_bodies() -> list[type[Body]]:
    found = [getattr(bodies, name) for name in bodies.__all__]
    return [body for body in found if isinstance(body, type) and issubclass(body, Body) and body is not Body]


def test_a_heartbeat_becomes_typed() -> None:
    heartbeat = HeartbeatData.decode(
        b'{"clientID":"ip@pid","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",'
        b'"consumeType":"CONSUME_PASSIVELY","groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":'
        b'[{"classFilterMode":false,"codeSet":[97],"expressionType":"TAG","subString":"a||b","subVersion":1,'
        b'"tagsSet":["a"],"topic":"t"}],"unitMode":false}],"heartbeatFingerprint":0,'
        b'"producerDataSet":[{"groupName":"pg"}],"withoutSub":false}'
    )
    assert heartbeat == HeartbeatData(
        client_id="ip@pid",
        producer_data_set=[ProducerData("pg")],
        consumer_data_set=[
            ConsumerData(
                "g",
                ConsumeType.CONSUME_PASSIVELY,
                MessageModel.CLUSTERING,
                ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
                [SubscriptionData("t", "a||b", ["a"], [97], 1)],
            )
        ],
    )


def test_queues_may_be_keys_in_every_way_they_are_written() -> None:
    queue = MessageQueue("t", "b", 3)
    raw = '{"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:5}}'
    assert ResetOffsetBody.decode(raw).offset_table == {queue: 5}
    as_text = '{"offsetTable":{"{\\"brokerName\\":\\"b\\",\\"queueId\\":3,\\"topic\\":\\"t\\"}":5}}'
    assert ResetOffsetBody.decode(as_text).offset_table == {queue: 5}
    assert ResetOffsetBody({queue: 5}).encode() == raw.encode()
    stats = ConsumeStats({queue: OffsetWrapper(broker_offset=9)}, consume_tps=1)
    assert stats.encode() == (
        b'{"consumeTps":1.0,"offsetTable":{{"brokerName":"b","queueId":3,"topic":"t"}:'
        b'{"brokerOffset":9,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}'
    )


def test_queues_sort_by_topic_then_broker_then_number() -> None:
    queues = [
        MessageQueue("t", "b", 10),
        MessageQueue("t", "b", 9),
        MessageQueue("s", "z", 1),
        MessageQueue("t", "a"),
    ]
    assert sorted(queues) == [queues[2], queues[3], queues[1], queues[0]]


@pytest.mark.parametrize("keys", ["0", '"0"', "0L"])
def test_number_keys_come_quoted_and_unquoted(keys: str) -> None:
    assert BrokerData.decode(f'{{"brokerAddrs":{{{keys}:"a"}}}}').broker_addrs == {0: "a"}


def test_a_route_has_its_standard_form() -> None:
    route = TopicRouteData(broker_datas=[BrokerData("c", "b", {1: "y", 0: "x"})])
    assert route.encode() == (
        b'{"brokerDatas":[{"brokerAddrs":{1:"y",0:"x"},"brokerName":"b","cluster":"c","enableActingMaster":false}],'
        b'"filterServerTable":{},"queueDatas":[]}'
    )
    assert b'{"0":"x","1":"y"}' in route.encode(browser_compatible=True, sort_maps=True)


def test_what_is_absent_or_null_has_the_default() -> None:
    assert TopicConfig.decode("{}") == TopicConfig(topic_name="", read_queue_nums=16, write_queue_nums=16, perm=6)
    assert TopicConfig.decode('{"perm":null,"attributes":null,"topicFilterType":null}') == TopicConfig()
    assert TopicConfigSerializeWrapper.decode('{"topicConfigTable":{"t":null}}') == TopicConfigSerializeWrapper()
    assert SubscriptionData.decode('{"tagsSet":["a",null]}').tags_set == ["a"]
    assert QueryAssignmentResponseBody.decode("{}").message_queue_assignments is None
    assert QueryAssignmentResponseBody.decode('{"messageQueueAssignments":[]}').message_queue_assignments == []


def test_what_is_unknown_is_passed_over() -> None:
    assert DataVersion.decode('{"counter":1,"shards":{"a":[{}]},7:8,{"x":1}:2}') == DataVersion(counter=1)
    assert TopicConfig.decode('{"topicFilterType":"THREE_TAGS"}').topic_filter_type is TopicFilterType.SINGLE_TAG
    assert ConsumerData.decode('{"messageModel":"WHISPERING"}').message_model is None


def test_numbers_and_booleans_may_come_as_text_and_text_as_numbers() -> None:
    topic = TopicConfig.decode(
        '{"topicName":17,"perm":"6","order":"true","readQueueNums":4.0,"attributes":{"a":1}}'
    )
    assert topic == TopicConfig("17", 4, 16, 6, order=True, attributes={"a": "1"})
    assert TopicConfig.decode('{"order":1,"topicName":true}') == TopicConfig("true", order=True)
    assert TopicStatsTable.decode('{"topicPutTps":"1.5"}').topic_put_tps == 1.5
    assert TopicStatsTable.decode('{"topicPutTps":2}').topic_put_tps == 2.0
    assert ConsumerData.decode('{"messageModel":1}').message_model is MessageModel.CLUSTERING


@pytest.mark.parametrize(
    ("body", "text", "complaint"),
    [
        (TopicConfig, "[]", "TopicConfig: expected an object, found list"),
        (TopicConfig, "17", "TopicConfig: expected an object, found 17"),
        (TopicConfig, '{"perm":"x"}', "TopicConfig: perm: expected an integer, found 'x'"),
        (TopicConfig, '{"perm":1.5}', "TopicConfig: perm: expected an integer, found 1.5"),
        (TopicConfig, '{"perm":true}', "TopicConfig: perm: expected an integer, found True"),
        (TopicConfig, '{"perm":9223372036854775808}', "TopicConfig: perm: expected an integer"),
        (TopicConfig, '{"perm":99999999999999999999}', "TopicConfig: perm: expected an integer"),
        (TopicConfig, '{"perm":"' + "9" * 5000 + '"}', "TopicConfig: perm: expected an integer"),
        (TopicConfig, '{"perm":"²"}', "TopicConfig: perm: expected an integer"),
        (TopicConfig, '{"perm":"--1"}', "TopicConfig: perm: expected an integer"),
        (TopicConfig, '{"perm":"-"}', "TopicConfig: perm: expected an integer"),
        (TopicConfig, '{"perm":NaN}', "TopicConfig: perm: expected an integer"),
        (TopicConfig, '{"order":2}', "TopicConfig: order: expected true or false, found 2"),
        (TopicConfig, '{"order":"yes"}', "TopicConfig: order: expected true or false, found 'yes'"),
        (TopicConfig, '{"topicName":{}}', "TopicConfig: topicName: expected a string, found dict"),
        (TopicConfig, '{"topicFilterType":5}', "TopicConfig: topicFilterType: expected a name of TopicFilterType"),
        (TopicConfig, '{"attributes":[]}', "TopicConfig: attributes: expected an object, found list"),
        (TopicConfig, '{"attributes":{"a":[]}}', "TopicConfig: attributes: a: expected a string, found list"),
        (TopicConfig, '{"attributes":{{"a":1}:"x"}}', "TopicConfig: attributes: .*expected a string"),
        (
            TopicStatsTable,
            '{"topicPutTps":"fast"}',
            "TopicStatsTable: topicPutTps: expected a number",
        ),
        (BrokerData, '{"brokerAddrs":{"x":"a"}}', "BrokerData: brokerAddrs: x: expected an integer, found 'x'"),
        (ResetOffsetBody, '{"offsetTable":{"x":1}}', "ResetOffsetBody: offsetTable: x: not JSON"),
        (ResetOffsetBody, '{"offsetTable":{5:1}}', "ResetOffsetBody: offsetTable: 5: expected an object, found 5"),
        (ResetOffsetBody, '{"offsetTable":{{"queueId":"x"}:1}}', "queueId: expected an integer, found 'x'"),
        (
            HeartbeatData,
            '{"consumerDataSet":[{"subscriptionDataSet":[{"codeSet":["x"]}]}]}',
            r"HeartbeatData: consumerDataSet: \[\]: subscriptionDataSet: \[\]: codeSet: \[\]: expected an integer",
        ),
        (BatchAck, '{"b":"not base64!"}', "BatchAck: b: expected Base64"),
        (BatchAck, '{"b":"é"}', "BatchAck: b: expected Base64"),
        (BatchAck, '{"b":[300]}', "BatchAck: b: expected bytes"),
        (BatchAck, '{"b":5}', "BatchAck: b: expected an array, found 5"),
        (DataVersion, '{"counter":', "JSON ends too early"),
    ],
)
def test_a_wrong_shape_is_refused_with_the_name_of_the_property(
    body: type[Body], text: str, complaint: str
) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        body.decode(text)


def test_bit_sets_travel_as_base64_of_their_bytes() -> None:
    body = BatchAckMessageRequestBody("b", [BatchAck("g", "t", "0", 100, 1, 2, 3, 4, 1 << 9 | 1)])
    assert body.encode() == (
        b'{"acks":[{"b":"AQI=","c":"g","it":4,"pt":3,"q":1,"r":"0","rq":2,"so":100,"t":"t"}],"brokerName":"b"}'
    )
    assert BatchAckMessageRequestBody.decode(body.encode()) == body
    assert BatchAck.decode('{"b":[1,-2]}').bit_set == 0xFE01
    assert BatchAck.decode('{"b":""}').bit_set == 0
    assert BatchAck(bit_set=0).encode() == b'{"b":"","c":"","it":0,"pt":0,"q":0,"rq":0,"so":0,"t":""}'


def test_long_names_of_short_properties_are_read_too() -> None:
    assert BatchAck.decode('{"consumerGroup":"g","startOffset":5,"bitSet":"AQ=="}') == BatchAck(
        "g", start_offset=5, bit_set=1
    )


def test_derived_properties_are_written_and_not_read() -> None:
    point = PopCheckPoint(pop_time=100, invisible_time=20, queue_offset_diff=(0, 1))
    assert b'"d":[0,1],' in point.encode()
    assert b'"reviveTime":120,' in point.encode()
    assert PopCheckPoint.decode(point.encode().replace(b":120,", b":7,")) == point


def test_arrays_of_numbers_stay_on_one_line() -> None:
    policy = GroupRetryPolicy(customized_retry_policy=CustomizedRetryPolicy((1, 2)))
    config = SubscriptionGroupConfig("g", group_retry_policy=policy, subscription_data_set=[])
    text = config.encode(pretty=True).decode()
    assert '\t\t\t"next":[1,2]\n' in text
    assert '\t"subscriptionDataSet":[\n\t\t\n\t],\n' in text


def test_sets_inside_maps_keep_their_order_and_their_form() -> None:
    text = '{\n\t"groupTopicMap":{\n\t\t"g":[\n\t\t\t"b",\n\t\t\t"a"\n\t\t],\n\t\t"h":[\n\t\t\t\n\t\t]\n\t},'
    text += '\n\t"offsetTable":{}\n}'
    body = ConsumerOffsetSerializeWrapper.decode(text)
    assert body.group_topic_map == {"g": ["b", "a"], "h": []}
    assert body.encode(pretty=True).decode() == text


def test_references_in_bodies_are_resolved() -> None:
    body = ClusterInfo.decode(
        '{"brokerAddrTable":{"a":{"brokerAddrs":{0:"x"},"cluster":"c"},"b":{"$ref":"$.brokerAddrTable.a"}}}'
    )
    assert body.broker_addr_table["a"] == body.broker_addr_table["b"] == BrokerData("c", "", {0: "x"})
    assert body.broker_addr_table["a"] is not body.broker_addr_table["b"]


@pytest.mark.parametrize("body", all_bodies(), ids=lambda body: body.__name__)
def test_every_body_has_a_default_and_shares_nothing_mutable(body: type[Body]) -> None:
    one, other = body.decode("{}"), body()
    assert one == other
    assert not hasattr(one, "__dict__")
    for field in dataclasses.fields(one):  # type: ignore[arg-type]
        value: Any = getattr(one, field.name)
        if isinstance(value, list | dict):
            assert value is not getattr(other, field.name)
