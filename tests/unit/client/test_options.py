"""The keyword types of clients and the dataclasses that hold their values have the same fields."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from orbitmq.client.config import ClientConfig, ClientOptions
from orbitmq.client.lite_pull.config import LitePullConfig, LitePullOptions
from orbitmq.client.producer.config import ProducerConfig, ProducerOptions
from orbitmq.client.push.config import ConsumerConfig, ConsumerOptions
from orbitmq.client.simple.config import SimpleConfig, SimpleOptions


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
    assert {field.name for field in dataclasses.fields(config)} - not_keywords == keywords


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
