"""The calls of the Admin service, over one operator's client."""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from orbitmq import __version__
from orbitmq.admin.errors import AdminError, InvalidRequestError, NotFoundError, RefusedError, UnreachableError
from orbitmq.admin.group.offsets import ResetTo
from orbitmq.admin.grpc_service import convert
from orbitmq.client.errors import OrbitMQError
from orbitmq.client.message import Message
from orbitmq.protocol.bodies.inspection import CMResult
from orbitmq.proxy.errors import StatusError, code_of_broker, ok, status_of
from orbitmq.proxy.http2.grpc_status import GrpcCode, GrpcError
from orbitmq.proxy.http2.server import Method
from orbitmq.proxy.messages.from_stored import delivered
from orbitmq.proxy.messages.validation import check_group, check_topic, milliseconds
from orbitmq.proxy.proto import admin_pb2 as rpc
from orbitmq.proxy.proto import definition_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from orbitmq.admin.client import AdminClient
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.proxy.auth_hook import Authenticate
    from orbitmq.proxy.http2.stream import Stream

log = logging.getLogger("orbitmq.admin")

NAME = "apache.rocketmq.v2.Admin"

MAX_MESSAGES = 64
"""Messages of one query; with bodies of 4 MiB an answer has 256 MiB."""

_LEVELS = {
    rpc.ChangeLogLevelRequest.TRACE: logging.DEBUG,
    rpc.ChangeLogLevelRequest.DEBUG: logging.DEBUG,
    rpc.ChangeLogLevelRequest.INFO: logging.INFO,
    rpc.ChangeLogLevelRequest.WARN: logging.WARNING,
    rpc.ChangeLogLevelRequest.ERROR: logging.ERROR,
}
_KINDS = {"topic": pb.TOPIC_NOT_FOUND, "group": pb.CONSUMER_GROUP_NOT_FOUND, "message": pb.MESSAGE_NOT_FOUND}


class AdminService:
    """The table of calls in ``methods``, by path. ``stats`` counts connections, producers and consumers."""

    def __init__(
        self, admin: AdminClient, authenticate: Authenticate, name: str, stats: Callable[[], tuple[int, int, int]]
    ) -> None:
        self._admin = admin
        self._authenticate = authenticate
        self._name = name
        self._stats = stats
        self.methods: dict[str, Method] = {}
        for rpc_name, (request, response, call) in self._calls().items():
            serve = functools.partial(self._serve, rpc_name, request, response, call)
            self.methods[f"/{NAME}/{rpc_name}"] = Method(serve)

    def _calls(self) -> dict[str, tuple[Any, Any, Callable[[Any], Awaitable[Any]]]]:
        calls: dict[str, Callable[[Any], Awaitable[Any]]] = {
            "DescribeTopicStatus": self.describe_topic_status,
            "ListSubscription": self.list_subscription,
            "DescribeSubscription": self.describe_subscription,
            "DeleteSubscription": self.delete_subscription,
            "DescribeGroupAccumulation": self.describe_group_accumulation,
            "ListConsumerConnection": self.list_consumer_connection,
            "ResetGroupOffset": self.reset_group_offset,
            "PrintThreadStackTrace": self.print_thread_stack_trace,
            "VerifyMessage": self.verify_message,
            "AdminSendMessage": self.send_message,
            "GetConsumerRunningInfo": self.get_consumer_running_info,
            "GetTopicRoute": self.get_topic_route,
            "QueryTimeSpan": self.query_time_span,
            "GetProxyRuntimeStats": self.get_proxy_runtime_stats,
            "ChangeLogLevel": self.change_log_level,
        }
        found = {
            name: (getattr(rpc, f"{name}Request"), getattr(rpc, f"{name}Response"), call)
            for name, call in calls.items()
        }
        found["QueryMessage"] = rpc.ListMessageRequest, rpc.ListMessageResponse, self.query_message
        return found

    async def _serve(
        self,
        name: str,
        request_type: Any,
        response: Any,
        call: Callable[[Any], Awaitable[Any]],
        message: bytes,
        stream: Stream,
    ) -> bytes:
        try:
            request = request_type.FromString(message)
        except DecodeError:
            raise GrpcError(GrpcCode.INTERNAL, "the message is no valid protobuf") from None
        try:
            self._authenticate(name, stream.metadata, request, stream.peer)
            answer = await call(request)
            if name != "ChangeLogLevel":
                answer.status.CopyFrom(ok())
        except (StatusError, OrbitMQError) as error:
            status = _status(error)
            answer = response(remark=status.message) if name == "ChangeLogLevel" else response(status=status)
        serialized: bytes = answer.SerializeToString()
        return serialized

    # Server

    async def change_log_level(self, request: Any) -> Any:
        level = _LEVELS.get(request.level, logging.INFO)
        logging.getLogger("orbitmq").setLevel(level)
        name = logging.getLevelName(level)
        log.log(level, "admin: log level changed to %s", name)
        return rpc.ChangeLogLevelResponse(remark=f"log level changed to {name}")

    async def get_proxy_runtime_stats(self, _: Any) -> Any:
        connections, producers, consumers = self._stats()
        running = [one.runtime for one in await self._admin.brokers.all() if one.runtime is not None]
        return rpc.GetProxyRuntimeStatsResponse(
            proxy_name=self._name,
            version=__version__,
            in_tps=sum(one.put_tps for one in running),
            out_tps=sum(one.get_tps for one in running),
            connections=connections,
            producers=producers,
            consumers=consumers,
        )

    # Topics

    async def describe_topic_status(self, request: Any) -> Any:
        found = await self._admin.topics.describe(check_topic(request.topic))
        attributes: dict[str, str] = {}
        for place in found.placements:
            attributes.update(place.attributes)
        kind = attributes.get("message.type", "NORMAL")
        types = dict(pb.MessageType.items())
        return rpc.DescribeTopicStatusResponse(
            topic_message_type=types.get(kind, pb.MESSAGE_TYPE_UNSPECIFIED), tags=attributes
        )

    async def get_topic_route(self, request: Any) -> Any:
        route = await self._admin.topics.route(check_topic(request.topic))
        return rpc.GetTopicRouteResponse(topic_route_data=route.encode(browser_compatible=True).decode())

    # Groups

    async def _connections(self, request: Any) -> list[Any]:
        """The members of the group, or of all groups of the topic."""
        if request.HasField("group"):
            return [await self._admin.members.connections(check_group(request.group))]
        found = []
        for group in await self._admin.topics.groups(check_topic(request.topic)):
            try:
                found.append(await self._admin.members.connections(group))
            except RefusedError:
                continue  # a group without members
        return found

    async def list_subscription(self, request: Any) -> Any:
        topic = request.topic.name if request.HasField("topic") else ""
        answer = rpc.ListSubscriptionResponse()
        for connections in await self._connections(request):
            check = await self._admin.members.check_subscriptions(connections.group, connections)
            answer.subscription_info.extend(
                convert.subscription_info(connections, one, agree=check.agree)
                for one in connections.subscriptions
                if topic in {"", one.topic}
            )
        return answer

    async def describe_subscription(self, request: Any) -> Any:
        topic = request.topic.name if request.HasField("topic") else ""
        answer = rpc.DescribeSubscriptionResponse()
        for connections in await self._connections(request):
            check = await self._admin.members.check_subscriptions(connections.group, connections)
            for member in connections.members:
                for one in check.by_member.get(member.client_id) or connections.subscriptions:
                    if topic in {"", one.topic}:
                        answer.client_subscription_info.add(
                            client_info=convert.client_info(member, connections.message_model),
                            subscription_info=convert.subscription_info(connections, one, agree=check.agree),
                        )
        return answer

    async def delete_subscription(self, _: Any) -> Any:
        raise StatusError(
            pb.NOT_IMPLEMENTED,
            "brokers forget a subscription when its last member leaves: there is nothing to delete",
        )

    async def list_consumer_connection(self, request: Any) -> Any:
        found = await self._admin.members.connections(check_group(request.group))
        return rpc.ListConsumerConnectionResponse(
            client_info=[convert.client_info(member, found.message_model) for member in found.members]
        )

    async def get_consumer_running_info(self, request: Any) -> Any:
        info = await self._admin.members.running_info(check_group(request.group), request.client_id)
        return rpc.GetConsumerRunningInfoResponse(consumer_running_info=convert.running_info(info))

    async def print_thread_stack_trace(self, request: Any) -> Any:
        info = await self._admin.members.running_info(
            check_group(request.group), request.client_id, with_stacks=True
        )
        return rpc.PrintThreadStackTraceResponse(thread_stack_trace=info.jstack)

    # Progress

    async def describe_group_accumulation(self, request: Any) -> Any:
        found = await self._admin.lag.of_group(check_group(request.group), may_be_empty=True)
        topics = [check_topic(topic) for topic in request.topics]
        queues = [queue for queue in found.queues if not topics or queue.topic in topics]
        answer = rpc.DescribeGroupAccumulationResponse(accumulation=convert.accumulation(queues))
        for topic in dict.fromkeys([*topics, *(queue.topic for queue in queues)]):
            chosen = [queue for queue in queues if queue.topic == topic]
            answer.topic_accumulation[topic].CopyFrom(convert.accumulation(chosen))
        return answer

    async def reset_group_offset(self, request: Any) -> Any:
        to = ResetTo(time_ms=milliseconds(request.reset_timestamp))
        await self._admin.offsets.reset(check_group(request.group), check_topic(request.topic), to)
        return rpc.ResetGroupOffsetResponse()

    async def query_time_span(self, request: Any) -> Any:
        answer = rpc.QueryTimeSpanResponse()
        group = check_group(request.group)
        for topic in request.topics:
            spans = await self._admin.lag.time_spans(group, check_topic(topic))
            answer.queue_time_span_list.extend(map(convert.time_span, spans))
        return answer

    # Messages

    async def query_message(self, request: Any) -> Any:
        topic, limit = check_topic(request.topic), min(max(request.max_message_nums, 1), MAX_MESSAGES)
        times: dict[str, int] = {}
        if request.HasField("begin_timestamp"):
            times["begin_ms"] = milliseconds(request.begin_timestamp)
        if request.HasField("end_timestamp"):
            times["end_ms"] = milliseconds(request.end_timestamp)
        kind = request.WhichOneof("search_key")
        if kind == "message_id":
            found = [await self._admin.messages.by_id(topic, request.message_id)]
        elif kind == "message_key":
            found = await self._admin.messages.by_key(topic, request.message_key, limit=limit, **times)
        elif kind == "lite_topic":
            raise StatusError(pb.NOT_IMPLEMENTED, "messages of lite topics cannot be looked up")
        else:
            found = [one async for one in self._scan(request, topic, limit, times)]
        return rpc.ListMessageResponse(messages=[delivered(one.record, one.topic) for one in found[:limit]])

    def _scan(self, request: Any, topic: str, limit: int, times: dict[str, int]) -> AsyncIterator[ReceivedMessage]:
        """Messages between two times, filtered by the tags of a subscription."""
        return self._admin.messages.read(
            topic,
            begin_ms=times.get("begin_ms"),
            end_ms=times.get("end_ms"),
            broker_name=request.broker_name,
            queue_id=request.queue_id if request.HasField("queue_id") else None,
            tags=request.subscription or "*",
            limit=limit,
        )

    async def verify_message(self, request: Any) -> Any:
        message = await self._admin.messages.by_id(check_topic(request.topic), request.message_id)
        result = await self._admin.messages.consume_directly(message, check_group(request.group), request.client_id)
        if result.consume_result is not CMResult.CR_SUCCESS:
            raise StatusError(pb.FAILED_TO_CONSUME_MESSAGE, result.remark or str(result.consume_result))
        return rpc.VerifyMessageResponse()

    async def send_message(self, request: Any) -> Any:
        system = request.system_properties
        keys = [*([request.key] if request.HasField("key") else []), *system.keys]
        tag = request.tag if request.HasField("tag") else system.tag
        message = Message(
            check_topic(request.topic),
            request.body,
            tags=tag or None,
            keys=keys,
            properties=dict(request.user_properties),
            sharding_key=system.message_group or None,
        )
        receipt = await self._admin.delivery.send(message)
        return rpc.AdminSendMessageResponse(message_id=receipt.message_id)


def _status(error: StatusError | OrbitMQError) -> pb.Status:
    if isinstance(error, StatusError):
        return status_of(error)
    code: pb.Code = pb.INTERNAL_SERVER_ERROR
    if isinstance(error, NotFoundError):
        code = _KINDS.get(error.kind, pb.NOT_FOUND)
    elif isinstance(error, RefusedError):
        code = code_of_broker(error.code)
    elif isinstance(error, UnreachableError):
        code = pb.PROXY_TIMEOUT
    elif isinstance(error, InvalidRequestError) or not isinstance(error, AdminError):
        code = pb.BAD_REQUEST
    return pb.Status(code=code, message=str(error))
