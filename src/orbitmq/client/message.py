"""Messages of applications: to send, received, and the receipt of a send."""

from __future__ import annotations

import collections.abc
import datetime
import enum
import math
from typing import TYPE_CHECKING, NamedTuple, TypedDict, Unpack

from orbitmq.client.errors import InvalidMessageError
from orbitmq.client.serialization.body import UNSET, body_bytes, json_bytes, json_value
from orbitmq.protocol.hosts import host_text
from orbitmq.protocol.message import property_names as names
from orbitmq.protocol.message.compression import decompress
from orbitmq.protocol.message.flags import COMPRESSED
from orbitmq.protocol.message.message_id import encode_offset_id
from orbitmq.protocol.message.properties import parse

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from orbitmq.protocol.bodies import MessageQueue
    from orbitmq.protocol.message.record import Record


_LATEST = 253_402_300_800
"""The end of the year 9999, in seconds."""


HIGHEST_PRIORITY = 65535
"""Maximum of ``priority``."""


class DeliveryTime(TypedDict, total=False):
    """Keywords of ``Message`` for delayed delivery, of which one may be given."""

    delay: float | datetime.timedelta | None
    deliver_at: datetime.datetime | float | None
    delay_level: int


class Message:
    """A message to send.

    The body is one of: ``body``, bytes or text; ``json``, any value that JSON can express; ``value``, an object
    that the producer's ``serializer`` encodes when the message is sent.

    ``keys`` are for look-ups, ``tags`` for filters, ``properties`` are the application's own. Messages with the
    same ``sharding_key`` go to one queue, in order. A ``priority``, 0 to 65535, lets it overtake messages with a
    lower one, where the topic or its consumer is configured for that.

    Delayed delivery, one of: ``delay``, in seconds or a ``timedelta``; ``deliver_at``, a ``datetime`` or seconds
    since the epoch (a ``datetime`` without a zone is local time); ``delay_level``, 1 to 18 in the broker's table of
    delays.
    """

    __slots__ = ("_properties", "body", "flag", "topic", "value")

    def __init__(
        self,
        topic: str,
        body: bytes | bytearray | memoryview | str = UNSET,
        *,
        json: Any = UNSET,
        value: Any = UNSET,
        tags: str | None = None,
        keys: str | Iterable[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        sharding_key: str | None = None,
        priority: int | None = None,
        wait_store_ok: bool = True,
        **when: Unpack[DeliveryTime],
    ) -> None:
        self.topic = topic
        self.body = _first_body(body, json, value)
        self.value = value
        """Encoded by the producer when the message is sent. ``UNSET``: the message has its body already."""
        self.flag = _whole("flag", flag)
        self._properties: dict[str, str] = {}
        for name, text in _mapping(properties).items():
            _check_user_property(name, text)
            self._properties[name] = text
        joined = _joined_keys(keys)
        for what, name, text in (
            ("tags", names.TAGS, tags or ""),
            ("keys", names.KEYS, joined),
            ("sharding_key", names.SHARDING_KEY, sharding_key or ""),
        ):
            if text:
                _check_text(what, text)
                _check_value(name, text)
                self._properties[name] = text
        if when:
            if unknown := when.keys() - DeliveryTime.__annotations__.keys():
                raise TypeError(f"Message() got an unexpected keyword argument {min(unknown)!r}")
            self._set_time(**when)
        if priority is not None:
            self._set_priority(priority)
        self._properties[names.WAIT_STORE_OK] = "true" if wait_store_ok else "false"

    def _set_time(
        self,
        *,
        delay: float | datetime.timedelta | None = None,
        deliver_at: datetime.datetime | float | None = None,
        delay_level: int = 0,
    ) -> None:
        if _whole("delay_level", delay_level):
            self._properties[names.DELAY_LEVEL] = str(delay_level)
        if delay is not None or deliver_at is not None:
            if sum((bool(delay_level), delay is not None, deliver_at is not None)) > 1:
                raise InvalidMessageError("give one of delay, deliver_at and delay_level")
            name, milliseconds = _time_property(delay, deliver_at)
            self._properties[name] = str(milliseconds)

    def _set_priority(self, priority: int) -> None:
        if not isinstance(priority, int):
            raise InvalidMessageError(f"a priority is a whole number, not {priority!r}")
        if not 0 <= priority <= HIGHEST_PRIORITY:
            raise InvalidMessageError(f"a priority is 0 to {HIGHEST_PRIORITY}, not {priority}")
        times = (names.DELAY_LEVEL, names.TIMER_DELAY_SEC, names.TIMER_DELAY_MS, names.TIMER_DELIVER_MS)
        for name in (names.SHARDING_KEY, *times):
            if name in self._properties:
                raise InvalidMessageError("a message with a sharding key or a delay cannot have a priority as well")
        self._properties[names.PRIORITY] = str(priority)

    @property
    def properties(self) -> dict[str, str]:
        """All properties as they are sent, RocketMQ's own included."""
        return self._properties

    @property
    def tags(self) -> str | None:
        return self._properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        return self._properties.get(names.KEYS, "").split()

    def __repr__(self) -> str:
        return f"Message({self.topic!r}, {len(self.body)} bytes, {self._properties})"


class SendStatus(enum.Enum):
    """Durability of a message that a broker has accepted. All of them count as sent."""

    SEND_OK = 0
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12


class Receipt(NamedTuple):
    """The result of a send."""

    status: SendStatus
    message_id: str
    """The id that the client generated; consumers see the same."""
    queue: MessageQueue
    queue_offset: int
    offset_message_id: str
    """The broker's id, which encodes the position in the log."""
    transaction_id: str | None = None
    region_id: str = "DefaultRegion"
    recall_handle: str | None = None
    trace_on: bool = True
    """False if the broker has switched traces off."""


class ReceivedMessage:
    """A message as it was stored. The body is decompressed at the first access."""

    __slots__ = ("_body", "_properties", "broker_name", "record", "topic")

    def __init__(self, record: Record, broker_name: str, topic: str | None = None) -> None:
        """``topic`` is the topic that the application subscribed to; the record itself may be in a retry topic."""
        self.record = record
        self.broker_name = broker_name
        self._properties: dict[str, str] | None = None
        self._body: bytes | None = None
        self.topic = record.topic if topic is None else topic

    @property
    def body(self) -> bytes:
        if self._body is None:
            record = self.record
            self._body = decompress(record.body, record.sys_flag) if record.sys_flag & COMPRESSED else record.body
        return self._body

    @property
    def properties(self) -> dict[str, str]:
        """All properties, RocketMQ's own included."""
        if self._properties is None:
            self._properties = parse(self.record.properties)
        return self._properties

    @property
    def tags(self) -> str | None:
        return self.properties.get(names.TAGS)

    @property
    def keys(self) -> list[str]:
        return self.properties.get(names.KEYS, "").split()

    @property
    def is_request(self) -> bool:
        """True if its sender waits for a reply."""
        return names.REPLY_TO_CLIENT in self.properties and names.CORRELATION_ID in self.properties

    @property
    def priority(self) -> int | None:
        """The sender's priority, or None."""
        text = self.properties.get(names.PRIORITY, "")
        return int(text) if text.isdecimal() and len(text) < 10 else None

    @property
    def message_id(self) -> str:
        """The id that the producer generated."""
        return self.properties.get(names.UNIQUE_KEY) or self.offset_message_id

    @property
    def offset_message_id(self) -> str:
        """The broker's id, which encodes the position in the log."""
        return encode_offset_id(self.record.store_host, self.record.physical_offset)

    @property
    def queue_id(self) -> int:
        return self.record.queue_id

    @property
    def queue_offset(self) -> int:
        return self.record.queue_offset

    @property
    def reconsume_times(self) -> int:
        """Number of retries so far."""
        return self.record.reconsume_times

    @property
    def born_timestamp(self) -> int:
        """When the producer sent it, in milliseconds since the epoch."""
        return self.record.born_timestamp

    @property
    def store_timestamp(self) -> int:
        return self.record.store_timestamp

    @property
    def born_host(self) -> str:
        return host_text(self.record.born_host)

    @property
    def store_host(self) -> str:
        return host_text(self.record.store_host)

    @property
    def flag(self) -> int:
        return self.record.flag

    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    def json(self) -> Any:
        """The body as the value that its JSON stands for. Raises BodyError, a ValueError."""
        return json_value(self.body)

    def __repr__(self) -> str:
        return (
            f"ReceivedMessage({self.topic!r}, queue {self.queue_id} of {self.broker_name}, "
            f"offset {self.queue_offset}, {len(self.record.body)} bytes)"
        )


def _first_body(body: Any, json: Any, value: Any) -> bytes:
    """The body of a new message; empty until it is sent if ``value`` is given."""
    if (body is not UNSET) + (json is not UNSET) + (value is not UNSET) != 1:
        raise TypeError("a message has one body: give body (bytes or text), json or value")
    if json is not UNSET:
        return json_bytes(json)
    return b"" if body is UNSET else body_bytes(body)


def _joined_keys(keys: str | Iterable[str]) -> str:
    """The keys as one property, where blanks separate them. Raises InvalidMessageError."""
    each = [keys] if isinstance(keys, str) else list(keys)
    for key in each:
        if not isinstance(key, str):
            raise InvalidMessageError(f"a key is text, not {type(key).__name__}: {key!r}")
        if key.split() != [key] and key:
            raise InvalidMessageError(
                f"the key {key!r} contains a blank, which separates keys in RocketMQ: give several keys as a list, "
                'as in keys=["a", "b"], or replace the blank'
            )
    return " ".join(filter(None, each))


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidMessageError(f"{what} is text, not {value!r}: convert it with str()")


def _mapping(properties: Mapping[str, str] | None) -> Mapping[str, str]:
    if properties is not None and not isinstance(properties, collections.abc.Mapping):
        raise InvalidMessageError(
            f"properties are a dict of texts, not {type(properties).__name__}: {properties!r}"
        )
    return properties or {}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(name: str, number: object) -> int:
    """A whole number. Raises InvalidMessageError for another value."""
    if not isinstance(number, int):
        raise InvalidMessageError(f"{name} is a whole number, not {number!r}")
    return number


def _time_property(
    delay: float | datetime.timedelta | None, deliver_at: datetime.datetime | float | None
) -> tuple[str, int]:
    """Name and value of the property for delayed delivery. A delay counts from the arrival at the broker."""
    if isinstance(deliver_at, datetime.datetime):
        deliver_at = deliver_at.timestamp()
    if isinstance(delay, datetime.timedelta):
        delay = delay.total_seconds()
    value = deliver_at if delay is None else delay
    if not _is_number(value):
        raise InvalidMessageError(f"a time is a number of seconds, not {value!r}")
    assert value is not None
    if not math.isfinite(value) or not 0 <= value < _LATEST:
        raise InvalidMessageError(f"a time is a number of seconds, 0 or more, not {value}")
    if delay is not None and delay == int(delay):
        # Also understood by brokers without millisecond delays.
        return names.TIMER_DELAY_SEC, int(delay)
    return (names.TIMER_DELAY_MS if delay is not None else names.TIMER_DELIVER_MS), math.ceil(
        round(value * 1000, 3)
    )


def _check_user_property(name: str, value: str) -> None:
    _check_text("the name of a property", name)
    _check_text(f"the property {name!r}", value)
    if name in names.RESERVED:
        raise InvalidMessageError(f"the property name {name!r} is RocketMQ's own: choose another")
    if not name or not value:
        raise InvalidMessageError(f"a property needs a name and a value: {name!r} is {value!r}")
    if "\x01" in name:
        raise InvalidMessageError(f"the property name {name!r} must not contain the character 1")
    _check_value(name, value)
    _check_value(name, name)


def _check_value(name: str, value: str) -> None:
    _check_text(f"the property {name!r}", value)
    if "\x02" in value:
        raise InvalidMessageError(f"the property {name!r} must not contain the character 2")
