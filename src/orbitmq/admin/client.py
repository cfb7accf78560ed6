"""The operator's client for asyncio: a session, and one object per subject."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self, Unpack

from orbitmq.admin.cluster.brokers import Brokers
from orbitmq.admin.cluster.clusters import Clusters
from orbitmq.admin.cluster.controllers import Controllers
from orbitmq.admin.cluster.events import Events
from orbitmq.admin.cluster.name_servers import NameServers
from orbitmq.admin.cluster.services import Services
from orbitmq.admin.config import AdminConfig
from orbitmq.admin.definitions.definitions import DefinitionFiles
from orbitmq.admin.errors import InvalidRequestError
from orbitmq.admin.group.groups import Groups
from orbitmq.admin.group.lag import Lag
from orbitmq.admin.group.members import Members
from orbitmq.admin.group.offsets import Offsets
from orbitmq.admin.health.health import Health
from orbitmq.admin.lite.lite_topics import LiteTopics
from orbitmq.admin.message.dead_letters import DeadLetters
from orbitmq.admin.message.deferred import Deferred
from orbitmq.admin.message.delivery import Delivery
from orbitmq.admin.message.messages import Messages
from orbitmq.admin.message.waiting import Waiting
from orbitmq.admin.security.access import Access
from orbitmq.admin.session import AdminSession
from orbitmq.admin.topic.topics import Topics
from orbitmq.client.config import name_server_list
from orbitmq.client.errors import InvalidMessageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orbitmq.admin.config import AdminOptions


class AdminClient:
    """Administers clusters. It belongs to the event loop that it was started on.

    ::

        async with AdminClient("127.0.0.1:9876") as admin:
            for topic in await admin.topics.all():
                print(topic.name, topic.write_queues)

    Options are the fields of ``AdminConfig``.
    """

    def __init__(self, name_servers: str | Iterable[str] | None = None, **options: Unpack[AdminOptions]) -> None:
        """Connects with the first request. Raises InvalidRequestError."""
        try:
            addresses = name_server_list(name_servers)
        except InvalidMessageError as error:
            raise InvalidRequestError(str(error)) from error
        self.config = AdminConfig(name_servers=addresses, **options)
        self.session = session = AdminSession(self.config)
        self.brokers = Brokers(session)
        self.clusters = Clusters(session, self.brokers)
        self.name_servers = NameServers(session)
        self.controllers = Controllers(session)
        self.services = Services(session, self.brokers)
        self.topics = Topics(session, self.brokers, self.name_servers)
        self.members = Members(session, self.brokers)
        self.lag = Lag(session, self.brokers, self.topics, self.members)
        self.groups = Groups(session, self.brokers, self.topics, self.members, self.lag)
        self.offsets = Offsets(session, self.topics, self.lag)
        self.messages = Messages(session, self.topics, self.offsets)
        self.delivery = Delivery(session, self.topics, self.members, self.lag)
        self.dead_letters = DeadLetters(session, self.topics, self.messages, self.delivery)
        self.deferred = Deferred(session, self.brokers, self.topics, self.lag)
        self.waiting = Waiting(session, self.brokers, self.messages, self.lag)
        self.access = Access(session, self.brokers)
        self.lite_topics = LiteTopics(session, self.brokers, self.topics)
        self.events = Events(session, self.brokers)
        self.health = Health(session, self.brokers, self.topics, self.groups, self.members, self.dead_letters)
        self.definitions = DefinitionFiles(session, self.brokers, self.name_servers, self.topics, self.groups)

    async def start(self) -> Self:
        """Make ready. Nothing is sent."""
        await self.session.start()
        return self

    async def close(self) -> None:
        """Close all connections."""
        await self.session.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()
