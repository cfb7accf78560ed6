"""AckMessage, ChangeInvisibleDuration and ForwardMessageToDeadLetterQueue."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.proxy.errors import StatusError, broker_status, ok, status_of
from orbitmq.proxy.messages.popped import Handle
from orbitmq.proxy.messages.validation import check_group, check_topic, milliseconds
from orbitmq.proxy.proto import definition_pb2 as pb
from orbitmq.proxy.proto import service_pb2 as rpc
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from orbitmq.proxy.clients.client import Client
    from orbitmq.proxy.context import CallContext
    from orbitmq.proxy.messaging.renewal import Renewals
    from orbitmq.proxy.messaging.runtime import Runtime

log = logging.getLogger("orbitmq.proxy")

MAX_ENTRIES = 4096
"""Messages of one AckMessage."""

SECONDS = 3.0
"""Time for requests that no call waits for."""


class AckCalls:
    """Acknowledgements, refusals and dead letters of consumers."""

    renewals: Renewals
    """Set by the service: either needs the other."""

    def __init__(self, runtime: Runtime) -> None:
        self._config = runtime.config
        self._clock = runtime.clock
        self._backend = runtime.backend

    async def ack_message(
        self, request: rpc.AckMessageRequest, client: Client, call: CallContext
    ) -> rpc.AckMessageResponse:
        topic, group = check_topic(request.topic), check_group(request.group)
        if len(request.entries) > MAX_ENTRIES:
            raise StatusError(pb.BAD_REQUEST, f"at most {MAX_ENTRIES} messages can be acknowledged at once")
        response = rpc.AckMessageResponse()
        codes = set()
        for entry in request.entries:
            status = await self._ack(client, topic, group, entry, call.timeout)
            codes.add(status.code)
            response.entries.add(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=status)
        if not codes:
            raise StatusError(pb.INTERNAL_SERVER_ERROR, "no message is named: ack result is empty")
        if len(codes) > 1:
            response.status.code, response.status.message = pb.MULTIPLE_RESULTS, "mixed results"
        else:
            response.status.CopyFrom(response.entries[0].status)
        return response

    async def _ack(
        self,
        client: Client,
        topic: str,
        group: str,
        entry: rpc.AckMessageEntry,
        timeout: float,  # noqa: ASYNC109
    ) -> pb.Status:
        try:
            handle = await self._latest(client, entry.receipt_handle, entry.lite_topic)
            command = Command(RequestCode.ACK_MESSAGE, ext_fields=handle.fields(topic, group))
            answer = await client.call(handle.receipt.broker_name, command, timeout)
        except (StatusError, RemotingError) as error:
            return status_of(error)
        if answer.code != ResponseCode.SUCCESS:
            return pb.Status(
                code=pb.INTERNAL_SERVER_ERROR,
                message=f"ack failed: status is abnormal: {answer.remark or answer.code}",
            )
        return ok()

    async def _latest(self, client: Client, given: str, lite_topic: str) -> Handle:
        """The latest receipt of a message, which is not renewed any longer. Raises StatusError."""
        handle = await self.renewals.take(client, given)
        if handle is None:
            handle = Handle.parse(given, lite_topic)
        if handle.visible_ms <= self._clock.now_ms():
            raise StatusError(pb.INVALID_RECEIPT_HANDLE, "receipt handle is expired")
        return handle

    async def change_invisible_duration(
        self, request: rpc.ChangeInvisibleDurationRequest, client: Client, call: CallContext
    ) -> rpc.ChangeInvisibleDurationResponse:
        topic, group = check_topic(request.topic), check_group(request.group)
        duration = milliseconds(request.invisible_duration)
        if not 0 <= duration <= self._config.max_invisible_time_mills:
            raise StatusError(
                pb.ILLEGAL_INVISIBLE_TIME,
                f"the invisibleTime {duration} ms is not between 0 and {self._config.max_invisible_time_mills} ms",
            )
        client.require_settings()
        handle = await self._latest(client, request.receipt_handle, request.lite_topic)
        changed = await self.change(
            client, topic, group, handle, duration, is_suspended=request.suspend, seconds=call.timeout
        )
        return rpc.ChangeInvisibleDurationResponse(status=ok(), receipt_handle=str(changed))

    async def change(
        self,
        client: Client,
        topic: str,
        group: str,
        handle: Handle,
        duration: int,
        *,
        is_suspended: bool = False,
        seconds: float = SECONDS,
    ) -> Handle:
        """Change the invisible time of a message, and return its new handle. Raises StatusError and RemotingError.

        With ``is_suspended`` the next delivery does not count as an attempt.
        """
        fields = handle.fields(topic, group)
        fields["invisibleTime"] = str(duration)
        fields["suspend"] = "true" if is_suspended else "false"
        command = Command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext_fields=fields)
        answer = await client.call(handle.receipt.broker_name, command, seconds)
        if answer.code != ResponseCode.SUCCESS:
            raise StatusError(pb.INTERNAL_SERVER_ERROR, answer.remark or "the invisible time was not changed")
        receipt = handle.receipt
        now, get = self._clock.now_ms(), answer.ext_fields.get
        changed = receipt._replace(
            start_offset=receipt.start_offset if receipt.is_orderly else receipt.offset,
            pop_time=int(get("popTime", now)),
            invisible_ms=int(get("invisibleTime", duration)),
            revive_queue=int(get("reviveQid", receipt.revive_queue)),
        )
        return Handle(changed, handle.physical_offset, handle.lite_topic)

    async def give_back(self, client: Client, topic: str, group: str, handle: Handle) -> None:
        """Make a message visible again that its consumer did not get, or will not finish."""
        if handle.visible_ms <= self._clock.now_ms():
            return
        fields = handle.fields(topic, group)
        fields["invisibleTime"] = str(self._config.invisible_time_millis_when_clear)
        fields["suspend"] = "true"
        command = Command(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, ext_fields=fields)
        try:
            # The client may be gone, and its connections with it.
            connection = await self._backend.connect(handle.receipt.broker_name, client.address)
            if self._backend.sign is not None:
                self._backend.sign(command)
            try:
                await connection.call(command, SECONDS)
            finally:
                connection.close()
        except (RemotingError, StatusError) as error:
            log.warning("consumer: message of group %s stays invisible until its time: %s", group, error)

    async def forward_to_dead_letter_queue(
        self, request: rpc.ForwardMessageToDeadLetterQueueRequest, client: Client, call: CallContext
    ) -> rpc.ForwardMessageToDeadLetterQueueResponse:
        topic, group = check_topic(request.topic), check_group(request.group)
        client.require_settings()
        given = request.receipt_handle
        handle = await self.renewals.take(client, given) or Handle.parse(given, request.lite_topic)
        if handle.physical_offset < 0:
            raise StatusError(pb.INVALID_RECEIPT_HANDLE, "the receipt handle has no commit log offset")
        await self.dead_letter(client, topic, group, handle, request.message_id, call.timeout)
        return rpc.ForwardMessageToDeadLetterQueueResponse(status=pb.Status(code=pb.OK, message="0"))

    async def dead_letter(
        self,
        client: Client,
        topic: str,
        group: str,
        handle: Handle,
        message_id: str,
        timeout: float,  # noqa: ASYNC109
    ) -> None:
        """Copy a message to the dead letter queue of its group, then acknowledge it. Raises StatusError."""
        receipt = handle.receipt
        fields = {
            "offset": str(handle.physical_offset),
            "group": group,
            "delayLevel": "-1",
            "originMsgId": message_id,
            "originTopic": handle.fields(topic, group)["topic"],
            "maxReconsumeTimes": "0",
            "unitMode": "false",
            "bname": receipt.broker_name,
        }
        command = Command(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=fields)
        answer = await client.call(receipt.broker_name, command, timeout)
        if answer.code != ResponseCode.SUCCESS:
            raise broker_status(answer)
        command = Command(RequestCode.ACK_MESSAGE, ext_fields=handle.fields(topic, group))
        await client.call(receipt.broker_name, command, timeout)
