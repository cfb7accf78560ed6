"""Storage of broker groups: a local file for one controller, or etcd for several of which one leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.controller.storage.etcd import EtcdStorage
from orbitmq.controller.storage.etcd_client import Credentials, EtcdClient, tls_context
from orbitmq.controller.storage.event_log import EventLog
from orbitmq.platform.settings import ConfigError

if TYPE_CHECKING:
    from orbitmq.controller.config import ControllerConfig
    from orbitmq.controller.storage.interface import GroupStorage
    from orbitmq.platform.clock import Clock
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.threads import RunBlocking

__all__ = ["storage_of"]


def storage_of(
    config: ControllerConfig, disk: Disk, clock: Clock, run_blocking: RunBlocking, own_id: str
) -> GroupStorage:
    """The storage that the settings choose. Raises ConfigError."""
    if not config.is_on_etcd:
        return EventLog(disk, config.store_path, own_id, run_blocking)
    endpoints = config.etcd_urls
    try:
        is_tls = any(url.startswith("https:") for url in endpoints)
        tls = tls_context(config.etcd_ca_file, config.etcd_cert_file, config.etcd_key_file) if is_tls else None
    except OSError as error:
        raise ConfigError(f"etcdCaFile, etcdCertFile or etcdKeyFile cannot be used: {error}") from error
    credentials = Credentials(config.etcd_user, config.etcd_password) if config.etcd_user else None
    client = EtcdClient(endpoints, seconds=config.etcd_lease_seconds / 5, tls=tls, credentials=credentials)
    prefix = f"{config.etcd_key_prefix.rstrip('/')}/{config.group or 'default'}"
    return EtcdStorage(client, prefix, own_id, clock, lease_seconds=config.etcd_lease_seconds)
