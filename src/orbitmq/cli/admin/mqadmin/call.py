"""One call of a command: its options, its output, and the brokers that it is for."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from orbitmq.admin.errors import InvalidRequestError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.admin import AdminClient
    from orbitmq.admin.cluster.topology import BrokerAddress
    from orbitmq.cli.admin.mqadmin.specs import Spec

UNKNOWN_CLUSTER = "[error] Make sure the specified clusterName exists or the name server connected to is correct."


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A command with its options, by their short names."""

    spec: Spec
    options: Mapping[str, str]
    admin: AdminClient

    # Options

    def __getitem__(self, name: str) -> str:
        return self.options[name].strip()

    def get(self, name: str, default: str = "") -> str:
        return self.options.get(name, default).strip()

    def flag(self, name: str) -> bool:
        return name in self.options

    def boolean(self, name: str, default: bool = False) -> bool:
        return self.get(name, "true" if default else "false").lower() == "true"

    def number(self, name: str, default: int | None = None) -> int:
        """Raises InvalidRequestError."""
        text = self.get(name, "" if default is None else str(default))
        try:
            return int(text)
        except ValueError:
            raise InvalidRequestError(f"-{name} is a whole number, not {text!r}") from None

    def attributes(self, name: str) -> dict[str, str]:
        """``+a=b,-c``, with the signs. Raises InvalidRequestError."""
        found, text = {}, self.get(name)
        for part in text.split(",") if text else ():
            key, separator, value = part.partition("=")
            if not key.startswith(("+", "-")) or (key[0] == "+") is not bool(separator):
                raise InvalidRequestError(f"attributes are +key=value,-key, not {text!r}")
            found[key] = value
        return found

    def list_of(self, name: str) -> list[Any]:
        """The list in a file of JSON. Raises InvalidRequestError."""
        try:
            found = orjson.loads(Path(self[name]).read_bytes())
        except (OSError, orjson.JSONDecodeError) as error:
            raise InvalidRequestError(f"the file {self[name]} cannot be read: {error}") from error
        if not isinstance(found, list):
            raise InvalidRequestError(f"the file {self[name]} is not a list of JSON objects")
        return found

    # Output

    def print(self, text: str = "", *, end: str = "\n") -> None:
        sys.stdout.write(f"{text}{end}")

    # Brokers

    async def brokers(self, *, cluster: str = "c", slaves: bool = False) -> list[BrokerAddress]:
        """The brokers of ``-b`` or ``-c``. An unknown cluster is a message, as in Apache's tool, and no broker."""
        if self.flag("b"):
            return await self.admin.brokers.targets(broker=self["b"], for_change=False)
        try:
            return await self.admin.brokers.targets(self.get(cluster), slaves=slaves, for_change=False)
        except NotFoundError:
            self.print(UNKNOWN_CLUSTER, end="")
            return []
