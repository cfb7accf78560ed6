"""The other members of a consumer group: the queues that they still hold, and subscriptions that differ.

A group is one reader of its topics, so all members must subscribe to the same topics with the same filters.
RocketMQ does not check that: with different ones, messages are lost for the group.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from orbitmq.client.errors import OrbitMQError
from orbitmq.filter import is_tag_type
from orbitmq.protocol.bodies import ConsumerRunningInfo, GetConsumerStatusBody
from orbitmq.protocol.codes import LanguageCode, RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.names import RETRY_PREFIX
from orbitmq.remoting import RemotingError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orbitmq.client.instance.instance import ClientInstance
    from orbitmq.protocol.bodies import MessageQueue, SubscriptionData

log = logging.getLogger("orbitmq.client")

POLL_SECONDS = 0.05
CALL_SECONDS = 1.0


class GroupPeers:
    """The other members, as the brokers know them."""

    def __init__(self, instance: ClientInstance, group: str, client_id: str) -> None:
        self._instance = instance
        self._group = group
        self._client_id = client_id
        self._warned: set[str] = set()

    async def released(self, topic: str, queues: Sequence[MessageQueue], seconds: float) -> None:
        """Wait until no other member holds these queues, or until the time is over.

        A member that gives up a queue commits its offset. A new owner that begins before that would consume the
        same messages again.
        """
        clock = self._instance.clock
        deadline = clock.monotonic() + seconds
        waiting = set(queues)
        while waiting:
            waiting &= await self._held(topic, {queue.broker_name for queue in waiting})
            if not waiting or clock.monotonic() >= deadline:
                return
            await asyncio.sleep(POLL_SECONDS)

    async def _held(self, topic: str, brokers: Iterable[str]) -> set[MessageQueue]:
        """Queues that other members hold; none where a broker does not respond."""
        found: set[MessageQueue] = set()
        for broker in brokers:
            address = self._instance.address(topic, broker, only_this=False)
            fields = {"topic": topic, "group": self._group, "clientAddr": ""}
            body = await self._ask(address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields)
            if body is None:
                continue
            for client_id, offsets in GetConsumerStatusBody.decode(body).consumer_table.items():
                if client_id != self._client_id:
                    found.update(offsets)
        return found

    async def compare_subscriptions(self, members: Sequence[str], own: Sequence[SubscriptionData]) -> None:
        """Warn if the next member of the group subscribes differently.

        Every member checks its successor, so that a difference anywhere in the group is found with one request of
        each member.
        """
        if self._client_id not in members or len(members) < 2 or not own:
            return
        peer = members[(members.index(self._client_id) + 1) % len(members)]
        address = self._instance.any_address(own[0].topic)
        fields = {"consumerGroup": self._group, "clientId": peer, "jstackEnable": "false"}
        body = await self._ask(address, RequestCode.GET_CONSUMER_RUNNING_INFO, fields)
        if body is None:
            return
        mine, theirs = described(own), described(ConsumerRunningInfo.decode(body).subscription_set)
        if mine == theirs:
            return
        text = (
            f"{peer} subscribes {_shown(theirs - mine)} where this member subscribes {_shown(mine - theirs)}: "
            "messages will be lost for the group, all members need the same subscriptions"
        )
        if text not in self._warned:
            self._warned.add(text)
            log.warning("subscription: members of the group %s differ: %s", self._group, text)

    async def _ask(self, address: str | None, code: RequestCode, fields: dict[str, str]) -> bytes | None:
        if address is None:
            return None
        command = Command(code, ext_fields=fields, language=LanguageCode.PYTHON)
        try:
            return (await self._instance.call(address, command, CALL_SECONDS)).body
        except (OrbitMQError, RemotingError, ProtocolError) as error:
            # An older broker, or one that allows this to operators only.
            log.debug("group: %s did not answer %s of %s: %s", address, code.name, self._group, error)
            return None


def described(subscriptions: Iterable[SubscriptionData]) -> frozenset[str]:
    """Topics with their filters, for comparison: the order of tags makes no difference."""
    return frozenset(
        f"{one.topic} by {' || '.join(sorted(one.tags_set)) or one.sub_string}"
        if is_tag_type(one.expression_type)
        else f"{one.topic} by {one.expression_type} {one.sub_string}"
        for one in subscriptions
        if not one.topic.startswith(RETRY_PREFIX)
    )


def _shown(texts: Iterable[str]) -> str:
    return "; ".join(text[:200] for text in sorted(texts)[:5]) or "nothing"
