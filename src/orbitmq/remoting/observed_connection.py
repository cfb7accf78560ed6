"""Connection whose deferred responses an observer sees, for metrics. Others pay nothing for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.remoting.connection import Connection

if TYPE_CHECKING:
    from orbitmq.remoting.gather_write import Buffer


class ObservedConnection(Connection):
    """A connection of an endpoint with an ``observer``."""

    __slots__ = ()

    def complete_responses(self, count: int, data: bytes | list[Buffer]) -> None:
        observer = self._endpoint.observer
        if observer is not None and data and count == 1:
            observer(self, data if isinstance(data, bytes) else bytes(data[0]))
        super().complete_responses(count, data)
