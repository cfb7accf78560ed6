"""The header fields of successful responses, by the code of the request they answer.

An answer that reports a failure may lack the fields that are required here: look at its code first.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.fields import FieldTable, field_table

if TYPE_CHECKING:
    from collections.abc import Mapping

_SEND = "msgId:s! queueId:i! queueOffset:l! transactionId:s batchUniqId:s recallHandle:s MSG_REGION:s TRACE_ON:b"

_PULL = (
    "suggestWhichBrokerId:l! nextBeginOffset:l! minOffset:l! maxOffset:l! offsetDelta:l "
    "topicSysFlag:i groupSysFlag:i forbiddenType:i"
)

_POP = "popTime:l=0 invisibleTime:l=0 reviveQid:i=0 restNum:l=0 startOffsetInfo:s msgOffsetInfo:s orderCountInfo:s"

_DESCRIPTIONS: dict[RequestCode, str] = {
    RequestCode.SEND_MESSAGE: _SEND,
    RequestCode.PULL_MESSAGE: _PULL,
    RequestCode.QUERY_MESSAGE: "indexLastUpdateTimestamp:l! indexLastUpdatePhyoffset:l!",
    RequestCode.QUERY_CONSUMER_OFFSET: "offset:l!",
    RequestCode.GET_ALL_TOPIC_CONFIG: "totalTopicNum:i",
    RequestCode.GET_BROKER_CONFIG: "version:s!",
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "offset:l!",
    RequestCode.GET_MAX_OFFSET: "offset:l!",
    RequestCode.GET_MIN_OFFSET: "offset:l!",
    RequestCode.GET_EARLIEST_MSG_STORETIME: "timestamp:l!",
    RequestCode.HEART_BEAT: "IS_SUPPORT_HEART_BEAT_V2:b=false IS_SUB_CHANGE:b=false",
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO: (
        "version:s! allAclFileVersion:s brokerName:s! brokerAddr:s! clusterName:s!"
    ),
    RequestCode.GET_KV_CONFIG: "value:s",
    RequestCode.REGISTER_BROKER: "haServerAddr:s masterAddr:s",
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "totalGroupNum:i",
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: "wipeTopicCount:i!",
    RequestCode.SEND_MESSAGE_V2: _SEND,
    RequestCode.SEND_BATCH_MESSAGE: _SEND,
    RequestCode.QUERY_DATA_VERSION: "changed:b!",
    RequestCode.SEND_REPLY_MESSAGE: _SEND,
    RequestCode.SEND_REPLY_MESSAGE_V2: _SEND,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: "addTopicCount:i!",
    RequestCode.LITE_PULL_MESSAGE: _PULL,
    RequestCode.RECALL_MESSAGE: "msgId:s! MSG_REGION:s",
    RequestCode.EXCHANGE_BROKER_HA_INFO: "masterHaAddress:s masterFlushOffset:l masterAddress:s",
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: "newSyncStateSetEpoch:i=0",
    RequestCode.CONTROLLER_ELECT_MASTER: "masterBrokerId:l masterAddress:s masterEpoch:i syncStateSetEpoch:i",
    RequestCode.CONTROLLER_REGISTER_BROKER: (
        "clusterName:s brokerName:s masterBrokerId:l masterAddress:s masterEpoch:i syncStateSetEpoch:i"
    ),
    RequestCode.CONTROLLER_GET_REPLICA_INFO: "masterBrokerId:l masterAddress:s masterEpoch:i",
    RequestCode.CONTROLLER_GET_METADATA_INFO: (
        "group:s controllerLeaderId:s controllerLeaderAddress:s isLeader:b=false peers:s"
    ),
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: "clusterName:s brokerName:s nextBrokerId:l",
    RequestCode.CONTROLLER_APPLY_BROKER_ID: "clusterName:s brokerName:s",
    RequestCode.POP_MESSAGE: _POP,
    RequestCode.PEEK_MESSAGE: _POP,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: "popTime:l=0 invisibleTime:l=0 reviveQid:i=0",
    RequestCode.NOTIFICATION: "hasMsg:b=false pollingFull:b=false",
    RequestCode.POLLING_INFO: "pollingNum:i=0",
    RequestCode.POP_LITE_MESSAGE: (
        "popTime:l=0 invisibleTime:l=0 reviveQid:i=0 startOffsetInfo:s msgOffsetInfo:s orderCountInfo:s"
    ),
}

RESPONSE_FIELDS: Mapping[int, FieldTable] = MappingProxyType(
    {int(code): field_table(description) for code, description in _DESCRIPTIONS.items()}
)


def response_fields(request_code: int) -> FieldTable:
    """The fields of a successful answer to this request; none where it carries none."""
    return RESPONSE_FIELDS.get(request_code, ())
