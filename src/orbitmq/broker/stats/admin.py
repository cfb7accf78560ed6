"""VIEW_BROKER_STATS_DATA: the figures of one counter, for tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processor import RequestRefusedError, fields_of, handler_of

if TYPE_CHECKING:
    from orbitmq.broker.stats.counters import BrokerStats
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler


class StatsRequests:
    """Requests for statistics."""

    def __init__(self, stats: BrokerStats) -> None:
        self._stats = stats

    @property
    def handlers(self) -> dict[int, Handler]:
        return {RequestCode.VIEW_BROKER_STATS_DATA: handler_of(self.view)}

    def view(self, request: Command, _: Connection) -> Command:
        fields = fields_of(request)
        name, key = fields["statsName"], fields["statsKey"]
        found = self._stats.view(name, key)
        if found is None:
            # The dashboard and the exporter interpret exactly this text as zero.
            raise RequestRefusedError(f"The stats <{name}> <{key}> not exist")
        return request.response(ResponseCode.SUCCESS, body=found.encode())
