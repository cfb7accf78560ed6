"""Why a name server refuses a request."""

from __future__ import annotations

from orbitmq.protocol.codes import ResponseCode


class RequestRefusedError(Exception):
    """A request that is understood and not done; nothing was changed. The text is the remark of the answer."""

    def __init__(self, remark: str, code: int = ResponseCode.SYSTEM_ERROR) -> None:
        super().__init__(remark)
        self.code = code
