"""The header fields of each request, by its code.

Requests without an entry carry no header fields. The descriptions are those of release 5.5; what older releases
sent under another name is listed beside it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.fields import FieldTable, field_table

if TYPE_CHECKING:
    from collections.abc import Mapping

_SEND = (
    "producerGroup:s! topic:s! defaultTopic:s! defaultTopicQueueNums:i! queueId:i! sysFlag:i! "
    "bornTimestamp:l! flag:i! properties:s= reconsumeTimes:i=0 unitMode:b=false "
    "maxReconsumeTimes:i batch:b=false +topic"
)

# The same fields under one letter each, to keep the header short; the last is the broker name.
_SEND_V2 = (
    "a=producerGroup:s! b=topic:s! c=defaultTopic:s! d=defaultTopicQueueNums:i! e=queueId:i! "
    "f=sysFlag:i! g=bornTimestamp:l! h=flag:i! i=properties:s= j=reconsumeTimes:i=0 "
    "k=unitMode:b=false l=maxReconsumeTimes:i m=batch:b=false n=bname:s lo:b ns:s nsd:b oway:b"
)

_PULL = (
    "consumerGroup:s! topic:s! liteTopic:s queueId:i! queueOffset:l! maxMsgNums:i! sysFlag:i! "
    "commitOffset:l! suspendTimeoutMillis:l! subscription:s subVersion:l! expressionType:s "
    "maxMsgBytes:i requestSource:i proxyFrowardClientId:s +topic"
)

IN_BULK = "orbitmqInBulk"
"""A field of pulls that RocketMQ does not know, and passes over: of OrbitMQ's brokers its sender gets as many
messages as it asks for, and not the 32, or 8 of those not in memory, that are right for consumers."""

ONLY_FORWARD = "orbitmqOnlyForward"
"""A field of UPDATE_CONSUMER_OFFSET that RocketMQ does not know, and passes over: an OrbitMQ broker ignores the
commit if it would move the group back. Slaves send it with commits of consumers while the master was away."""

_TOPIC = (
    "topic:s! defaultTopic:s! readQueueNums:i! writeQueueNums:i! perm:i! topicFilterType:s! "
    "topicSysFlag:i order:b=false attributes:s force:b=false +topic"
)

_RESET = "group:s! topic:s! queueId:i=-1 offset:l timestamp:l=0 isForce:b=false +topic"

_CONSUMER_STATUS = "topic:s! group:s! clientAddr:s +topic"

_DESCRIPTIONS: dict[RequestCode, str] = {
    RequestCode.SEND_MESSAGE: _SEND,
    RequestCode.PULL_MESSAGE: _PULL,
    RequestCode.QUERY_MESSAGE: (
        "topic:s! key:s! maxNum:i! beginTimestamp:l! endTimestamp:l! indexType:s lastKey:s "
        "_UNIQUE_KEY_QUERY:b=false +topic"
    ),
    RequestCode.QUERY_CONSUMER_OFFSET: "consumerGroup:s! topic:s! queueId:i! setZeroIfNotFound:b +topic",
    RequestCode.UPDATE_CONSUMER_OFFSET: "consumerGroup:s! topic:s! queueId:i! commitOffset:l! +topic",
    RequestCode.UPDATE_AND_CREATE_TOPIC: _TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: "+rpc",
    # Releases before 5.3.4, and the dashboard, ask for everything at once and send no fields.
    RequestCode.GET_ALL_TOPIC_CONFIG: "topicSeq:i dataVersion:s maxTopicNum:i",
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: "topic:s! liteTopic:s queueId:i! timestamp:l! boundaryType:s +topic",
    RequestCode.GET_MAX_OFFSET: "topic:s! queueId:i! committed:b=true +topic",
    RequestCode.GET_MIN_OFFSET: "topic:s! queueId:i! +topic",
    RequestCode.GET_EARLIEST_MSG_STORETIME: "topic:s! queueId:i! +topic",
    RequestCode.VIEW_MESSAGE_BY_ID: "topic:s offset:l!",
    RequestCode.HEART_BEAT: "+rpc",
    RequestCode.UNREGISTER_CLIENT: "clientID:s! producerGroup:s consumerGroup:s +rpc",
    RequestCode.CONSUMER_SEND_MSG_BACK: (
        "offset:l! group:s! delayLevel:i! originMsgId:s originTopic:s unitMode:b=false maxReconsumeTimes:i +rpc"
    ),
    RequestCode.END_TRANSACTION: (
        "topic:s producerGroup:s! tranStateTableOffset:l! commitLogOffset:l! commitOrRollback:i! "
        "fromTransactionCheck:b=false msgId:s! transactionId:s +rpc"
    ),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: "consumerGroup:s! +rpc",
    RequestCode.CHECK_TRANSACTION_STATE: (
        "topic:s tranStateTableOffset:l! commitLogOffset:l! msgId:s transactionId:s offsetMsgId:s +rpc"
    ),
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: "consumerGroup:s! +rpc",
    RequestCode.LOCK_BATCH_MQ: "+rpc",
    RequestCode.UNLOCK_BATCH_MQ: "+rpc",
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG: (
        "accessKey:s! secretKey:s whiteRemoteAddress:s admin:b=false defaultTopicPerm:s "
        "defaultGroupPerm:s topicPerms:s groupPerms:s"
    ),
    RequestCode.DELETE_ACL_CONFIG: "accessKey:s!",
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: "globalWhiteAddrs:s! aclFileFullPath:s",
    RequestCode.PUT_KV_CONFIG: "namespace:s! key:s! value:s!",
    RequestCode.GET_KV_CONFIG: "namespace:s! key:s!",
    RequestCode.DELETE_KV_CONFIG: "namespace:s! key:s!",
    RequestCode.REGISTER_BROKER: (
        "brokerName:s! brokerAddr:s! clusterName:s! haServerAddr:s! brokerId:l! "
        "heartbeatTimeoutMillis:l enableActingMaster:b compressed:b=false bodyCrc32:i=0"
    ),
    RequestCode.UNREGISTER_BROKER: "brokerName:s! brokerAddr:s! clusterName:s! brokerId:l!",
    RequestCode.GET_ROUTEINFO_BY_TOPIC: "topic:s! acceptStandardJsonOnly:b +topic",
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: "groupSeq:i dataVersion:s maxGroupNum:i",
    RequestCode.GET_TOPIC_STATS_INFO: "topic:s! +topic",
    RequestCode.GET_CONSUMER_CONNECTION_LIST: "consumerGroup:s! +rpc",
    RequestCode.GET_PRODUCER_CONNECTION_LIST: "producerGroup:s! +rpc",
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: "brokerName:s!",
    # removeOffset is what 4.9 calls cleanOffset.
    RequestCode.DELETE_SUBSCRIPTIONGROUP: "groupName:s! cleanOffset:b=false removeOffset:b=false +rpc",
    RequestCode.GET_CONSUME_STATS: "consumerGroup:s! topic:s topicList:s +topic",
    RequestCode.DELETE_TOPIC_IN_BROKER: "topic:s! +topic",
    RequestCode.DELETE_TOPIC_IN_NAMESRV: "topic:s! clusterName:s +topic",
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: "topic:s! +topic",
    RequestCode.GET_KVLIST_BY_NAMESPACE: "namespace:s!",
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: _RESET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT: _CONSUMER_STATUS,
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: _RESET,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _CONSUMER_STATUS,
    RequestCode.GET_TOPICS_BY_CLUSTER: "cluster:s!",
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: "topic:s! +topic",
    RequestCode.QUERY_CONSUME_TIME_SPAN: "topic:s! group:s! +topic",
    RequestCode.GET_CONSUMER_RUNNING_INFO: "consumerGroup:s! clientId:s! jstackEnable:b=false +rpc",
    RequestCode.QUERY_CORRECTION_OFFSET: "filterGroups:s compareGroup:s! topic:s! +topic",
    RequestCode.CONSUME_MESSAGE_DIRECTLY: (
        "consumerGroup:s! clientId:s msgId:s brokerName:s topic:s topicSysFlag:i groupSysFlag:i +topic"
    ),
    RequestCode.SEND_MESSAGE_V2: _SEND_V2,
    RequestCode.CLONE_GROUP_OFFSET: "srcGroup:s! destGroup:s! topic:s offline:b=false +rpc",
    RequestCode.VIEW_BROKER_STATS_DATA: "statsName:s! statsKey:s!",
    RequestCode.GET_BROKER_CONSUME_STATS: "isOrder:b=false",
    RequestCode.SEND_BATCH_MESSAGE: _SEND_V2,
    RequestCode.QUERY_CONSUME_QUEUE: "topic:s queueId:i=0 index:l=0 count:i=0 consumerGroup:s +topic",
    RequestCode.QUERY_DATA_VERSION: "brokerName:s! brokerAddr:s! clusterName:s! brokerId:l!",
    RequestCode.RESUME_CHECK_HALF_MESSAGE: "topic:s msgId:s",
    RequestCode.SEND_REPLY_MESSAGE: _SEND,
    RequestCode.SEND_REPLY_MESSAGE_V2: _SEND_V2,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: (
        "producerGroup:s! topic:s! defaultTopic:s! defaultTopicQueueNums:i! queueId:i! sysFlag:i! "
        "bornTimestamp:l! flag:i! properties:s reconsumeTimes:i unitMode:b=false bornHost:s! "
        "storeHost:s! storeTimestamp:l=0 +topic"
    ),
    RequestCode.ADD_WRITE_PERM_OF_BROKER: "brokerName:s!",
    RequestCode.QUERY_TOPICS_BY_CONSUMER: "group:s! +rpc",
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: "group:s! topic:s +topic",
    RequestCode.GET_TOPIC_CONFIG: "topic:s! +topic",
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: "group:s! +rpc",
    RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: "group:s! topic:s! readable:b +topic",
    RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: "topic:s! checkStoreTime:l=0",
    RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON: "configType:s!",
    RequestCode.LITE_PULL_MESSAGE: _PULL,
    RequestCode.RECALL_MESSAGE: "producerGroup:s topic:s! recallHandle:s! +topic",
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: _TOPIC,
    RequestCode.GET_BROKER_MEMBER_GROUP: "clusterName:s! brokerName:s!",
    RequestCode.ADD_BROKER: "configPath:s",
    RequestCode.REMOVE_BROKER: "brokerName:s! brokerClusterName:s! brokerId:l!",
    RequestCode.BROKER_HEARTBEAT: (
        "clusterName:s! brokerAddr:s! brokerName:s! brokerId:l epoch:i maxOffset:l confirmOffset:l "
        "heartbeatTimeoutMills:l electionPriority:i"
    ),
    RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE: (
        "minBrokerId:l brokerName:s minBrokerAddr:s offlineBrokerAddr:s haBrokerAddr:s"
    ),
    RequestCode.EXCHANGE_BROKER_HA_INFO: "masterHaAddress:s masterFlushOffset:l masterAddress:s",
    RequestCode.RESET_MASTER_FLUSH_OFFSET: "masterFlushOffset:l!",
    RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET: "brokerName:s masterBrokerId:l masterEpoch:i invokeTime:l",
    RequestCode.CONTROLLER_ELECT_MASTER: (
        "clusterName:s= brokerName:s= brokerId:l=-1 designateElect:b=false invokeTime:l"
    ),
    RequestCode.CONTROLLER_REGISTER_BROKER: "clusterName:s brokerName:s brokerId:l brokerAddress:s invokeTime:l",
    RequestCode.CONTROLLER_GET_REPLICA_INFO: "brokerName:s",
    RequestCode.NOTIFY_BROKER_ROLE_CHANGED: "masterAddress:s masterEpoch:i syncStateSetEpoch:i masterBrokerId:l",
    RequestCode.CLEAN_BROKER_DATA: (
        "clusterName:s brokerName:s! brokerControllerIdsToClean:s isCleanLivingBroker:b=false invokeTime:l"
    ),
    RequestCode.CONTROLLER_GET_NEXT_BROKER_ID: "clusterName:s brokerName:s",
    RequestCode.CONTROLLER_APPLY_BROKER_ID: "clusterName:s brokerName:s appliedBrokerId:l registerCheckCode:s",
    RequestCode.SET_COMMITLOG_READ_MODE: "READ_AHEAD_MODE:s",
    RequestCode.AUTH_CREATE_USER: "username:s",
    RequestCode.AUTH_UPDATE_USER: "username:s",
    RequestCode.AUTH_DELETE_USER: "username:s",
    RequestCode.AUTH_GET_USER: "username:s",
    RequestCode.AUTH_LIST_USER: "filter:s",
    RequestCode.AUTH_CREATE_ACL: "subject:s",
    RequestCode.AUTH_UPDATE_ACL: "subject:s",
    RequestCode.AUTH_DELETE_ACL: "subject:s policyType:s resource:s",
    RequestCode.AUTH_GET_ACL: "subject:s",
    RequestCode.AUTH_LIST_ACL: "subjectFilter:s resourceFilter:s",
    RequestCode.SWITCH_TIMER_ENGINE: "E_T:s",
    RequestCode.POP_MESSAGE: (
        "consumerGroup:s! topic:s! queueId:i=0 maxMsgNums:i=0 invisibleTime:l=0 pollTime:l=0 "
        "bornTime:l=0 initMode:i=0 expType:s exp:s order:b=false attemptId:s +topic"
    ),
    RequestCode.ACK_MESSAGE: "consumerGroup:s! topic:s! queueId:i! extraInfo:s! offset:l! liteTopic:s +topic",
    RequestCode.PEEK_MESSAGE: "topic:s! queueId:i=0 maxMsgNums:i=0 consumerGroup:s! +topic",
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: (
        "consumerGroup:s! topic:s! queueId:i! extraInfo:s! offset:l! invisibleTime:l! liteTopic:s "
        "suspend:b=false +topic"
    ),
    RequestCode.NOTIFICATION: (
        "consumerGroup:s! topic:s! queueId:i=0 pollTime:l=0 bornTime:l=0 order:b=false attemptId:s "
        "expType:s exp:s +topic"
    ),
    RequestCode.POLLING_INFO: "consumerGroup:s! topic:s! queueId:i=0 +topic",
    RequestCode.POP_LITE_MESSAGE: (
        "clientId:s! consumerGroup:s! topic:s! maxMsgNum:i=0 invisibleTime:l=0 pollTime:l=0 "
        "bornTime:l=0 attemptId:s +rpc"
    ),
    RequestCode.LITE_SUBSCRIPTION_CTL: "+rpc",
    RequestCode.NOTIFY_UNSUBSCRIBE_LITE: "liteTopic:s! consumerGroup:s! clientId:s! +rpc",
    RequestCode.GET_PARENT_TOPIC_INFO: "topic:s!",
    RequestCode.GET_LITE_TOPIC_INFO: "parentTopic:s liteTopic:s",
    RequestCode.GET_LITE_CLIENT_INFO: "parentTopic:s group:s clientId:s maxCount:i=1000",
    RequestCode.GET_LITE_GROUP_INFO: "group:s! liteTopic:s topK:i=0",
    RequestCode.TRIGGER_LITE_DISPATCH: "group:s! clientId:s",
}

REQUEST_FIELDS: Mapping[int, FieldTable] = MappingProxyType(
    {int(code): field_table(description) for code, description in _DESCRIPTIONS.items()}
)


def request_fields(code: int) -> FieldTable:
    """The fields of a request; none for codes without fields and for unknown codes."""
    return REQUEST_FIELDS.get(code, ())
