"""Requests to mutate: those of the captured conversations, and one for every request code without a capture."""

from __future__ import annotations

import collections
import dataclasses
import functools
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.request_fields import request_fields
from support.wire_captures import all_captured

if TYPE_CHECKING:
    from orbitmq.protocol.command.fields import Kind

BROKER = "broker"
NAME_SERVER = "name server"

NAME_SERVER_CODES = frozenset(
    {
        RequestCode.PUT_KV_CONFIG,
        RequestCode.GET_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.REGISTER_BROKER,
        RequestCode.UNREGISTER_BROKER,
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.UPDATE_NAMESRV_CONFIG,
        RequestCode.GET_NAMESRV_CONFIG,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.BROKER_HEARTBEAT,
    }
)

BUSY_CODES = (
    *(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_MESSAGE_V2),
    *(RequestCode.SEND_BATCH_MESSAGE, RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE),
    *(RequestCode.POP_MESSAGE, RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE),
    *(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.END_TRANSACTION),
    *(RequestCode.HEART_BEAT, RequestCode.LOCK_BATCH_MQ, RequestCode.UPDATE_CONSUMER_OFFSET),
    *(RequestCode.PEEK_MESSAGE, RequestCode.NOTIFICATION, RequestCode.RECALL_MESSAGE, RequestCode.QUERY_MESSAGE),
)
"""Codes with much code behind them: half of the frames for the broker are of these."""

CODES = tuple(RequestCode)


@dataclasses.dataclass(frozen=True, slots=True)
class Template:
    """One request."""

    code: int
    fields: dict[str, str]
    body: bytes


KINDS: dict[str, Kind] = {}
"""The kind of value of every header field, by its name on the wire."""
for _code in RequestCode:
    for _field in request_fields(_code):
        KINDS.setdefault(_field.wire_name, _field.kind)

FIELD_NAMES = tuple(sorted(KINDS))


@functools.cache
def templates() -> dict[int, tuple[Template, ...]]:
    """The requests of each code."""
    found: dict[int, list[Template]] = collections.defaultdict(list)
    for frame in all_captured():
        if frame.to_server and not frame.is_response:
            found[frame.code].append(Template(frame.code, frame.ext_fields, frame.frame[2]))
    for code in RequestCode:
        fields = {field.wire_name: "0" if field.kind in "il" else "false" for field in request_fields(code)}
        found[code].append(Template(code, fields, b""))
    return {code: tuple(some) for code, some in found.items()}
