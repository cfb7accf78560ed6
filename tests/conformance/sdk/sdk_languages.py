"""Clients of other languages behind one face, for tests of what they and the Python client make of each other."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from typing import TYPE_CHECKING, Protocol

from conformance.java.java_harness import eventually
from peers.agent import Outgoing
from peers.java_client import JavaProducer
from peers.java_consumers import JavaPushConsumer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from peers.agent import Agent
    from peers.java_client import JavaClient

QUICKLY = 1
"""A delay level."""


@dataclasses.dataclass(frozen=True, slots=True)
class Given:
    """A message as a client handed it to its user. Of the body there is a digest, for Java's tells no more."""

    digest: str
    topic: str
    queue_id: int
    queue_offset: int
    reconsume_times: int
    properties: dict[str, str]


class Take(Protocol):
    """Returns what a consumer was given so far, as soon as that is so many messages."""

    def __call__(self, count: int) -> list[Given]: ...


class Language(Protocol):
    """A client of another language."""

    has_batches: bool

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        sharding: str = "",
    ) -> str:
        """Send a message and return the id that the broker gave it."""

    def send_batch(self, topic: str, bodies: Sequence[bytes]) -> None: ...

    def consuming(
        self, topic: str, group: str, *, orderly: bool = False, failing: bytes | None = None
    ) -> contextlib.AbstractContextManager[Take]:
        """A consumer from the first message on, which always fails with ``failing``."""


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


class Java:
    """Apache's own."""

    has_batches = True

    def __init__(self, jvm: JavaClient) -> None:
        self._jvm = jvm
        self._producer = JavaProducer(jvm, "JavaProducers")

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        sharding: str = "",
    ) -> str:
        told = self._producer.send(
            topic,
            body,
            shard=sharding or None,
            tags=tag or None,
            keys=" ".join(keys) or None,
            properties=dict(properties or {}),
        )
        return told.offset_id

    def send_batch(self, topic: str, bodies: Sequence[bytes]) -> None:
        self._producer.send_batch(topic, [body.decode() for body in bodies])

    @contextlib.contextmanager
    def consuming(
        self, topic: str, group: str, *, orderly: bool = False, failing: bytes | None = None
    ) -> Iterator[Take]:
        failures = 99 if failing else 0
        text = failing.decode() if failing else None
        with JavaPushConsumer(
            self._jvm, group, topic, orderly=orderly, failures=failures, failing=text, delay_level=QUICKLY
        ) as consumer:

            def take(count: int) -> list[Given]:
                found = eventually(consumer.consumed, is_enough=lambda messages: len(messages) >= count)
                return [
                    Given(
                        digest=message.body_sha256,
                        topic=message.topic,
                        queue_id=message.queue_id,
                        queue_offset=message.queue_offset,
                        reconsume_times=message.reconsume_times,
                        properties=message.properties,
                    )
                    for message in found
                ]

            yield take


class Spoken:
    """Those that are told what to do by lines of JSON: Go and Node."""

    def __init__(self, agent: Agent, *, has_batches: bool, selector: str = "") -> None:
        self.has_batches = has_batches
        self._agent = agent
        self._producer = agent.producer("Producer", selector=selector)
        self._consumers = 0

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str = "",
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        sharding: str = "",
    ) -> str:
        message = Outgoing(
            topic=topic, body=body, tag=tag, keys=list(keys), properties=properties or {}, sharding=sharding
        )
        (told,) = self._agent.send(self._producer, [message])
        return told.offset_id

    def send_batch(self, topic: str, bodies: Sequence[bytes]) -> None:
        self._agent.send(self._producer, [Outgoing(topic=topic, body=body) for body in bodies], batch=True)

    @contextlib.contextmanager
    def consuming(
        self, topic: str, group: str, *, orderly: bool = False, failing: bytes | None = None
    ) -> Iterator[Take]:
        self._consumers += 1
        failures = {failing.decode(): 99} if failing else None
        name = self._agent.consumer(
            f"Consumer{self._consumers}", topic, group=group, orderly=orderly, failures=failures
        )
        found: list[Given] = []

        def take(count: int) -> list[Given]:
            found.extend(
                Given(
                    digest=digest(message.body),
                    topic=message.topic,
                    queue_id=message.queue_id,
                    queue_offset=message.queue_offset,
                    reconsume_times=message.reconsume_times,
                    properties=message.properties,
                )
                for message in self._agent.take(name, count - len(found))
            )
            return list(found)

        try:
            yield take
        finally:
            self._agent.close(name)
