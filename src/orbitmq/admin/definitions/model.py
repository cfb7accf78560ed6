"""The file of definitions: its values, and reading and writing it as JSON."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import orjson

from orbitmq.admin.errors import InvalidRequestError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT = "orbitmq-definitions/1"

MAX_BYTES = 64 << 20
"""Of a file: 100,000 topics are about 20 MB."""


@dataclasses.dataclass(frozen=True, slots=True)
class Definition:
    """One topic or group: its settings, and where a broker has others, those by broker name.

    With ``at`` the thing exists only on the brokers that are named there.
    """

    name: str
    settings: Mapping[str, Any]
    at: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    def settings_at(self, broker_name: str) -> Mapping[str, Any] | None:
        """The settings at a broker, or None where it does not belong."""
        return self.at.get(broker_name) if self.at else self.settings


@dataclasses.dataclass(frozen=True, slots=True)
class Definitions:
    """Everything of one file."""

    cluster: str
    topics: tuple[Definition, ...] = ()
    groups: tuple[Definition, ...] = ()
    order: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Order configuration by topic."""
    settings: Mapping[str, Mapping[str, str]] = dataclasses.field(default_factory=dict)
    """Settings of brokers by broker name, without those of one machine and without secrets."""
    exported_ms: int = 0

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "cluster": self.cluster,
            "exportedMs": self.exported_ms,
            "topics": [_entry(one) for one in self.topics],
            "groups": [_entry(one) for one in self.groups],
            "orderConfiguration": dict(self.order),
            "brokerSettings": {name: dict(values) for name, values in self.settings.items()},
        }

    @classmethod
    def from_json(cls, value: object) -> Definitions:
        """Raises InvalidRequestError, with the place of what is wrong."""
        root = _object(value, "the file")
        if root.get("format") != FORMAT:
            raise InvalidRequestError(f"the file is not of the format {FORMAT}, but {root.get('format')!r}")
        if unknown := root.keys() - _FIELDS:
            raise InvalidRequestError(f"the file has an unknown field {min(unknown)!r}")
        exported = root.get("exportedMs", 0)
        return cls(
            str(root.get("cluster", "")),
            _entries(root.get("topics", []), "topics"),
            _entries(root.get("groups", []), "groups"),
            _texts(root.get("orderConfiguration", {}), "orderConfiguration"),
            {
                name: _texts(values, f"brokerSettings of {name}")
                for name, values in _object(root.get("brokerSettings", {}), "brokerSettings").items()
            },
            exported if isinstance(exported, int) else 0,
        )


_FIELDS = {"format", "cluster", "exportedMs", "topics", "groups", "orderConfiguration", "brokerSettings"}


def parse(data: bytes) -> Definitions:
    """The definitions of a file of JSON. Raises InvalidRequestError."""
    if len(data) > MAX_BYTES:
        raise InvalidRequestError(f"the file has {len(data):,} bytes, more than {MAX_BYTES:,}")
    try:
        return Definitions.from_json(orjson.loads(data))
    except orjson.JSONDecodeError as error:
        raise InvalidRequestError(f"the file is not JSON: {error}") from None


def _entry(one: Definition) -> dict[str, Any]:
    if one.at:
        return {"name": one.name, "at": {name: dict(values) for name, values in one.at.items()}}
    return {"name": one.name, "settings": dict(one.settings)}


def _entries(value: object, where: str) -> tuple[Definition, ...]:
    if not isinstance(value, list):
        raise InvalidRequestError(f"{where} must be a list")
    found: dict[str, Definition] = {}
    for number, item in enumerate(value, 1):
        entry = _object(item, f"{where}, number {number},")
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidRequestError(f"{where}, number {number}, has no name")
        if name in found:
            raise InvalidRequestError(f"{where} has {name} twice")
        if unknown := entry.keys() - {"name", "settings", "at"}:
            raise InvalidRequestError(f"{where}: {name} has an unknown field {min(unknown)!r}")
        places = _object(entry.get("at", {}), f"at of {name}")
        found[name] = Definition(
            name,
            _object(entry.get("settings", {}), f"settings of {name}"),
            {broker: _object(values, f"settings of {name} at {broker}") for broker, values in places.items()},
        )
    return tuple(found.values())


def _object(value: object, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise InvalidRequestError(f"{where} must be an object")
    return value


def _texts(value: object, where: str) -> dict[str, str]:
    found = _object(value, where)
    for name, text in found.items():
        if not isinstance(text, str):
            raise InvalidRequestError(f"{where}: {name} must be a text, not {text!r}")
    return found
