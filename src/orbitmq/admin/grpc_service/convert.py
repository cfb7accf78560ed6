"""Values of the operator's client as messages of the Admin service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orbitmq.proxy.messages.from_stored import resource_of
from orbitmq.proxy.proto import admin_pb2 as rpc
from orbitmq.proxy.proto import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.admin.group.model import Connections, Member, QueueLag, Subscription
    from orbitmq.protocol.bodies import ConsumerRunningInfo, MessageQueue, QueueTimeSpan

_MODELS = {
    "CLUSTERING": rpc.CLUSTERING,
    "BROADCASTING": rpc.BROADCASTING,
    "LITE_SELECTIVE": rpc.LITE_SELECTIVE,
}
_PROCESS_QUEUE = (
    "commit_offset", "cached_msg_min_offset", "cached_msg_max_offset", "cached_msg_count", "cached_msg_size_in_mib",
    "transaction_msg_min_offset", "transaction_msg_max_offset", "transaction_msg_count", "locked",
    "try_unlock_times", "last_lock_timestamp", "last_pull_timestamp", "last_consume_timestamp",
)  # fmt: skip


def resource(name: str) -> pb.Resource:
    namespace, short = resource_of(name)
    return pb.Resource(resource_namespace=namespace, name=short)


def client_info(member: Member, model: str) -> Any:
    host = member.address.rpartition(":")[0]
    return rpc.ClientInfo(
        client_id=member.client_id,
        version=member.version,
        language=member.language,
        hostname=member.client_id.partition("@")[0],
        egress_ip=host.strip("[]"),
        message_model=_MODELS.get(model, rpc.MESSAGE_MODEL_UNSPECIFIED),
    )


def expression(kind: str, text: str) -> pb.FilterExpression:
    return pb.FilterExpression(type=pb.SQL if kind == "SQL92" else pb.TAG, expression=text)


def subscription_info(connections: Connections, one: Subscription, *, agree: bool) -> Any:
    return rpc.SubscriptionInfo(
        group=resource(connections.group),
        topic=resource(one.topic),
        expression=expression(one.expression_type, one.expression),
        online=True,
        message_model=_MODELS.get(connections.message_model, rpc.MESSAGE_MODEL_UNSPECIFIED),
        subscription_consistency=agree,
    )


def accumulation(queues: Iterable[QueueLag]) -> Any:
    """In flight are messages that members have; ready those that they do not have yet."""
    chosen = list(queues)
    total = sum(queue.lag for queue in chosen)
    inflight = min(total, sum(queue.inflight for queue in chosen))
    return rpc.DescribeGroupAccumulationResponse.GroupAccumulation(
        inflight_messages=inflight,
        ready_messages=total - inflight,
        accumulation=total,
        last_consume_timestamp=max((queue.last_timestamp_ms for queue in chosen), default=0),
    )


def message_queue(queue: MessageQueue) -> pb.MessageQueue:
    return pb.MessageQueue(topic=resource(queue.topic), id=queue.queue_id, broker=pb.Broker(name=queue.broker_name))


def time_span(span: QueueTimeSpan) -> Any:
    found = rpc.QueryTimeSpanResponse.QueueTimeSpan(
        min_timestamp=span.min_time_stamp,
        max_timestamp=span.max_time_stamp,
        consume_timestamp=span.consume_time_stamp,
        delay_time_ms=span.delay_time,
    )
    if span.message_queue is not None:
        found.message_queue.CopyFrom(message_queue(span.message_queue))
    return found


def running_info(info: ConsumerRunningInfo) -> Any:
    found = rpc.ConsumerRunningInfo(properties=info.properties)
    for one in info.subscription_set:
        found.subscriptions[one.topic].CopyFrom(expression(one.expression_type or "TAG", one.sub_string))
    for queue, state in info.mq_table.items():
        item = found.message_queue_table.add()
        item.message_queue.CopyFrom(message_queue(queue))
        for name in _PROCESS_QUEUE:
            setattr(item.process_queue_info, name, getattr(state, name))
        item.process_queue_info.dropped = state.droped
    for topic, status in info.status_table.items():
        found.consume_status_table[topic].CopyFrom(
            rpc.ConsumeStatus(
                receive_rt=status.pull_rt,
                receive_tps=status.pull_tps,
                consume_rt=status.consume_rt,
                consume_ok_tps=status.consume_ok_tps,
                consume_failed_tps=status.consume_failed_tps,
                consume_failed_msgs=status.consume_failed_msgs,
            )
        )
    return found
