"""GET_TIMER_CHECK_POINT and GET_TIMER_METRICS: timer progress and deferred counts, requested by slaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processor import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from orbitmq.broker.timer.service import TimerService
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler


class TimerRequests:
    """Admin requests of the timer."""

    def __init__(self, timer: TimerService | None) -> None:
        self._timer = timer

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_TIMER_CHECK_POINT: handler_of(self.check_point),
            RequestCode.GET_TIMER_METRICS: handler_of(self.metrics),
        }

    def check_point(self, request: Command, _: Connection) -> Command:
        if self._timer is None:
            raise RequestRefusedError("The checkpoint is null")
        return request.response(ResponseCode.SUCCESS, body=self._timer.shared_checkpoint().encode())

    def metrics(self, request: Command, _: Connection) -> Command:
        if self._timer is None:
            raise RequestRefusedError("The timer message store is null")
        return request.response(ResponseCode.SUCCESS, body=self._timer.counts.table().encode())
