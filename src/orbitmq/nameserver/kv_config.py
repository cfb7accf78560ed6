"""The key-value configuration, the one thing that a name server keeps on disk (``kvConfig.json``).

Brokers and clients use one namespace of it, ``ORDER_TOPIC_CONFIG``; tools may put in whatever they like.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import field
from typing import TYPE_CHECKING

from orbitmq.protocol.bodies import Body
from orbitmq.remoting.processing import RequestRefusedError
from orbitmq.store.config_json import ConfigFile
from orbitmq.store.errors import DiskFaultError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.nameserver.limits import NameServerLimits
    from orbitmq.store.disk import Disk


@dataclasses.dataclass(slots=True)
class KvConfigTable(Body):
    """The file's contents."""

    config_table: dict[str, dict[str, str]] = field(default_factory=dict)


class KvConfig:
    """Values by namespace and key. A change is on disk before it counts.

    The loop waits for the disk meanwhile: the file is small, and operators change it a few times a day.
    """

    def __init__(self, disk: Disk, path: str, limits: NameServerLimits) -> None:
        self._disk = disk
        directory, name = os.path.split(path)
        self._directory = directory or "."
        self._file = ConfigFile(name, KvConfigTable, pretty=False)
        self._limits = limits
        self._table: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file, if there is one. Raises StoreError."""
        self._table = self._file.load(self._disk, self._directory).config_table

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All values of a namespace; None if there never was one."""
        return self._table.get(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Raises RequestRefusedError."""
        changed = {**self._table, namespace: {**self._table.get(namespace, {}), key: value}}
        self._check_room(changed)
        self._replace(changed)

    def delete(self, namespace: str, key: str) -> None:
        """Raises RequestRefusedError. The namespace stays, if only as an empty one."""
        present = self._table.get(namespace, {})
        if key in present:
            left = {name: value for name, value in present.items() if name != key}
            self._replace({**self._table, namespace: left})

    def _check_room(self, table: Mapping[str, Mapping[str, str]]) -> None:
        entries = sum(len(values) for values in table.values())
        if entries > self._limits.kv_entries:
            raise RequestRefusedError(f"there are {entries - 1} key-value entries already, more are not taken")
        characters = sum(map(len, table)) + sum(
            len(key) + len(value) for values in table.values() for key, value in values.items()
        )
        if characters > self._limits.kv_characters:
            raise RequestRefusedError(
                f"the key-value configuration would have {characters} characters, at most"
                f" {self._limits.kv_characters} may be"
            )

    def _replace(self, table: dict[str, dict[str, str]]) -> None:
        try:
            self._file.persist(self._disk, self._directory, KvConfigTable(table))
        except DiskFaultError as error:
            raise RequestRefusedError(str(error)) from error
        self._table = table
