"""ReplicaRole: what a broker may do as one of the replicas of its name, and where its master is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.store.replication.settings import BrokerRole

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.store.config import StoreConfig

log = logging.getLogger("orbitmq.broker")


class ReplicaRole:
    """Role of one broker. Shared by everything that a slave does differently."""

    def __init__(self, config: BrokerConfig, store_config: StoreConfig) -> None:
        self._config = config
        self._store_config = store_config
        self.kind = store_config.broker_role
        """``brokerRole``, fixed from start to stop."""
        self.acts_as_master = False
        """A slave that stands in for its master: consumers lock queues and read there, but it appends nothing."""
        self.master_address = ""
        """The master's address from the last answer of a name server; empty if that knows none."""
        self.is_isolated = False
        """In controller mode, true while no master is known: this broker serves tools only."""
        self.is_master_alive = False
        """On a slave, true while its master answers the requests for its tables."""
        self._found_ha_address = ""
        self.on_master_change: list[Callable[[], None]] = []
        """Called when the address of the master or of its HA listener changed."""

    @property
    def broker_id(self) -> int:
        return self._config.broker_id

    @property
    def is_slave(self) -> bool:
        return self.kind is BrokerRole.SLAVE

    @property
    def refusal(self) -> str:
        """Why a slave refuses messages."""
        return "this broker is a slave: send to its master"

    @property
    def runs_services(self) -> bool:
        """True if this broker runs the services that append: delays, timers, transaction checks, POP revive."""
        return self.kind is not BrokerRole.SLAVE

    @property
    def master_ha_address(self) -> str:
        """Where a slave connects to copy the log; empty while it is unknown."""
        return self._store_config.ha_master_address or self._found_ha_address

    def found_master(self, address: str, ha_address: str) -> None:
        """Take over the master's addresses from a name server.

        An empty ``address`` means that no master is registered. The HA address is kept then, as in RocketMQ: the
        name server may have lost a master that still runs.
        """
        before = self.master_address, self.master_ha_address
        self.master_address = address
        self._found_ha_address = ha_address or self._found_ha_address
        if (self.master_address, self.master_ha_address) == before:
            return
        if self.is_slave:
            log.info(
                "ha: master %s, HA address %s, from the name server",
                address or "unknown",
                self.master_ha_address or "unknown",
            )
        for callback in self.on_master_change:
            callback()
