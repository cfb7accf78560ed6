"""Role settings: whether a broker's role, id and number of replicas fit each other."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.broker.ha.handshake import check_handshakes
from orbitmq.broker.ha.peers import check_peers
from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.addresses import host_and_port
from orbitmq.store.replication.settings import BrokerRole

if TYPE_CHECKING:
    from orbitmq.broker.config.broker_config import BrokerConfig
    from orbitmq.store.config import StoreConfig

log = logging.getLogger("orbitmq.broker")

MASTER_ID = 0


def check_role(broker: BrokerConfig, store: StoreConfig) -> None:
    """Raise ConfigError for a role and an id that contradict each other.

    RocketMQ gives a master the id 0 whatever its file says. A slave whose file lacks ``brokerRole`` would then take
    the place of its master at the name servers, so here it does not start.
    """
    check_peers(store.ha_allowed_peers)
    if broker.enable_controller_mode:
        _check_controlled(broker, store)
        return
    role = store.broker_role
    if role is BrokerRole.SLAVE and broker.broker_id <= MASTER_ID:
        raise ConfigError(f"brokerId={broker.broker_id}: a broker with brokerRole=SLAVE has an id above 0; give 1")
    if role is not BrokerRole.SLAVE and broker.broker_id != MASTER_ID:
        raise ConfigError(
            f"brokerId={broker.broker_id}: a broker with brokerRole={role.value} is a master, whose id is 0; "
            "give 0, or brokerRole=SLAVE"
        )
    check_handshakes(broker, store)
    if store.ha_master_address:
        try:
            host_and_port(store.ha_master_address)
        except ProtocolError:
            raise ConfigError(
                f"haMasterAddress={store.ha_master_address}: give host:port of the master's HA listener, usually "
                "the port after its listenPort"
            ) from None


def _check_controlled(broker: BrokerConfig, store: StoreConfig) -> None:
    """Raise ConfigError for settings that contradict a role that a controller decides."""
    if broker.enable_slave_acting_master:
        raise ConfigError("enableControllerMode and enableSlaveActingMaster: a broker has one of them; remove one")
    if store.ha_master_address:
        raise ConfigError("haMasterAddress: the controller names the master; remove it")
    before = store.broker_role
    try:
        for store.broker_role in (BrokerRole.SYNC_MASTER, BrokerRole.SLAVE):
            check_handshakes(broker, store)
    finally:
        store.broker_role = before


def warn_of_role(store: StoreConfig, *, is_controlled: bool = False) -> None:
    """Log settings that promise less than their names say."""
    if store.broker_role is BrokerRole.SYNC_MASTER and store.in_sync_replicas <= 1 and not is_controlled:
        log.warning(
            "ha: brokerRole=SYNC_MASTER with inSyncReplicas=%d does not wait for slaves, as in RocketMQ 5: set "
            "totalReplicas=2 and inSyncReplicas=2",
            store.in_sync_replicas,
        )
