"""Administrative requests while authentication is off: accepted from this machine and from listed networks only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.auth.decision import ip_address_of
from orbitmq.auth.errors import AuthorizationError
from orbitmq.platform.limit_counts import Limit, count_refusal
from orbitmq.protocol.codes import RequestCode
from orbitmq.remoting.connect.trusted_proxies import read_networks

if TYPE_CHECKING:
    from orbitmq.remoting.connect.trusted_proxies import Network

EVERYWHERE = "*"

_R = RequestCode

ADMINISTRATIVE = frozenset(
    int(code)
    for code in (
        *(_R.UPDATE_BROKER_CONFIG, _R.TRIGGER_DELETE_FILES, _R.CLEAN_EXPIRED_CONSUMEQUEUE, _R.CLEAN_UNUSED_TOPIC),
        *(_R.DELETE_EXPIRED_COMMITLOG, _R.SET_COMMITLOG_READ_MODE, _R.UPDATE_COLD_DATA_FLOW_CTR_CONFIG),
        *(_R.REMOVE_COLD_DATA_FLOW_CTR_CONFIG, _R.SWITCH_TIMER_ENGINE, _R.EXPORT_ROCKSDB_CONFIG_TO_JSON),
        *(_R.DELETE_TOPIC_IN_BROKER, _R.DELETE_SUBSCRIPTIONGROUP, _R.UPDATE_AND_CREATE_STATIC_TOPIC),
        *(_R.INVOKE_BROKER_TO_RESET_OFFSET, _R.CLONE_GROUP_OFFSET, _R.UPDATE_AND_GET_GROUP_FORBIDDEN),
        *(_R.SET_MESSAGE_REQUEST_MODE, _R.RESUME_CHECK_HALF_MESSAGE, _R.EXCHANGE_BROKER_HA_INFO),
        *(_R.RESET_MASTER_FLUSH_OFFSET, _R.NOTIFY_BROKER_ROLE_CHANGED, _R.ADD_BROKER, _R.REMOVE_BROKER),
        *(_R.PUT_KV_CONFIG, _R.DELETE_KV_CONFIG, _R.REGISTER_BROKER, _R.UNREGISTER_BROKER, _R.BROKER_HEARTBEAT),
        *(_R.REGISTER_TOPIC_IN_NAMESRV, _R.DELETE_TOPIC_IN_NAMESRV, _R.WIPE_WRITE_PERM_OF_BROKER),
        *(_R.ADD_WRITE_PERM_OF_BROKER, _R.UPDATE_NAMESRV_CONFIG, _R.UPDATE_CONTROLLER_CONFIG),
        *(_R.CONTROLLER_ELECT_MASTER, _R.CLEAN_BROKER_DATA, _R.CONTROLLER_ALTER_SYNC_STATE_SET),
        *(_R.CONTROLLER_REGISTER_BROKER, _R.CONTROLLER_APPLY_BROKER_ID),
        *(_R.AUTH_CREATE_USER, _R.AUTH_UPDATE_USER, _R.AUTH_DELETE_USER, _R.AUTH_GET_USER, _R.AUTH_LIST_USER),
        *(_R.AUTH_CREATE_ACL, _R.AUTH_UPDATE_ACL, _R.AUTH_DELETE_ACL, _R.AUTH_GET_ACL, _R.AUTH_LIST_ACL),
        *(_R.UPDATE_AND_CREATE_ACL_CONFIG, _R.DELETE_ACL_CONFIG, _R.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG),
        *(_R.GET_BROKER_CLUSTER_ACL_INFO, _R.GET_BROKER_CLUSTER_ACL_CONFIG),
    )
)
"""Requests that change a server or what others own. A topic or group that is created takes nothing from others."""


def networks_of(text: str) -> tuple[Network, ...] | None:
    """The networks of ``adminNetworks``; None is everywhere. Raises ValueError."""
    return None if text.strip() == EVERYWHERE else read_networks(text)


def check_source(remote_address: str, local_address: str, networks: tuple[Network, ...] | None, name: str) -> None:
    """Refuse an administrative request from elsewhere. Raises AuthorizationError."""
    if networks is None:
        return
    host = host_of(remote_address)
    address = ip_address_of(host)
    if address is None:
        # No address: a connection inside this process, or a Unix socket.
        return
    if address.is_loopback or host == host_of(local_address):
        return
    if not any(address.version == network.version and address in network for network in networks):
        count_refusal(Limit.ADMIN_NETWORKS)
        raise AuthorizationError(
            f"{name} from {host} is refused: without authentication it is accepted from this machine and from the "
            "networks of adminNetworks only"
        )


def host_of(address: str) -> str:
    """The host of ``host:port``, without the brackets of IPv6."""
    return address.rpartition(":")[0].strip("[]")
