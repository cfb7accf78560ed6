"""Attributes of topics and groups: known keys, allowed values, and changes by requests.

A request names its changes with a sign: ``+message.type=FIFO`` sets an attribute, ``-message.type`` removes it.
Error texts are RocketMQ's own, because its tools print them and people search for them.
"""

from __future__ import annotations

import dataclasses
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from orbitmq.protocol.command.fields import INT64_MAX, INT64_MIN
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

QUEUE_TYPE = "queue.type"
BATCH_QUEUES = "BatchCQ"
CLEANUP_POLICY = "cleanup.policy"
MESSAGE_TYPE = "message.type"
MIXED = "MIXED"
LITE = "LITE"
"""The topic is the parent of lite topics."""
_PLAIN_TYPES = frozenset({"UNSPECIFIED", MIXED, "TRANSACTION", "FIFO", "DELAY", "NORMAL"})
"""Message types of topics whose queues are like those of any other; those of PRIORITY are levels."""
PRIORITY_FACTOR = "priority.factor"

LITE_EXPIRATION_MINUTES = 30 * 24 * 60


class Value(Protocol):
    """Allowed values of an attribute."""

    def check(self, text: str) -> None:
        """Raise RequestRefusedError if the value is not allowed."""


@dataclasses.dataclass(frozen=True, slots=True)
class OneOf:
    """An enumeration, in RocketMQ's order."""

    names: tuple[str, ...]

    def check(self, text: str) -> None:
        if text not in self.names:
            raise RequestRefusedError(f"value is not in set: [{', '.join(self.names)}]")


@dataclasses.dataclass(frozen=True, slots=True)
class Between:
    """An integer in a range."""

    least: int
    most: int = INT64_MAX

    def check(self, text: str) -> None:
        digits = text[1:] if text[:1] in {"+", "-"} else text
        # Twenty characters hold every int64; int() would also accept blanks and underscores.
        if not (digits.isascii() and digits.isdigit() and len(digits) < 20 and INT64_MIN <= int(text) <= INT64_MAX):
            raise RequestRefusedError(f'For input string: "{text[:80]}"')
        if not self.least <= int(text) <= self.most:
            raise RequestRefusedError(f"value is not in range({self.least}, {self.most})")


@dataclasses.dataclass(frozen=True, slots=True)
class TrueOrFalse:
    """A boolean, in any case."""

    def check(self, text: str) -> None:
        if text.lower() not in {"true", "false"}:
            raise RequestRefusedError("boolean attribute format is wrong.")


@dataclasses.dataclass(frozen=True, slots=True)
class AnyText:
    """Any text."""

    def check(self, text: str) -> None:
        pass


@dataclasses.dataclass(frozen=True, slots=True)
class Attribute:
    """A known attribute. One that is not changeable can only be set when its topic is created."""

    value: Value
    changeable: bool = True


TOPIC_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType(
    {
        QUEUE_TYPE: Attribute(OneOf(("SimpleCQ", BATCH_QUEUES)), changeable=False),
        CLEANUP_POLICY: Attribute(OneOf(("DELETE", "COMPACTION")), changeable=False),
        MESSAGE_TYPE: Attribute(
            OneOf(("UNSPECIFIED", MIXED, "TRANSACTION", "PRIORITY", "FIFO", "DELAY", LITE, "NORMAL"))
        ),
        # In hours, for tiered storage only: RocketMQ accepts it without tiered storage too, without effect.
        "reserve.time": Attribute(Between(-1)),
        "lite.topic.expiration": Attribute(Between(-1, LITE_EXPIRATION_MINUTES)),
    }
)

GROUP_ATTRIBUTES: Mapping[str, Attribute] = MappingProxyType(
    {
        PRIORITY_FACTOR: Attribute(Between(0, 100)),
        "lite.bind.topic": Attribute(AnyText()),
        "lite.sub.model": Attribute(OneOf(("Shared", "Exclusive"))),
        "lite.sub.reset.offset.exclusive": Attribute(TrueOrFalse()),
        "lite.sub.reset.offset.unsubscribe": Attribute(TrueOrFalse()),
        "lite.sub.client.quota": Attribute(Between(-1)),
        "lite.sub.client.max.event.cnt": Attribute(Between(10)),
        "lite.sub.wildcard": Attribute(AnyText()),
    }
)


def is_plain(attributes: Mapping[str, str]) -> bool:
    """True for a topic whose messages are stored and read as those of one without attributes.

    The type of messages is a rule for clients of the gRPC protocol, which its server applies.
    """
    return not attributes or (len(attributes) == 1 and attributes.get(MESSAGE_TYPE) in _PLAIN_TYPES)


def parse_changes(text: str | None) -> dict[str, str]:
    """Parse the changes in ``+key=value,-key``, by key with its sign. Raises RequestRefusedError."""
    changes: dict[str, str] = {}
    # Java's split drops trailing empty parts.
    text = (text or "").rstrip(",")
    for item in text.split(",") if text else ():
        key, equals, value = item.partition("=")
        # RocketMQ reads what is between the first two equals signs.
        value = value.partition("=")[0]
        if equals and not value:
            raise RequestRefusedError(f"add/alter attribute format is wrong: {item} has no value")
        if equals and "+" not in key:
            raise RequestRefusedError(f"add/alter attribute format is wrong: {key}")
        if not equals and "-" not in key:
            raise RequestRefusedError(f"delete attribute format is wrong: {key}")
        if key in changes:
            raise RequestRefusedError(f"key duplication: {key}")
        changes[key] = value
    return changes


def altered(
    known: Mapping[str, Attribute], present: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """The attributes after these changes; ``present`` is None for an object that is being created.

    Raises RequestRefusedError without changing anything.
    """
    is_new = present is None
    after = dict(present or {})
    for key in _checked_keys(changes, after, is_new=is_new):
        sign, name = changes_key(key)
        attribute = known.get(name)
        if attribute is None:
            raise RequestRefusedError(f"unsupported key: {name}")
        if not (is_new or attribute.changeable):
            raise RequestRefusedError(f"attempt to update an unchangeable attribute. key: {name}")
        if sign == "+":
            attribute.value.check(changes[key])
            after[name] = changes[key]
        else:
            del after[name]
    return after


def changes_key(key: str) -> tuple[str, str]:
    """The sign and the name in a key of changes."""
    return key[:1], key[1:]


def _checked_keys(changes: Iterable[str], present: Mapping[str, str], *, is_new: bool) -> list[str]:
    """The keys, after a syntax check of all of them: RocketMQ reports these errors first."""
    keys = list(changes)
    names: set[str] = set()
    for key in keys:
        sign, name = changes_key(key)
        if not name or "+" in name or "-" in name:
            raise RequestRefusedError("kv string format wrong.")
        if is_new and sign != "+":
            raise RequestRefusedError(f"only add attribute is supported while creating topic. key: {name}")
        if name in names:
            raise RequestRefusedError(f"alter duplication key. key: {name}")
        names.add(name)
        if sign == "-" and name not in present:
            raise RequestRefusedError(f"attempt to delete a nonexistent key: {name}")
        if sign not in {"+", "-"}:
            raise RequestRefusedError(f"wrong format key: {name}")
    return keys
