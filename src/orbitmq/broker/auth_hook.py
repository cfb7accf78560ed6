"""Access control of a broker: its place on disk, and the topics that records belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.auth.access import AccessControl, Place
from orbitmq.auth.requirements import Environment
from orbitmq.broker.deferred.real_topic import real_topic_of
from orbitmq.platform.threads import in_thread
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.message.record import decode_record

if TYPE_CHECKING:
    from orbitmq.broker.config.loader import BrokerSettings
    from orbitmq.platform.clock import Clock
    from orbitmq.platform.disk import Disk
    from orbitmq.store import MessageStore


def access_of(settings: BrokerSettings, disk: Disk, clock: Clock) -> AccessControl:
    """The access control of a broker, with its files under ``config/``."""
    place = Place(disk, settings.store.path("config"), in_thread, clock.now_ms)
    return AccessControl(settings.broker, place, home=settings.broker.rocketmq_home)


def environment_of(settings: BrokerSettings, store: MessageStore) -> Environment:
    return Environment(settings.broker.broker_cluster_name, lambda offset: topic_at(store, offset))


def topic_at(store: MessageStore, offset: int) -> str | None:
    """The topic of the record at an offset; of a deferred message the one that it will be delivered to."""
    try:
        stored = store.record(offset)
        if stored is None:
            return None
        record = decode_record(stored)
    except ProtocolError:
        return None
    return real_topic_of(record.properties) or record.topic
