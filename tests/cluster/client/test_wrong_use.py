"""Mistakes of newcomers: each ends in one clear sentence, at once, and not in lost messages."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import (
    Consumer,
    InvalidMessageError,
    LitePullConsumer,
    Message,
    NoNameServerError,
    OrbitMQError,
    Producer,
    aio,
)

if TYPE_CHECKING:
    from orbitmq.testing import ThreadCluster


@dataclasses.dataclass
class Order:
    id: int


def test_a_decorator_without_its_topic_is_refused() -> None:
    """It would replace the function, and the consumer would never call it."""
    consumer: Any = Consumer("127.0.0.1:1", group="billing")
    with pytest.raises(InvalidMessageError, match=r'write @consumer\.on\("orders"\)'):
        consumer.on(lambda message: None)


def test_a_handler_without_parameters_is_refused() -> None:
    consumer: Any = Consumer("127.0.0.1:1", group="billing")
    with pytest.raises(InvalidMessageError, match="has no parameters: one for the message"):
        consumer.subscribe("orders", lambda: None)


def test_a_single_message_is_not_a_batch(orbitmq: ThreadCluster) -> None:
    message: Any = Message("orders", "1")
    with Producer(orbitmq.name_server) as producer, pytest.raises(InvalidMessageError, match="a list of messages"):
        producer.send_batch(message)


def test_a_poll_without_a_subscription_is_refused(orbitmq: ThreadCluster) -> None:
    refused = pytest.raises(InvalidMessageError, match=r"subscribe\(\) to a topic, or assign\(\)")
    with LitePullConsumer(orbitmq.name_server, group="audit") as consumer, refused:
        consumer.poll()


@pytest.mark.parametrize("orderly", [False, True])
def test_a_body_that_cannot_be_decoded_is_one_line_in_the_log(
    orbitmq: ThreadCluster, orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The error says what is wrong; a traceback of the client would hide it."""
    caplog.set_level(logging.WARNING, "orbitmq.client")
    consumer = Consumer(
        orbitmq.name_server, group="billing", start_from="earliest", orderly=orderly, max_reconsume_times=0
    )

    @consumer.on("orders")
    def handle(order: Order) -> None: ...

    orbitmq.producer().send(Message("orders", "{broken"))
    with consumer:
        orbitmq.wait_until_consumed("billing")
    (record,) = [record for record in caplog.records if "failed" in record.message]
    assert "the body is not" in record.message
    assert record.exc_info is None


async def test_a_client_without_tls_learns_that_the_server_may_require_it() -> None:
    """A server that requires TLS closes the connection at the first byte."""

    async def close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.close()

    server = await asyncio.start_server(close, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        async with aio.Producer(f"127.0.0.1:{port}") as producer:
            with pytest.raises(NoNameServerError, match="does it require TLS, for which tls= or ORBITMQ_TLS_CA"):
                await producer.send(Message("orders", "1"))


SECURE = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": '{"username":"admin","password":"secret-of-admin"}',
}


@pytest.mark.orbitmq(settings=SECURE)
@pytest.mark.parametrize(
    ("credentials", "sentence"),
    [
        ({}, "username cannot be null: give access_key= and secret_key="),
        ({"access_key": "admin", "secret_key": "wrong"}, "the secret key is not that of this user"),
        ({"access_key": "nobody", "secret_key": "wrong"}, "User:nobody is not found"),
    ],
)
def test_wrong_credentials_are_named(
    orbitmq: ThreadCluster, credentials: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ORBITMQ_ACCESS_KEY", "ORBITMQ_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    options: Any = credentials
    refusal = pytest.raises(OrbitMQError, match=sentence)
    with Producer(orbitmq.name_server, **options) as producer, refusal as refused:
        producer.send(Message("orders", "1"))
    assert "the broker the name server" not in str(refused.value)
