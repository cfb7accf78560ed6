"""Term: the role of a broker in one epoch of its group, and what every part of the broker shares of it."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.broker.ha.role import ReplicaRole
from orbitmq.store.replication.settings import BrokerRole

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orbitmq.broker.autoswitch.lease import Lease
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.remoting import Handler
    from orbitmq.store.config import StoreConfig
    from orbitmq.store.replication.epochs import EpochFile
    from orbitmq.store.replication.sync_state import SyncState

MASTER_ID = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Term:
    """The role of this broker as the controller has decided it."""

    own_id: int
    """Its id at the controller; 0 while it has none."""
    epoch: int = 0
    """0 while no master is known: this broker then neither accepts messages nor registers."""
    master_id: int = 0
    master_address: str = ""
    members: frozenset[int] = frozenset()
    """The sync state set."""
    set_epoch: int = 0

    @property
    def is_known(self) -> bool:
        return self.epoch > 0

    @property
    def is_master(self) -> bool:
        return self.is_known and self.master_id == self.own_id

    @property
    def broker_id(self) -> int:
        """The id that name servers and clients see."""
        return MASTER_ID if self.is_master else max(self.own_id, 1)

    @property
    def role(self) -> BrokerRole:
        return BrokerRole.SYNC_MASTER if self.is_master else BrokerRole.SLAVE

    def __str__(self) -> str:
        if not self.is_known:
            return "no master is known"
        return f"master is {self.master_id} at {self.master_address}, epoch {self.epoch}"


@dataclasses.dataclass(slots=True)
class Replica:
    """A broker's part in its group during one term. Handed to ``Broker``, which is opened again for another."""

    term: Term
    epochs: EpochFile
    lease: Lease
    sync: SyncState | None
    """On a master, its sync state set."""
    on_acks: Callable[[], None]
    """Called when a slave connected, has gone or has caught up: the set may have to change."""
    on_truncation: Callable[[int], None]
    """Called with the end at which the log of this slave has to be cut off before it can copy its master's."""
    handlers: Mapping[int, Handler]

    @property
    def dispatches_later(self) -> bool:
        """True if records become readable only when replicas have them."""
        return self.sync is not None and self.sync.waits_for_all


class ControlledRole(ReplicaRole):
    """The role of a broker in controller mode: name servers only add the HA address of the master."""

    def __init__(self, config: BrokerConfig, store_config: StoreConfig, term: Term) -> None:
        super().__init__(config, store_config)
        self.term = term
        self.is_isolated = not term.is_known
        self.master_address = "" if term.is_master else term.master_address

    @property
    def refusal(self) -> str:
        if self.is_isolated:
            return "controller mode: no master is known yet, see the log of this broker"
        return super().refusal

    def found_master(self, address: str, ha_address: str) -> None:
        """Take over the HA address of the master; a name server may still show the previous one."""
        if ha_address and address == self.term.master_address:
            super().found_master(address, ha_address)
