"""Requests of controllers and tools to a replica: NOTIFY_BROKER_ROLE_CHANGED and GET_BROKER_EPOCH_CACHE."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.protocol.bodies.replication import EpochEntry, EpochEntryCache
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.remoting.processor import handler_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store.replication.epochs import Epochs


class ReplicaRequests:
    """Handlers that stay the same while the role of the broker changes."""

    def __init__(
        self,
        config: BrokerConfig,
        epochs: Callable[[], Epochs],
        log_end: Callable[[], int],
        on_notice: Callable[[], None],
    ) -> None:
        self._config = config
        self._epochs = epochs
        self._log_end = log_end
        self._on_notice = on_notice

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED: handler_of(self.notify),
            RequestCode.GET_BROKER_EPOCH_CACHE: handler_of(self.epoch_cache),
        }

    def notify(self, request: Command, _: Connection) -> Command:
        """NOTIFY_BROKER_ROLE_CHANGED: ask the controller now.

        What the notice says is not used: it may have waited in a buffer, or come from somebody else.
        """
        self._on_notice()
        return request.response(ResponseCode.SUCCESS)

    def epoch_cache(self, request: Command, _: Connection) -> Command:
        """GET_BROKER_EPOCH_CACHE: ``mqadmin getBrokerEpoch`` shows it."""
        entries = list(self._epochs())
        ends = [one.start for one in entries[1:]]
        parts = [EpochEntry(one.epoch, one.start, end) for one, end in zip(entries, ends, strict=False)]
        if entries:
            parts.append(EpochEntry(entries[-1].epoch, entries[-1].start))
        config = self._config
        body = EpochEntryCache(
            config.broker_cluster_name, config.broker_name, config.broker_id, parts, self._log_end()
        )
        return request.response(ResponseCode.SUCCESS, body=body.encode())
