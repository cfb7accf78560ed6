"""Parts of a broker that depend on whether a controller decides its role: the role, the HA listener and client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.broker.autoswitch.master import AutoSwitchMaster
from orbitmq.broker.autoswitch.slave import AutoSwitchSlave
from orbitmq.broker.autoswitch.term import ControlledRole
from orbitmq.broker.ha.master import ReplicationMaster
from orbitmq.broker.ha.master_check import MasterCheck
from orbitmq.broker.ha.role import ReplicaRole
from orbitmq.broker.ha.slave import ReplicationSlave

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker.autoswitch.term import Replica
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.broker.events.journal import EventJournal
    from orbitmq.broker.ha.handshake import MasterGate
    from orbitmq.broker.metadata.subscription_groups import GroupTable
    from orbitmq.broker.metadata.topics import TopicTable
    from orbitmq.broker.registration.registrar import Registration
    from orbitmq.remoting.endpoint import RequestSigner
    from orbitmq.store import MessageStore
    from orbitmq.store.background.service import StoreService
    from orbitmq.store.config import StoreConfig


def role_of(config: BrokerConfig, store_config: StoreConfig, replica: Replica | None) -> ReplicaRole:
    if replica is None:
        return ReplicaRole(config, store_config)
    return ControlledRole(config, store_config, replica.term)


def begin_term(replica: Replica, store: MessageStore, topics: TopicTable, groups: GroupTable) -> None:
    """Prepare an opened store for its role. Raises StoreError.

    Recovery has dispatched the whole log: what was readable stays readable.
    """
    term, end = replica.term, store.log.end
    replica.epochs.load(end)
    if replica.sync is not None:
        last = replica.epochs.epochs.last
        if last is None or last.epoch != term.epoch:
            replica.epochs.append(term.epoch, end)
        replica.sync.confirmed = store.dispatcher.position
        topics.begin_epoch(term.epoch)
        groups.begin_epoch(term.epoch)
    elif term.is_known:
        store.readable_to = end


def replication_of(
    config: BrokerConfig,
    store: MessageStore,
    service: StoreService,
    journal: EventJournal,
    admits: Callable[[str], str | None] | None,
    gate: MasterGate,
    replica: Replica | None,
) -> ReplicationMaster:
    if replica is None or replica.sync is None:
        return ReplicationMaster(config, store, service, journal, admits, gate)
    return AutoSwitchMaster(config, store, service, journal, admits, gate, replica)


def slave_of(
    role: ReplicaRole,
    service: StoreService,
    journal: EventJournal,
    registration: Registration,
    signer: RequestSigner | None,
    replica: Replica | None,
) -> ReplicationSlave:
    search = registration.register_soon
    if replica is not None:
        return AutoSwitchSlave(role, service, journal, search, replica, registration.tls, signer)
    check = MasterCheck(service.store, registration.tls, signer)
    return ReplicationSlave(role, service, journal, search, check)
