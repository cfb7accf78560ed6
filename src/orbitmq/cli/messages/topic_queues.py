"""The queues that ``orbitmq tail`` follows, with those that are added to the topic later."""

import asyncio
import time
from typing import TYPE_CHECKING

from orbitmq.cli.messages.queue_choice import QueueChoice
from orbitmq.cli.output import complain
from orbitmq.client.errors import NoRouteError, OrbitMQError
from orbitmq.platform.settings import ConfigError

if TYPE_CHECKING:
    from orbitmq.client.lite_pull.consumer import LitePullConsumer
    from orbitmq.protocol.bodies import MessageQueue

BEGINNING, END = "beginning", "end"

CHECK_SECONDS = 1.0
"""Interval of the check whether a missing topic exists now."""


class FollowedQueues:
    """Assignment of all queues of a topic, including queues added later."""

    def __init__(self, consumer: "LitePullConsumer", topic: str, choice: QueueChoice) -> None:
        self._consumer = consumer
        self._topic = topic
        self._choice = choice
        self._read: set[MessageQueue] = set()
        self._positions: dict[MessageQueue, int] = {}
        self._later: str | float = BEGINNING
        """Start position of queues added later."""
        self._adding: set[asyncio.Task[None]] = set()
        consumer.register_topic_message_queue_change_listener(topic, self._changed)

    async def begin(self, when: str | float, positions: dict["MessageQueue", int]) -> None:
        """Start to read all existing queues at a position, or at those given. Raises OrbitMQError if all fail."""
        self._positions = positions
        # A broker that is down now may return with old messages, so queues added later do not start at 0.
        self._later = time.time() if when == END else when
        queues = await self._found()
        if not queues:
            complain(f"topic {self._topic!r} does not exist yet, waiting for it")
            # Every message of a topic created from now on is newer than this command.
            when = BEGINNING
            while not queues:
                await asyncio.sleep(CHECK_SECONDS)
                queues = await self._found()
        errors = await self._add(queues, when)
        if len(errors) == len(queues):
            raise errors[0]
        for error in errors:
            complain(str(error))

    async def _found(self) -> set["MessageQueue"]:
        try:
            queues = await self._consumer.fetch_message_queues(self._topic)
        except NoRouteError:
            return set()
        if not queues:
            raise ConfigError(f"topic {self._topic!r} has no read permission")
        return self._choice.of(queues)

    async def _add(self, queues: set["MessageQueue"], when: str | float) -> list[OrbitMQError]:
        self._read |= queues
        self._consumer.assign(self._read)
        ended = await asyncio.gather(*(self._seek(queue, when) for queue in queues))
        failed = {queue: error for queue, error in zip(queues, ended, strict=True) if error is not None}
        if failed:
            # When its broker is back, the queue is added as a new one.
            self._read -= failed.keys()
            self._consumer.assign(self._read)
        return list(failed.values())

    async def _seek(self, queue: "MessageQueue", when: str | float) -> OrbitMQError | None:
        try:
            if queue in self._positions:
                await self._consumer.seek(queue, self._positions[queue])
            elif when == BEGINNING:
                await self._consumer.seek_to_begin(queue)
            elif when == END:
                await self._consumer.seek_to_end(queue)
            else:
                await self._consumer.seek_to_time(queue, float(when))
        except OrbitMQError as error:
            return error
        return None

    def _changed(self, _: str, queues: frozenset["MessageQueue"]) -> None:
        # Removed queues stay assigned: their broker may return, and reading continues at the same offset.
        new = {queue for queue in queues - self._read if self._choice.has(queue)}
        if new and self._read:
            task = asyncio.get_running_loop().create_task(self._add_later(new))
            self._adding.add(task)
            task.add_done_callback(self._adding.discard)

    async def _add_later(self, queues: set["MessageQueue"]) -> None:
        for error in await self._add(queues, self._later):
            complain(str(error))
