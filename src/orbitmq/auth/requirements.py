"""Requirements of requests: one table of what each request code needs of whom.

A code that is missing here is refused while authorization is on, and a test fails when ``RequestCode`` has one
without an entry. Where RocketMQ leaves a code unchecked, or checks a name of the header that the broker does not
use, the table is stricter; ``docs/security.md`` lists the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from orbitmq.auth.decision import Requirement
from orbitmq.auth.resources import Action, Pattern, Resource, ResourceType, group_resource, topic_resource
from orbitmq.protocol.bodies import (
    BatchAckMessageRequestBody,
    CheckClientRequestBody,
    CreateTopicListRequestBody,
    HeartbeatData,
    LiteSubscriptionCtlRequestBody,
    LockBatchRequestBody,
    QueryAssignmentRequestBody,
    SetMessageRequestModeRequestBody,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from orbitmq.protocol.broker_events import GET_BROKER_EVENTS
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.names import (
    AUTO_CREATE_TOPIC,
    POP_RETRY_SEPARATOR_V1,
    POP_RETRY_SEPARATOR_V2,
    RETRY_PREFIX,
    TRACE_TOPIC,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PUB, SUB, GET, LIST = Action.PUB, Action.SUB, Action.GET, Action.LIST
CREATE, UPDATE, DELETE = Action.CREATE, Action.UPDATE, Action.DELETE

EVERY_TOPIC = Resource(ResourceType.TOPIC, "", Pattern.ANY)
EVERY_GROUP = Resource(ResourceType.GROUP, "", Pattern.ANY)
"""Only a rule for all topics, or all groups, covers these: lists name what others have."""


class Environment(NamedTuple):
    """Properties of the server on which requirements depend."""

    cluster: str
    topic_at: Callable[[int], str | None]
    """The real topic of the record at an offset of the log; None without a record."""


Fields: TypeAlias = Mapping[str, str]
Rule: TypeAlias = "Callable[[Fields, bytes, Environment], Iterable[Requirement]]"


def requirements_of(code: int, fields: Fields, body: bytes, environment: Environment) -> list[Requirement] | None:
    """Requirements of a request; None for a code without an entry. Raises ProtocolError for a malformed body."""
    rule = RULES.get(code)
    return None if rule is None else list(rule(fields, body, environment))


# Building blocks


def _signed(_fields: Fields, _body: bytes, _environment: Environment) -> tuple[Requirement, ...]:
    """Nothing but a user who signed the request."""
    return ()


def _topic(*actions: Action, field: str = "topic") -> Rule:
    return lambda fields, _, __: (Requirement(topic_resource(fields.get(field, "")), actions),)


def _group(*actions: Action, field: str = "consumerGroup") -> Rule:
    return lambda fields, _, __: (Requirement(group_resource(fields.get(field, "")), actions),)


def _topic_and_group(*actions: Action, group: str = "consumerGroup") -> Rule:
    return lambda fields, _, __: of_both(fields.get("topic", ""), fields.get(group, ""), actions)


def _cluster(*actions: Action) -> Rule:
    def needed(_fields: Fields, _body: bytes, environment: Environment) -> tuple[Requirement, ...]:
        return (Requirement(Resource(ResourceType.CLUSTER, environment.cluster), actions),)

    return needed


def _every(resource: Resource, *actions: Action) -> Rule:
    return lambda _, __, ___: (Requirement(resource, actions),)


def of_both(topic: str, group: str, actions: tuple[Action, ...]) -> Iterator[Requirement]:
    """A topic and the group that reads it. The group alone, where the topic is its own retry topic."""
    if topic and not _is_retry_topic_of(topic, group):
        yield Requirement(topic_resource(topic), actions)
    yield Requirement(group_resource(group), actions)


def _is_retry_topic_of(topic: str, group: str) -> bool:
    own = RETRY_PREFIX + group
    return topic == own or topic.startswith((own + POP_RETRY_SEPARATOR_V1, own + POP_RETRY_SEPARATOR_V2))


# Rules of single requests


def _send(field: str) -> Rule:
    def needed(fields: Fields, _body: bytes, _environment: Environment) -> Iterator[Requirement]:
        topic = fields.get(field, "")
        if topic.startswith(RETRY_PREFIX):
            yield Requirement(group_resource(topic), (SUB,))
        elif topic != TRACE_TOPIC:
            # Every client traces, and RocketMQ's first access control let it.
            yield Requirement(topic_resource(topic), (PUB,))

    return needed


def _route(fields: Fields, _body: bytes, _environment: Environment) -> Iterator[Requirement]:
    topic = fields.get("topic", "")
    if topic.startswith(RETRY_PREFIX):
        yield Requirement(group_resource(topic), (SUB, GET))
    elif topic not in {TRACE_TOPIC, AUTO_CREATE_TOPIC}:
        yield Requirement(topic_resource(topic), (PUB, SUB, GET))


def _at_offset(field: str, *actions: Action) -> Rule:
    """The real topic of the record at an offset: the topic in the header is the sender's word only."""

    def needed(fields: Fields, _body: bytes, environment: Environment) -> Iterator[Requirement]:
        text = fields.get(field, "")
        topic = environment.topic_at(int(text)) if text.isascii() and text.isdigit() and len(text) < 20 else None
        if topic is not None and not topic.startswith(RETRY_PREFIX):
            yield Requirement(topic_resource(topic), actions)
        elif topic is not None:
            yield Requirement(group_resource(topic), (SUB,))

    return needed


def _send_back(fields: Fields, body: bytes, environment: Environment) -> Iterator[Requirement]:
    group = fields.get("group", "")
    yield Requirement(group_resource(group), (SUB,))
    for requirement in _at_offset("offset", SUB)(fields, body, environment):
        if requirement.resource != group_resource(group):
            yield requirement


def _unregister(fields: Fields, _body: bytes, _environment: Environment) -> Iterator[Requirement]:
    group = fields.get("consumerGroup", "")
    if group:
        yield Requirement(group_resource(group), (SUB,))


def _heartbeat(_fields: Fields, body: bytes, _environment: Environment) -> Iterator[Requirement]:
    for consumer in HeartbeatData.decode(body or b"{}").consumer_data_set:
        yield Requirement(group_resource(consumer.group_name), (SUB,))
        for subscription in consumer.subscription_data_set:
            if not subscription.topic.startswith(RETRY_PREFIX):
                yield Requirement(topic_resource(subscription.topic), (SUB,))


def _check_client(_fields: Fields, body: bytes, _environment: Environment) -> Iterator[Requirement]:
    asked = CheckClientRequestBody.decode(body or b"{}")
    yield Requirement(group_resource(asked.group), (SUB,))


def _locks(_fields: Fields, body: bytes, _environment: Environment) -> Iterator[Requirement]:
    asked = LockBatchRequestBody.decode(body or b"{}")
    yield Requirement(group_resource(asked.consumer_group), (SUB,))
    for topic in dict.fromkeys(queue.topic for queue in asked.mq_set):
        if not topic.startswith(RETRY_PREFIX):
            yield Requirement(topic_resource(topic), (SUB,))


def _batch_ack(_fields: Fields, body: bytes, _environment: Environment) -> Iterator[Requirement]:
    asked = BatchAckMessageRequestBody.decode(body or b"{}")
    for topic, group in dict.fromkeys((ack.topic, ack.consumer_group) for ack in asked.acks or ()):
        yield from of_both(topic, group, (SUB,))


def _lite_subscriptions(_fields: Fields, body: bytes, _environment: Environment) -> Iterator[Requirement]:
    asked = LiteSubscriptionCtlRequestBody.decode(body or b"{}")
    changes = asked.subscription_set or ()
    for topic, group in dict.fromkeys((change.topic or "", change.group or "") for change in changes):
        yield from of_both(topic, group, (SUB,))


def _assignment(_fields: Fields, body: bytes, _environment: Environment) -> Iterator[Requirement]:
    asked = QueryAssignmentRequestBody.decode(body or b"{}")
    return of_both(asked.topic, asked.consumer_group, (SUB,))


def _request_mode(_fields: Fields, body: bytes, _environment: Environment) -> Iterator[Requirement]:
    asked = SetMessageRequestModeRequestBody.decode(body or b"{}")
    return of_both(asked.topic, asked.consumer_group, (UPDATE,))


def _topic_list(_fields: Fields, body: bytes, _environment: Environment) -> Iterator[Requirement]:
    for topic in CreateTopicListRequestBody.decode(body or b"{}").topic_config_list:
        yield Requirement(topic_resource(topic.topic_name or ""), (CREATE,))


def _new_group(_fields: Fields, body: bytes, _environment: Environment) -> Iterator[Requirement]:
    yield Requirement(group_resource(SubscriptionGroupConfig.decode(body or b"{}").group_name or ""), (CREATE,))


def _group_list(_fields: Fields, body: bytes, _environment: Environment) -> Iterator[Requirement]:
    for group in SubscriptionGroupList.decode(body or b"{}").group_config_list:
        yield Requirement(group_resource(group.group_name or ""), (CREATE,))


def _clone(fields: Fields, _body: bytes, _environment: Environment) -> Iterator[Requirement]:
    yield Requirement(group_resource(fields.get("srcGroup", "")), (GET, UPDATE))
    yield from of_both(fields.get("topic", ""), fields.get("destGroup", ""), (UPDATE,))


def _lite_topic(fields: Fields, _body: bytes, _environment: Environment) -> Iterator[Requirement]:
    yield Requirement(topic_resource(fields.get("parentTopic", "") or fields.get("topic", "")), (GET, SUB))


_R = RequestCode
_MANAGE, _SHOW = _cluster(UPDATE), _cluster(GET)

_RULES: dict[int, Rule] = {
    # Messages
    _R.SEND_MESSAGE: _send("topic"),
    _R.SEND_MESSAGE_V2: _send("b"),
    _R.SEND_BATCH_MESSAGE: _send("b"),
    # The reply goes to the client that asked, whoever may write to the topic of its name.
    _R.SEND_REPLY_MESSAGE: _signed,
    _R.SEND_REPLY_MESSAGE_V2: _signed,
    _R.RECALL_MESSAGE: _topic(PUB),
    _R.END_TRANSACTION: _at_offset("commitLogOffset", PUB),
    _R.CONSUMER_SEND_MSG_BACK: _send_back,
    _R.PULL_MESSAGE: _topic_and_group(SUB),
    _R.LITE_PULL_MESSAGE: _topic_and_group(SUB),
    _R.POP_MESSAGE: _topic_and_group(SUB),
    _R.POP_LITE_MESSAGE: _topic_and_group(SUB),
    _R.POP_ROLLBACK: _topic_and_group(SUB),
    _R.PEEK_MESSAGE: _topic_and_group(SUB),
    _R.NOTIFICATION: _topic_and_group(SUB),
    _R.POLLING_INFO: _topic_and_group(SUB, GET),
    _R.ACK_MESSAGE: _topic_and_group(SUB),
    _R.ACK_LITE_MESSAGE: _topic_and_group(SUB),
    _R.BATCH_ACK_MESSAGE: _batch_ack,
    _R.CHANGE_MESSAGE_INVISIBLETIME: _topic_and_group(SUB),
    _R.QUERY_MESSAGE: _topic(SUB, GET),
    _R.VIEW_MESSAGE_BY_ID: _at_offset("offset", GET, SUB),
    _R.CONSUME_MESSAGE_DIRECTLY: _topic_and_group(SUB),
    _R.RESUME_CHECK_HALF_MESSAGE: _topic(UPDATE),
    # Clients
    _R.HEART_BEAT: _heartbeat,
    _R.UNREGISTER_CLIENT: _unregister,
    _R.CHECK_CLIENT_CONFIG: _check_client,
    _R.GET_CLIENT_CONFIG: _check_client,
    _R.LOCK_BATCH_MQ: _locks,
    _R.UNLOCK_BATCH_MQ: _locks,
    _R.QUERY_ASSIGNMENT: _assignment,
    _R.SET_MESSAGE_REQUEST_MODE: _request_mode,
    _R.GET_ALL_MESSAGE_REQUEST_MODE: _SHOW,
    _R.LITE_SUBSCRIPTION_CTL: _lite_subscriptions,
    _R.GET_CONSUMER_LIST_BY_GROUP: _group(SUB, GET),
    _R.GET_CONSUMER_CONNECTION_LIST: _group(GET),
    _R.GET_PRODUCER_CONNECTION_LIST: _SHOW,
    _R.GET_ALL_PRODUCER_INFO: _SHOW,
    _R.GET_CONSUMER_RUNNING_INFO: _group(GET),
    _R.GET_CONSUMER_STATUS_FROM_CLIENT: _topic_and_group(GET, group="group"),
    _R.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _topic_and_group(GET, group="group"),
    # Offsets
    _R.QUERY_BROKER_OFFSET: _topic(SUB, GET),
    _R.QUERY_CONSUMER_OFFSET: _topic_and_group(SUB, GET),
    _R.UPDATE_CONSUMER_OFFSET: _topic_and_group(SUB, UPDATE),
    _R.SEARCH_OFFSET_BY_TIMESTAMP: _topic(SUB, GET),
    _R.GET_MAX_OFFSET: _topic(SUB, GET),
    _R.GET_MIN_OFFSET: _topic(SUB, GET),
    _R.GET_EARLIEST_MSG_STORETIME: _topic(SUB, GET),
    _R.GET_ALL_CONSUMER_OFFSET: _SHOW,
    _R.GET_ALL_DELAY_OFFSET: _SHOW,
    _R.RESET_CONSUMER_CLIENT_OFFSET: _topic_and_group(UPDATE, group="group"),
    _R.RESET_CONSUMER_OFFSET_IN_CONSUMER: _topic_and_group(UPDATE, group="group"),
    _R.RESET_CONSUMER_OFFSET_IN_BROKER: _topic_and_group(UPDATE, group="group"),
    _R.INVOKE_BROKER_TO_RESET_OFFSET: _topic_and_group(UPDATE, group="group"),
    _R.CLONE_GROUP_OFFSET: _clone,
    _R.QUERY_CORRECTION_OFFSET: _topic_and_group(GET, group="compareGroup"),
    _R.GET_CONSUME_STATS: _topic_and_group(GET),
    _R.QUERY_CONSUME_TIME_SPAN: _topic_and_group(GET, group="group"),
    _R.QUERY_CONSUME_QUEUE: _topic(GET),
    _R.WHO_CONSUME_THE_MESSAGE: _SHOW,
    _R.SUSPEND_CONSUMER: _group(UPDATE),
    _R.RESUME_CONSUMER: _group(UPDATE),
    _R.ADJUST_CONSUMER_THREAD_POOL: _group(UPDATE),
    # Topics
    _R.UPDATE_AND_CREATE_TOPIC: _topic(CREATE),
    _R.UPDATE_AND_CREATE_STATIC_TOPIC: _topic(CREATE),
    _R.UPDATE_AND_CREATE_TOPIC_LIST: _topic_list,
    _R.DELETE_TOPIC_IN_BROKER: _topic(DELETE),
    _R.GET_TOPIC_CONFIG: _topic(GET),
    _R.GET_TOPIC_STATS_INFO: _topic(GET),
    _R.QUERY_TOPIC_CONSUME_BY_WHO: _topic(GET),
    _R.GET_ALL_TOPIC_CONFIG: _every(EVERY_TOPIC, LIST, GET),
    _R.GET_TOPIC_CONFIG_LIST: _every(EVERY_TOPIC, LIST, GET),
    _R.GET_TOPIC_NAME_LIST: _every(EVERY_TOPIC, LIST),
    _R.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _every(EVERY_TOPIC, LIST),
    _R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _every(EVERY_TOPIC, LIST),
    _R.GET_SYSTEM_TOPIC_LIST_FROM_NS: _every(EVERY_TOPIC, LIST),
    _R.GET_TOPICS_BY_CLUSTER: _every(EVERY_TOPIC, LIST),
    _R.GET_UNIT_TOPIC_LIST: _every(EVERY_TOPIC, LIST),
    _R.GET_HAS_UNIT_SUB_TOPIC_LIST: _every(EVERY_TOPIC, LIST),
    _R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _every(EVERY_TOPIC, LIST),
    # Groups
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _new_group,
    _R.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _group_list,
    _R.DELETE_SUBSCRIPTIONGROUP: _group(DELETE, field="groupName"),
    _R.GET_SUBSCRIPTIONGROUP_CONFIG: _group(GET, field="group"),
    _R.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _every(EVERY_GROUP, LIST, GET),
    _R.QUERY_TOPICS_BY_CONSUMER: _group(GET, field="group"),
    _R.QUERY_SUBSCRIPTION_BY_CONSUMER: _topic_and_group(GET, group="group"),
    _R.UPDATE_AND_GET_GROUP_FORBIDDEN: _topic_and_group(UPDATE, group="group"),
    # Lite topics
    _R.NOTIFY_UNSUBSCRIBE_LITE: _group(SUB),
    _R.GET_BROKER_LITE_INFO: _SHOW,
    _R.GET_PARENT_TOPIC_INFO: _topic(GET),
    _R.GET_LITE_TOPIC_INFO: _lite_topic,
    _R.GET_LITE_CLIENT_INFO: _group(GET, field="group"),
    _R.GET_LITE_GROUP_INFO: _group(GET, field="group"),
    _R.TRIGGER_LITE_DISPATCH: _group(UPDATE, field="group"),
    # The broker
    _R.UPDATE_BROKER_CONFIG: _MANAGE,
    _R.GET_BROKER_CONFIG: _SHOW,
    _R.TRIGGER_DELETE_FILES: _MANAGE,
    _R.CLEAN_EXPIRED_CONSUMEQUEUE: _MANAGE,
    _R.DELETE_EXPIRED_COMMITLOG: _MANAGE,
    _R.CLEAN_UNUSED_TOPIC: _MANAGE,
    _R.SET_COMMITLOG_READ_MODE: _MANAGE,
    _R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: _MANAGE,
    _R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: _MANAGE,
    _R.SWITCH_TIMER_ENGINE: _MANAGE,
    _R.REGISTER_FILTER_SERVER: _MANAGE,
    _R.REGISTER_MESSAGE_FILTER_CLASS: _MANAGE,
    _R.GET_COLD_DATA_FLOW_CTR_INFO: _SHOW,
    _R.GET_BROKER_RUNTIME_INFO: _SHOW,
    _R.GET_BROKER_CONSUME_STATS: _SHOW,
    _R.VIEW_BROKER_STATS_DATA: _SHOW,
    _R.GET_TIMER_CHECK_POINT: _SHOW,
    _R.GET_TIMER_METRICS: _SHOW,
    GET_BROKER_EVENTS: _SHOW,
    _R.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: _SHOW,
    _R.EXPORT_ROCKSDB_CONFIG_TO_JSON: _MANAGE,
    # The name server
    _R.GET_ROUTEINFO_BY_TOPIC: _route,
    _R.GET_BROKER_CLUSTER_INFO: _SHOW,
    _R.PUT_KV_CONFIG: _MANAGE,
    _R.GET_KV_CONFIG: _SHOW,
    _R.DELETE_KV_CONFIG: _MANAGE,
    _R.GET_KVLIST_BY_NAMESPACE: _SHOW,
    _R.REGISTER_BROKER: _MANAGE,
    _R.UNREGISTER_BROKER: _MANAGE,
    _R.BROKER_HEARTBEAT: _MANAGE,
    _R.QUERY_DATA_VERSION: _cluster(GET, UPDATE),
    _R.GET_BROKER_MEMBER_GROUP: _SHOW,
    _R.REGISTER_TOPIC_IN_NAMESRV: _MANAGE,
    _R.DELETE_TOPIC_IN_NAMESRV: _MANAGE,
    _R.WIPE_WRITE_PERM_OF_BROKER: _MANAGE,
    _R.ADD_WRITE_PERM_OF_BROKER: _MANAGE,
    _R.UPDATE_NAMESRV_CONFIG: _MANAGE,
    _R.GET_NAMESRV_CONFIG: _SHOW,
    # Users and rules
    _R.AUTH_CREATE_USER: _MANAGE,
    _R.AUTH_UPDATE_USER: _MANAGE,
    _R.AUTH_DELETE_USER: _MANAGE,
    _R.AUTH_GET_USER: _SHOW,
    _R.AUTH_LIST_USER: _SHOW,
    _R.AUTH_CREATE_ACL: _MANAGE,
    _R.AUTH_UPDATE_ACL: _MANAGE,
    _R.AUTH_DELETE_ACL: _MANAGE,
    _R.AUTH_GET_ACL: _SHOW,
    _R.AUTH_LIST_ACL: _SHOW,
    _R.UPDATE_AND_CREATE_ACL_CONFIG: _MANAGE,
    _R.DELETE_ACL_CONFIG: _MANAGE,
    _R.GET_BROKER_CLUSTER_ACL_INFO: _SHOW,
    _R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: _MANAGE,
    _R.GET_BROKER_CLUSTER_ACL_CONFIG: _MANAGE,
}

_OF_SERVERS = (
    *(_R.ADD_BROKER, _R.REMOVE_BROKER, _R.NOTIFY_MIN_BROKER_ID_CHANGE, _R.EXCHANGE_BROKER_HA_INFO),
    *(_R.GET_BROKER_HA_STATUS, _R.RESET_MASTER_FLUSH_OFFSET, _R.CONTROLLER_ALTER_SYNC_STATE_SET),
    *(_R.CONTROLLER_ELECT_MASTER, _R.CONTROLLER_REGISTER_BROKER, _R.CONTROLLER_GET_REPLICA_INFO),
    *(_R.CONTROLLER_GET_METADATA_INFO, _R.CONTROLLER_GET_SYNC_STATE_DATA, _R.GET_BROKER_EPOCH_CACHE),
    *(_R.NOTIFY_BROKER_ROLE_CHANGED, _R.UPDATE_CONTROLLER_CONFIG, _R.GET_CONTROLLER_CONFIG, _R.CLEAN_BROKER_DATA),
    *(_R.CONTROLLER_GET_NEXT_BROKER_ID, _R.CONTROLLER_APPLY_BROKER_ID, _R.BROKER_CLOSE_CHANNEL_REQUEST),
    *(_R.CHECK_NOT_ACTIVE_BROKER_REQUEST, _R.GET_BROKER_LIVE_INFO_REQUEST, _R.GET_SYNC_STATE_DATA_REQUEST),
    _R.RAFT_BROKER_HEART_BEAT_EVENT_REQUEST,
    # Sent by brokers to clients; a broker that serves one relays it.
    *(_R.CHECK_TRANSACTION_STATE, _R.NOTIFY_CONSUMER_IDS_CHANGED, _R.PUSH_REPLY_MESSAGE_TO_CLIENT),
)
"""Requests that servers send each other, or to their clients."""

RULES: Mapping[int, Rule] = MappingProxyType(
    {**{int(code): rule for code, rule in _RULES.items()}, **{int(code): _MANAGE for code in _OF_SERVERS}}
)
"""The rule of each request code."""
