"""Lost config tables: detects at start that a table is missing or empty although the log has messages."""

from __future__ import annotations

import enum
import logging
import os
from typing import TYPE_CHECKING, Any

from orbitmq.store.config_tables import CONSUMER_OFFSETS, DELAY_OFFSETS, SUBSCRIPTION_GROUPS, TOPICS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orbitmq.platform.disk import Disk
    from orbitmq.platform.json_files import ConfigFile
    from orbitmq.store import MessageStore

log = logging.getLogger("orbitmq.broker")

_CONSEQUENCES: dict[ConfigFile[Any], str] = {
    TOPICS: "topics with messages in the log are created again, with their numbers of queues and no attributes",
    SUBSCRIPTION_GROUPS: "settings of consumer groups are lost, groups are created again with defaults",
    CONSUMER_OFFSETS: "consumers begin where their settings say, and may get messages again or miss some",
    DELAY_OFFSETS: "delayed messages that are in the log are delivered again",
}


class TableState(enum.Enum):
    """State of a table file at start."""

    PRESENT = "present"
    BACKUP = "only its .bak can be read"
    EMPTY = "empty, and so is its .bak"
    MISSING = "missing"


class TableStates:
    """State of each table before it is loaded; loading may remove an unusable file."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._states = {file: _state(disk, os.path.join(directory, file.name)) for file in _CONSEQUENCES}

    def is_lost(self, file: ConfigFile[Any]) -> bool:
        """True if the loaded table is not the newest that was written."""
        return self._states[file] is not TableState.PRESENT

    def lost(self) -> dict[ConfigFile[Any], TableState]:
        """Tables that had content once. A table that was never written counts only if all tables are missing."""
        is_everything_missing = self._states[TOPICS] is TableState.MISSING
        return {
            file: state
            for file, state in self._states.items()
            if state is TableState.EMPTY or (state is TableState.MISSING and is_everything_missing)
        }


def report_lost_tables(states: TableStates, recovered_topics: Sequence[str], store: MessageStore) -> None:
    """Log an error for each lost table of which the log has evidence."""
    if store.log.end == store.log.files.start:
        return
    for file, state in states.lost().items():
        log.error("config: %s is %s, but the log has messages: %s", file.name, state.value, _CONSEQUENCES[file])
    if states.is_lost(TOPICS):
        log.error("config: recovered %d topics from the log", len(recovered_topics))


def _state(disk: Disk, path: str) -> TableState:
    sizes = [None if (found := disk.stat(name)) is None else found.size for name in (path, path + ".bak")]
    if sizes[0]:
        return TableState.PRESENT
    if sizes[1]:
        return TableState.BACKUP
    return TableState.MISSING if sizes[0] is None else TableState.EMPTY
