"""Requests that a slave refuses, with RocketMQ's codes and sentences.

Sends are refused by flow control, END_TRANSACTION and RECALL_MESSAGE by their processors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.broker.ha.role import ReplicaRole
    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Connection, Handler

METADATA = (
    "Can't modify topic or subscription group from slave broker, please execute it from master broker.",
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
)
"""The remark, and the requests that get it."""


POP = (
    "A slave does not serve POP: it cannot write check points. Pop from the master.",
    RequestCode.POP_MESSAGE,
    RequestCode.ACK_MESSAGE,
    RequestCode.BATCH_ACK_MESSAGE,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    RequestCode.POP_LITE_MESSAGE,
    RequestCode.LITE_SUBSCRIPTION_CTL,
)
"""The same. RocketMQ's clients pop from masters only; a name server may show them a slave that acts as one."""


def remarks(host: str) -> dict[int, str]:
    """The remark of each request that a slave refuses with SYSTEM_ERROR."""
    return {
        **dict.fromkeys(METADATA[1:], METADATA[0]),
        **dict.fromkeys(POP[1:], POP[0]),
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: "Can not reset offset in slave broker",
        RequestCode.CONSUMER_SEND_MSG_BACK: f"no master available along with {host}",
    }


def guarded(handlers: Mapping[int, Handler], role: ReplicaRole, host: str) -> dict[int, Handler]:
    """These handlers; on a slave some are replaced by refusals. ``host`` is that of the broker."""
    if not role.is_slave:
        return dict(handlers)
    refused = remarks(host)
    return {code: _refusal(refused[code]) if code in refused else handler for code, handler in handlers.items()}


def _refusal(remark: str) -> Handler:
    def refuse(_: Connection, header: Header, body: bytes, serialize_type: int) -> Answer:
        request = Command.of((serialize_type, b"", body), header)
        return request.response(ResponseCode.SYSTEM_ERROR, remark=remark).encode()

    return refuse
