"""The keyword types of clients and the dataclasses that hold their values have the same fields."""

from __future__ import annotations

import dataclasses
import datetime
import re
from typing import Any

import numpy as np
import pytest

from orbitmq import (
    Consumer,
    ConsumeResult,
    InvalidOptionError,
    LitePullConsumer,
    Message,
    Producer,
    SimpleConsumer,
)
from orbitmq.aio import Producer as AsyncProducer
from orbitmq.client.config import ClientConfig, ClientOptions
from orbitmq.client.lite_pull.config import LitePullConfig, LitePullOptions
from orbitmq.client.producer.config import ProducerConfig, ProducerOptions
from orbitmq.client.push.config import ConsumerConfig, ConsumerOptions
from orbitmq.client.simple.config import SimpleConfig, SimpleOptions
from orbitmq.protocol.bodies import ConsumeFromWhere


@pytest.mark.parametrize(
    ("config", "options", "not_keywords"),
    [
        (ClientConfig, ClientOptions, {"name_servers"}),
        (ProducerConfig, ProducerOptions, {"group"}),
        (ConsumerConfig, ConsumerOptions, set()),
        (LitePullConfig, LitePullOptions, set()),
        (SimpleConfig, SimpleOptions, set()),
    ],
)
def test_every_field_of_a_config_is_a_keyword_and_every_keyword_a_field(
    config: Any, options: Any, not_keywords: set[str]
) -> None:
    inherited = set() if options is ClientOptions else set(ClientOptions.__annotations__)
    keywords = set(options.__annotations__) - inherited
    assert {field.name for field in dataclasses.fields(config) if field.init} - not_keywords == keywords


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (ClientConfig, ClientOptions),
        (ProducerConfig, ProducerOptions),
        (LitePullConfig, LitePullOptions),
        (SimpleConfig, SimpleOptions),
    ],
)
def test_keywords_have_the_types_of_their_fields(config: Any, options: Any) -> None:
    types = {field.name: field.type for field in dataclasses.fields(config)}
    given = {
        name: getattr(annotation, "__forward_arg__", annotation)
        for kind in reversed(options.__mro__[:-1] or (options,))
        for name, annotation in getattr(kind, "__annotations__", {}).items()
    } or {name: getattr(kind, "__forward_arg__", kind) for name, kind in options.__annotations__.items()}
    inherited = set() if options is ClientOptions else set(ClientOptions.__annotations__)
    own = {name: kind for name, kind in given.items() if name not in inherited}
    assert own == {name: types[name] for name in own}


@pytest.mark.parametrize(
    ("client", "option", "sentence"),
    [
        (Producer, {"send_msg_timeout": "5"}, "send_msg_timeout must be a number, not str: '5'"),
        (Producer, {"send_msg_timeout": None}, "send_msg_timeout must be a number, not NoneType"),
        (Producer, {"retry_times_when_send_failed": 1.5}, "must be a whole number, not float"),
        (Producer, {"retry_times_when_send_failed": True}, "must be a whole number, not bool"),
        (Producer, {"auto_batch": "yes"}, "auto_batch must be True or False, not str"),
        (Producer, {"topics": "orders"}, "topics must be a list or tuple, not str"),
        (Producer, {"middleware": 3}, "middleware must be a list or tuple, not int"),
        (Producer, {"serializer": 3}, "serializer must be a serializer"),
        (Producer, {"namespace": 3}, "namespace must be text, not int"),
        (Producer, {"name_servers": 9876}, 'name servers are "host:port", several'),
        (Producer, {"name_servers": "localhost"}, "'localhost' is not host:port"),
        (Producer, {"send_message_timeout": 3}, "did you mean send_msg_timeout?"),
        (Producer, {"tls": True}, "tls must be an orbitmq.remoting.ClientTls or None, not bool"),
        (Producer, {"timeout": 3}, "did you mean send_msg_timeout or api_timeout?"),
        (Consumer, {"auto_offset_reset": "earliest"}, "did you mean start_from?"),
        (Consumer, {"consume_thread_max": "5"}, "consume_thread_max must be a whole number, not str"),
        (Consumer, {"orderly": "no"}, "orderly must be True or False"),
        (Consumer, {"topic_levels": 3}, "topic_levels must be a mapping or None, not int"),
        (Consumer, {"allocate_message_queue_strategy": 3}, "must be an allocation strategy"),
        (Consumer, {"consume_timestamp": [1]}, "must be text or a number or a datetime or None, not list"),
        (Consumer, {"start_from": "begin"}, 'start_from is "earliest", "latest", a datetime'),
        (Consumer, {"start_from": "latest", "consume_timestamp": 5}, "give start_from, or consume_from_where"),
        (LitePullConsumer, {"pull_batch_size": "5"}, "pull_batch_size must be a whole number"),
        (LitePullConsumer, {"start_from": "begin"}, 'start_from is "earliest"'),
        (SimpleConsumer, {"max_messages": "5"}, "max_messages must be a whole number"),
        (SimpleConsumer, {"start_from": "now"}, 'start_from of a simple consumer is "earliest" or "latest"'),
    ],
)
def test_a_wrong_option_is_a_value_error_with_what_it_must_be(
    client: Any, option: dict[str, Any], sentence: str
) -> None:
    group = {} if client is Producer else {"group": "g"}
    with pytest.raises(ValueError, match=re.escape(sentence)) as refused:
        client(**{"name_servers": "127.0.0.1:1", **group, **option})
    assert isinstance(refused.value, InvalidOptionError)


def test_numbers_of_other_libraries_are_numbers() -> None:
    options: dict[str, Any] = {"send_msg_timeout": np.float32(1.5), "max_message_size": np.int64(5)}
    producer = AsyncProducer("127.0.0.1:1", **options)
    assert (producer.config.send_msg_timeout, producer.config.max_message_size) == (1.5, 5)


def test_a_consumer_starts_where_start_from_says() -> None:
    moment = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
    for given, where in (
        ("earliest", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET),
        ("latest", ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET),
        (moment, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP),
        (moment.timestamp(), ConsumeFromWhere.CONSUME_FROM_TIMESTAMP),
    ):
        for config in (ConsumerConfig(start_from=given), LitePullConfig(start_from=given).shared):
            assert config.consume_from_where is where
            if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP:
                assert config.start_timestamp_ms(0) == moment.timestamp() * 1000
    assert not SimpleConfig(start_from="latest").consume_from_first
    assert SimpleConfig(start_from="earliest").consume_from_first


@pytest.mark.parametrize(("seconds", "level"), [(0, 1), (1, 1), (1.5, 2), (30, 4), (31, 5), (3601, 18), (7200, 18)])
def test_a_retry_delay_in_seconds_is_rounded_up_to_a_level(seconds: float, level: int) -> None:
    result = ConsumeResult.later(delay=seconds)
    assert (result.succeeded, result.delay_level, result.suspend) == (False, level, seconds)


def test_a_retry_delay_has_a_limit_and_one_form() -> None:
    for wrong in ({"delay": 7201}, {"delay": -1}, {"delay": 5, "delay_level": 3}, {"delay": 5, "suspend": 1.0}):
        with pytest.raises(ValueError, match="delay"):
            ConsumeResult.later(**wrong)
    assert ConsumeResult.dead_letter().delay_level == -1


def test_an_unknown_keyword_of_a_message_is_named() -> None:
    with pytest.raises(TypeError, match=r"Message\(\) got an unexpected keyword argument 'tag'"):
        Message("t", "x", tag="a")  # type: ignore[call-arg]
