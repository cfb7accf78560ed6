"""All settings of a broker, its own and its store's: loaded, shown and changed as one."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from typing import TYPE_CHECKING

from orbitmq.broker.config import BrokerConfig, address_text
from orbitmq.broker.machine import this_machine
from orbitmq.protocol.hosts import MAX_PORT
from orbitmq.settings import ConfigError, as_properties, changed, from_settings, settings_of, texts_of
from orbitmq.store.conf_file import read_conf
from orbitmq.store.config import BrokerRole, StoreConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance

    from orbitmq.broker.machine import Machine
    from orbitmq.store.disk import Disk

_IMPORTANT = """
    brokerName brokerClusterName brokerId namesrvAddr listenPort brokerIP1 recoverConcurrently aclEnable
    autoCreateTopicEnable autoCreateSubscriptionGroup msgTraceTopicName traceTopicEnable
    fetchNameSrvAddrByDnsLookup fetchNamesrvAddrByAddressServer
    rejectTransactionMessage transactionTimeOut transactionCheckMax transactionCheckInterval
    storePathRootDir storePathCommitLog storePathDLedgerCommitLog storePathEpochFile storePathBrokerIdentity
    storeType brokerRole flushDiskType flushIntervalCommitLog commitIntervalCommitLog flushCommitLogTimed
    deleteWhen fileReservedTime deleteFileBatchMax cleanFileForciblyEnable enableCleanExpiredOffset
    maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInMemory maxTransferBytesOnMessageInDisk
    maxTransferCountOnMessageInDisk accessMessageInMemoryMaxRatio messageIndexEnable messageIndexSafe
    transientStorePoolEnable writeWithoutMmap enableRunningFlagsInFlush dispatchFromSenderThread
    wakeCommitWhenPutMessage wakeFlushWhenPutMessage disappearTimeAfterStart
    haMasterAddress haFlowControlEnable totalReplicas inSyncReplicas minInSyncReplicas allAckInSyncStateSet
    enableAutoInSyncReplicas
"""
IMPORTANT = frozenset(_IMPORTANT.split())
"""What RocketMQ marks as important, and its broker shows with ``-m``."""

_NEEDS_RESTART = """
    brokerName brokerClusterName brokerId brokerRole brokerIP1 brokerIP2 listenPort haListenPort bindAddress
    serverChannelMaxIdleTimeSeconds expectConsumerNumUseFilter maxErrorRateOfBloomFilter
    regionId traceOn flushConsumerOffsetInterval flushDelayOffsetInterval delayOffsetUpdateVersionStep
    enableScheduleMessageStats timerWheelEnable timerPrecisionMs timerRollWindowSlot mappedFileSizeTimerLog
    maxMessageSize
    storePathRootDir storePathCommitLog readOnlyCommitLogStorePaths
    mappedFileSizeCommitLog mappedFileSizeConsumeQueue mapperFileSizeBatchConsumeQueue
    mappedFileSizeConsumeQueueExt enableConsumeQueueExt maxHashSlotNum maxIndexNum messageIndexEnable
    flushDiskType flushIntervalCommitLog flushIntervalConsumeQueue commitIntervalCommitLog cleanResourceInterval
    transientStorePoolEnable transientStorePoolSize accessMessageInMemoryMaxRatio
    enableLmq enableMultiDispatch enabledAppendPropCRC autoMessageVersionOnTopicLen messageDelayLevel
    reviveQueueNum
"""
NEEDS_RESTART = frozenset(_NEEDS_RESTART.split())
"""What was put to use when the broker started: sockets, paths, sizes of files, timers. A change waits."""

_STORE_FOLLOWS = frozenset(["brokerIP1", "listenPort"])
"""Keys that both have. The broker's is what was set; the store has what its records say."""

_WILDCARDS = frozenset(["0.0.0.0", "::", "[::]"])  # noqa: S104  # looked for, not listened on


@dataclasses.dataclass(slots=True)
class BrokerSettings:
    """All settings of a broker. Whoever has ``broker`` or ``store`` sees what is changed at runtime."""

    broker: BrokerConfig
    store: StoreConfig
    path: str = ""
    """The file that they came from, if they came from one."""
    others: dict[str, str] = dataclasses.field(default_factory=dict)
    """What is in that file and is no setting here. It is kept, for the file is written anew with a change."""
    after_restart: dict[str, str] = dataclasses.field(default_factory=dict, init=False)
    """Values that were set at runtime and wait for the next start."""

    def __post_init__(self) -> None:
        _refuse_what_is_not_here(self.broker, self.store, self.others)
        self.broker.broker_id = 0
        self.store.listen_port = self.broker.listen_port
        if _is_ip(self.broker.broker_ip1):
            self.store.broker_ip1 = self.broker.broker_ip1.strip("[]")

    @property
    def file(self) -> str:
        """Where changes at runtime are written."""
        return self.path or self.broker.broker_config_path or self.store.path("config", "broker.properties")

    @property
    def ha_address(self) -> str:
        """Where slaves find the broker."""
        return address_text(self.broker.broker_ip2, self.store.ha_listen_port)

    def texts(self) -> dict[str, str]:
        """All values by their keys, as they will be after the next start."""
        return {**self.others, **texts_of(self.store), **texts_of(self.broker), **self.after_restart}

    def as_properties(self) -> str:
        """All settings, ``key=value`` and a line each, in the order of their keys."""
        return as_properties(self.texts())

    def important_properties(self) -> str:
        """The same for the settings that one would look at first."""
        return as_properties({key: text for key, text in self.texts().items() if key in IMPORTANT})

    def changed(self, settings: Mapping[str, str]) -> BrokerSettings:
        """The same with some other values. Keys that are not there are passed over. Raises ConfigError."""
        asked = {**self.after_restart, **settings}
        of_store = {key: text for key, text in asked.items() if key not in _STORE_FOLLOWS}
        others = {key: asked.get(key, text) for key, text in self.others.items()}
        return BrokerSettings(changed(self.broker, asked), changed(self.store, of_store), self.path, others)

    def become(self, other: BrokerSettings) -> list[str]:
        """Take over all values that can change at runtime. Returns the keys of those that wait for a restart."""
        self.others = dict(other.others)
        waiting = _take_over(self.store, other.store)
        # The store's addresses follow the broker's.
        self.after_restart = {**waiting, **_take_over(self.broker, other.broker)}
        return sorted(self.after_restart)

    def set_listen_port(self, port: int) -> None:
        """Say which port it is, if any would do (``listenPort=0``). Before the store is opened."""
        if self.store.ha_listen_port == _port_for_slaves(self.broker.listen_port):
            self.store.ha_listen_port = _port_for_slaves(port)
        self.broker.listen_port = self.store.listen_port = port


def _take_over(mine: DataclassInstance, theirs: DataclassInstance) -> dict[str, str]:
    """Take over the values that can change at runtime; returns the others, by their keys."""
    waiting = {}
    for key, one in settings_of(type(mine)).items():
        value = getattr(theirs, one.name)
        if value == getattr(mine, one.name):
            continue
        if key in NEEDS_RESTART:
            waiting[key] = texts_of(theirs).get(key, "")
        else:
            setattr(mine, one.name, value)
    return waiting


def load_settings(
    disk: Disk,
    path: str | None = None,
    overrides: Mapping[str, str] | None = None,
    *,
    machine: Machine | None = None,
) -> tuple[BrokerSettings, list[str]]:
    """The settings of a broker, and the keys in its file that are none here. Raises ConfigError, DiskFaultError.

    What ``overrides`` says, by Java keys too, comes before what the file says, and what nobody says is asked of
    the machine or is RocketMQ's default.
    """
    machine = machine or this_machine()
    texts = {**(read_conf(disk, path) if path is not None else {}), **(overrides or {})}
    texts = {**texts, **_asked_of(machine, texts)}
    broker, not_brokers = from_settings(BrokerConfig, texts)
    store, not_stores = from_settings(StoreConfig, {**texts, "brokerIP1": _ip_of(machine, broker.broker_ip1)})
    if "haListenPort" not in texts or store.ha_listen_port <= 0:
        store.ha_listen_port = _port_for_slaves(broker.listen_port)
    unknown = [key for key in not_brokers if key in not_stores]
    return BrokerSettings(broker, store, path or "", {key: texts[key] for key in unknown}), unknown


def _asked_of(machine: Machine, texts: Mapping[str, str]) -> dict[str, str]:
    """Values for those settings that are not set and that the machine knows."""
    found = {}
    for key in ("brokerIP1", "brokerIP2"):
        if not texts.get(key):
            found[key] = _known_as(machine, texts.get("bindAddress") or BrokerConfig().bind_address)
    if not texts.get("brokerName"):
        found["brokerName"] = machine.host_name() or BrokerConfig().broker_name
    if not texts.get("storePathRootDir"):
        found["storePathRootDir"] = os.path.join(machine.home, "store")
    for key, variable in (("rocketmqHome", "ROCKETMQ_HOME"), ("namesrvAddr", "NAMESRV_ADDR")):
        if not texts.get(key) and machine.environment.get(variable):
            found[key] = machine.environment[variable]
    return found


def _known_as(machine: Machine, bind_address: str) -> str:
    """The address for others of a broker that listens there."""
    if bind_address in _WILDCARDS:
        return machine.address()
    return bind_address


def _ip_of(machine: Machine, host: str) -> str:
    if _is_ip(host):
        return host.strip("[]")
    try:
        return machine.resolve(host)
    except OSError:
        raise ConfigError(f"brokerIP1={host}: no such host is known; give an address that clients reach") from None


def _refuse_what_is_not_here(broker: BrokerConfig, store: StoreConfig, others: Mapping[str, str]) -> None:
    """A broker that is not what its settings say would lose messages, or show them to anybody."""
    if store.broker_role is BrokerRole.SLAVE:
        raise ConfigError("brokerRole=SLAVE: a broker is a master here; give ASYNC_MASTER or SYNC_MASTER")
    if broker.enable_controller_mode:
        raise ConfigError("enableControllerMode=true: a broker is always the master here; give false")
    if store.enable_d_leger_commit_log:
        raise ConfigError("enableDLegerCommitLog=true: the log is kept in plain files here; give false")
    if store.store_type != "default":
        raise ConfigError(f"storeType={store.store_type}: queues are kept in plain files here; give default")
    for key in ("authenticationEnabled", "authorizationEnabled"):
        if others.get(key, "").lower() == "true":
            raise ConfigError(f"{key}=true: everybody who reaches the broker may use it here; give false")


def _port_for_slaves(listen_port: int) -> int:
    return listen_port + 1 if 0 < listen_port < MAX_PORT else 0


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
