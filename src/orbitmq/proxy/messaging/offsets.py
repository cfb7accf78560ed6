"""PullMessage, UpdateOffset, GetOffset and QueryOffset: for consumers that read queues by offset."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.batch import split_record
from orbitmq.protocol.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.protocol.message.record import iter_records
from orbitmq.proxy.clients.registration import filter_data
from orbitmq.proxy.errors import StatusError, broker_status, ok, status_of
from orbitmq.proxy.messages.from_stored import delivered
from orbitmq.proxy.messages.validation import check_group, check_topic, milliseconds
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.context import CallContext
    from orbitmq.proxy.messaging.runtime import Runtime

    Write = Callable[..., Awaitable[None]]

MAX_MESSAGES = 32
GRACE_SECONDS = 3.0
"""Time for the response of a broker after the end of its long polling."""

_EMPTY = frozenset(
    {ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED}
)


class OffsetCalls:
    """Reads by offset, and the offsets of groups."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._config = runtime.config
        self._clock = runtime.clock

    async def pull_message(
        self, request: rpc.PullMessageRequest, client: Client, call: CallContext, write: Write
    ) -> None:
        """Stream a status, the messages, and the offset to go on from."""
        try:
            answer = await self._pull(request, client, call)
            records = [
                record for stored in iter_records(answer.body or b"") for record in split_record(stored)
            ] if answer.code == ResponseCode.SUCCESS else []  # fmt: skip
            following = int(answer.ext_fields["nextBeginOffset"])
        except (StatusError, RemotingError, ProtocolError) as error:
            await write(rpc.PullMessageResponse(status=status_of(error)))
            return
        # Records of batches may begin before the offset.
        records = [record for record in records if record.queue_offset >= request.offset]
        status = ok() if records else pb.Status(code=pb.MESSAGE_NOT_FOUND, message="no new message")
        await write(rpc.PullMessageResponse(status=status))
        topic = request.message_queue.topic.name
        for record in records:
            await write(rpc.PullMessageResponse(message=delivered(record, topic)))
        await write(rpc.PullMessageResponse(next_offset=following))

    async def _pull(self, request: rpc.PullMessageRequest, client: Client, call: CallContext) -> Command:
        topic, group = check_topic(request.message_queue.topic), check_group(request.group)
        await self._runtime.group(group)
        if request.offset < 0:
            raise StatusError(pb.ILLEGAL_OFFSET, f"offset {request.offset} must not be negative")
        wanted = filter_data(topic, request.filter_expression, 0)
        left = 0 if call.seconds is None else int(call.seconds * 1000) - 500
        longest = self._config.grpc_client_consumer_max_long_polling_timeout_millis
        polling = max(0, min(milliseconds(request.long_polling_timeout), longest, left))
        fields = {
            **_queue_fields(request.message_queue),
            "consumerGroup": group,
            "queueOffset": str(request.offset),
            "maxMsgNums": str(min(max(request.batch_size, 1), MAX_MESSAGES)),
            "sysFlag": str(PULL_SUBSCRIPTION | (PULL_SUSPEND if polling else 0)),
            "commitOffset": "0",
            "suspendTimeoutMillis": str(polling),
            "subscription": wanted.sub_string,
            "subVersion": "0",
            "expressionType": wanted.expression_type,
        }
        command = Command(RequestCode.PULL_MESSAGE, ext_fields=fields)
        answer = await client.call(_broker_of(request.message_queue), command, polling / 1000 + GRACE_SECONDS)
        if answer.code != ResponseCode.SUCCESS and answer.code not in _EMPTY:
            raise broker_status(answer)
        return answer

    async def update_offset(
        self, request: rpc.UpdateOffsetRequest, client: Client, call: CallContext
    ) -> rpc.UpdateOffsetResponse:
        group = check_group(request.group)
        check_topic(request.message_queue.topic)
        await self._runtime.group(group)
        if request.offset < 0:
            raise StatusError(pb.ILLEGAL_OFFSET, f"offset {request.offset} must not be negative")
        fields = {
            **_queue_fields(request.message_queue),
            "consumerGroup": group,
            "commitOffset": str(request.offset),
        }
        command = Command(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=fields)
        await client.checked_call(_broker_of(request.message_queue), command, call.timeout)
        return rpc.UpdateOffsetResponse(status=ok())

    async def get_offset(
        self, request: rpc.GetOffsetRequest, client: Client, call: CallContext
    ) -> rpc.GetOffsetResponse:
        group = check_group(request.group)
        check_topic(request.message_queue.topic)
        fields = {
            **_queue_fields(request.message_queue),
            "consumerGroup": group,
            # Without it a broker answers 0 for a group that has consumed nothing of a young queue.
            "setZeroIfNotFound": "false",
        }
        command = Command(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields)
        answer = await client.call(_broker_of(request.message_queue), command, call.timeout)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            raise StatusError(pb.OFFSET_NOT_FOUND, f"group {group} has no offset of this queue")
        if answer.code != ResponseCode.SUCCESS:
            raise broker_status(answer)
        return rpc.GetOffsetResponse(status=ok(), offset=int(answer.ext_fields["offset"]))

    async def query_offset(
        self, request: rpc.QueryOffsetRequest, client: Client, call: CallContext
    ) -> rpc.QueryOffsetResponse:
        check_topic(request.message_queue.topic)
        fields = _queue_fields(request.message_queue)
        policy = request.query_offset_policy
        if policy == pb.TIMESTAMP:
            if not request.HasField("timestamp"):
                raise StatusError(pb.BAD_REQUEST, "the policy TIMESTAMP needs a timestamp")
            code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
            fields["timestamp"] = str(milliseconds(request.timestamp))
        else:
            code = RequestCode.GET_MAX_OFFSET if policy == pb.END else RequestCode.GET_MIN_OFFSET
        answer = await client.checked_call(
            _broker_of(request.message_queue), Command(code, ext_fields=fields), call.timeout
        )
        return rpc.QueryOffsetResponse(status=ok(), offset=int(answer.ext_fields["offset"]))


def _queue_fields(queue: pb.MessageQueue) -> dict[str, str]:
    return {"topic": queue.topic.name, "queueId": str(queue.id), "bname": queue.broker.name}


def _broker_of(queue: pb.MessageQueue) -> str:
    name = queue.broker.name
    if not name.strip():
        raise StatusError(pb.BAD_REQUEST, "the message queue has no broker name")
    return str(name)
