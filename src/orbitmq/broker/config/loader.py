"""Settings loader: all settings of a broker and its store, loaded, listed and changed together."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from typing import TYPE_CHECKING

from orbitmq.auth.settings import AuthSettings
from orbitmq.broker.config.broker_config import BrokerConfig, address_text
from orbitmq.broker.config.host_info import this_machine
from orbitmq.broker.config.ignored_settings import IgnoredBrokerSettings
from orbitmq.broker.config.role_settings import check_role
from orbitmq.broker.config.unsupported_settings import refuse_unsupported
from orbitmq.platform.properties_file import read_conf
from orbitmq.platform.settings import (
    ConfigError,
    as_properties,
    changed,
    differing,
    from_settings,
    parse_conf,
    settings_of,
    texts_of,
)
from orbitmq.protocol.hosts import MAX_PORT
from orbitmq.remoting.tls.settings import with_tls_file
from orbitmq.store.config import StoreConfig
from orbitmq.store.ignored_settings import IgnoredStoreSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _typeshed import DataclassInstance

    from orbitmq.broker.config.host_info import Machine
    from orbitmq.platform.disk import Disk

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
"""Settings that RocketMQ marks as important and its broker prints with ``-m``."""

_NEEDS_RESTART = """
    enableControllerMode storePathEpochFile storePathBrokerIdentity
    brokerName brokerClusterName brokerId brokerRole brokerIP1 brokerIP2 listenPort haListenPort bindAddress
    haMasterAddress serverChannelMaxIdleTimeSeconds expectConsumerNumUseFilter maxErrorRateOfBloomFilter
    regionId traceOn flushConsumerOffsetInterval flushDelayOffsetInterval delayOffsetUpdateVersionStep
    enableScheduleMessageStats timerWheelEnable timerPrecisionMs timerRollWindowSlot mappedFileSizeTimerLog
    maxMessageSize
    storePathRootDir storePathCommitLog readOnlyCommitLogStorePaths
    mappedFileSizeCommitLog mappedFileSizeConsumeQueue mapperFileSizeBatchConsumeQueue
    mappedFileSizeConsumeQueueExt enableConsumeQueueExt maxHashSlotNum maxIndexNum messageIndexEnable
    flushDiskType flushIntervalCommitLog flushIntervalConsumeQueue commitIntervalCommitLog cleanResourceInterval
    transientStorePoolEnable transientStorePoolSize accessMessageInMemoryMaxRatio
    enableLmq enableMultiDispatch enabledAppendPropCRC autoMessageVersionOnTopicLen messageDelayLevel
    reviveQueueNum brokerEventJournalBytes
    metricsExporterType metricsPromExporterHost metricsPromExporterPort metricsGrpcExporterTarget
    metricsGrpcExporterHeader metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
    metricLoggingExporterIntervalInMills metricsExportBatchMaxDataPoints metricsLabel metricsInDelta
    metricsOtelCardinalityLimit enableConnectionMetrics enableLagAndDlqMetrics enableMessageStoreMetrics
    enablePopMetrics enableRemotingMetrics enableRequestMetrics enableStatsMetrics enableTransactionMetrics
"""
NEEDS_RESTART = frozenset(_NEEDS_RESTART.split())
"""Settings that take effect at start: sockets, paths, file sizes, timers. A change waits for a restart."""

_FIXED = """
    brokerId bindAddress listenPort haListenPort
    storePathRootDir storePathCommitLog readOnlyCommitLogStorePaths
    mappedFileSizeCommitLog mappedFileSizeConsumeQueue mapperFileSizeBatchConsumeQueue
    mappedFileSizeConsumeQueueExt mappedFileSizeTimerLog maxHashSlotNum maxIndexNum
    timerPrecisionMs
"""
FIXED = frozenset(_FIXED.split())
"""Settings that a running broker refuses to change: a start with another value may fail, depending on the machine
or the files written so far, so an operator has to check both."""

_WITHOUT_EFFECT = frozenset([*settings_of(IgnoredBrokerSettings), *settings_of(IgnoredStoreSettings)]) - {
    # Set to the value that the filter computes.
    "bitMapLengthConsumeQueueExt",
    "useTLS",
    *settings_of(AuthSettings),
}

_STORE_FOLLOWS = frozenset(["brokerIP1", "listenPort"])
"""Keys of both. The broker's is the configured value; the store's is what records carry."""

_WILDCARDS = frozenset(["0.0.0.0", "::", "[::]"])  # noqa: S104  # looked for, not listened on


@dataclasses.dataclass(slots=True)
class BrokerSettings:
    """All settings of a broker. Changes at run time are visible through ``broker`` and ``store``."""

    broker: BrokerConfig
    store: StoreConfig
    path: str = ""
    """The file that they were loaded from, if any."""
    others: dict[str, str] = dataclasses.field(default_factory=dict)
    """Unknown keys of that file, preserved because a change rewrites the file."""
    machine: Machine | None = dataclasses.field(default=None, repr=False, compare=False)
    """Source of machine properties; this machine if None."""
    names_ha_port: bool = dataclasses.field(default=False, compare=False)
    """True if haListenPort was set; otherwise it is the port after listenPort."""
    after_restart: dict[str, str] = dataclasses.field(default_factory=dict, init=False)
    """Values that were set at run time and wait for the next start."""

    def __post_init__(self) -> None:
        refuse_unsupported(self.texts())
        check_role(self.broker, self.store)
        self.store.listen_port = self.broker.listen_port
        if _is_ip(self.broker.broker_ip1):
            self.store.broker_ip1 = self.broker.broker_ip1.strip("[]")

    @property
    def file(self) -> str:
        """File that changes at run time are written to."""
        return self.path or self.broker.broker_config_path or self.store.path("config", "broker.properties")

    @property
    def ha_address(self) -> str:
        """Address under which slaves reach the broker."""
        return address_text(self.broker.broker_ip2, self.store.ha_listen_port)

    @property
    def without_effect(self) -> list[str]:
        """Ignored settings that differ from RocketMQ's default."""
        found = [*differing(self.broker, _WITHOUT_EFFECT), *differing(self.store, _WITHOUT_EFFECT)]
        return sorted(found)

    def texts(self) -> dict[str, str]:
        """All values by key, as they will be after the next start."""
        return {**self.others, **texts_of(self.store), **texts_of(self.broker), **self.after_restart}

    def as_properties(self) -> str:
        """All settings as ``key=value`` lines, sorted by key."""
        return as_properties(self.texts())

    def important_properties(self) -> str:
        """The same for the important settings only."""
        return as_properties({key: text for key, text in self.texts().items() if key in IMPORTANT})

    def changed(self, settings: Mapping[str, str]) -> BrokerSettings:
        """A copy with some values changed. Unknown keys are ignored. Raises ConfigError."""
        now = self.texts()
        for key in sorted(FIXED & settings.keys()):
            if settings[key] != now[key] if key in now else settings[key]:
                raise ConfigError(
                    f"{key} cannot be changed while the broker runs: stop it, set {key} in its settings file, and "
                    "start it again"
                )
        requested = {**self.after_restart, **settings}
        of_store = {key: text for key, text in requested.items() if key not in _STORE_FOLLOWS}
        others = {key: requested.get(key, text) for key, text in self.others.items()}
        broker, store = changed(self.broker, requested), changed(self.store, of_store)
        return BrokerSettings(broker, store, self.path, others, self.machine, self.names_ha_port)

    def check_start(self) -> None:
        """Check that the file to be written loads as the next start will load it. Raises ConfigError. Blocks."""
        _built(parse_conf(self.as_properties()), self.path, self.machine or this_machine())

    def become(self, other: BrokerSettings) -> list[str]:
        """Apply all values that can change at run time. Returns the keys of those that need a restart."""
        self.others = dict(other.others)
        waiting = _take_over(self.store, other.store)
        # The store's addresses derive from the broker's.
        self.after_restart = {**waiting, **_take_over(self.broker, other.broker)}
        return sorted(self.after_restart)

    def set_listen_port(self, port: int) -> None:
        """Set the actual port when any would do (``listenPort=0``). Call it before the store is opened."""
        if self.store.ha_listen_port == _port_for_slaves(self.broker.listen_port):
            self.store.ha_listen_port = _port_for_slaves(port)
        self.broker.listen_port = self.store.listen_port = port


def _take_over(mine: DataclassInstance, theirs: DataclassInstance) -> dict[str, str]:
    """Apply the values that can change at run time; returns the others, by key."""
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
    defaults: Mapping[str, str] | None = None,
    machine: Machine | None = None,
) -> tuple[BrokerSettings, list[str]]:
    """The settings of a broker, and the unknown keys of its file. Raises ConfigError, DiskFaultError.

    ``overrides`` come before the file, ``defaults`` after it; both have Java's keys. Other values come from the
    machine or are RocketMQ's defaults.
    """
    machine = machine or this_machine()
    file = read_conf(disk, path) if path is not None else {}
    texts = with_tls_file(disk, {**(defaults or {}), **file, **(overrides or {})})
    return _built(texts, path or "", machine)


def _built(texts: dict[str, str], path: str, machine: Machine) -> tuple[BrokerSettings, list[str]]:
    """Settings built from these texts as at start, and the unknown keys. Raises ConfigError."""
    texts = {**texts, **_asked_of(machine, texts)}
    broker, not_brokers = from_settings(BrokerConfig, texts)
    store, not_stores = from_settings(StoreConfig, {**texts, "brokerIP1": _ip_of(machine, broker.broker_ip1)})
    names_ha_port = "haListenPort" in texts and store.ha_listen_port > 0
    if not names_ha_port:
        store.ha_listen_port = _port_for_slaves(broker.listen_port)
    unknown = [key for key in not_brokers if key in not_stores]
    others = {key: texts[key] for key in unknown}
    return BrokerSettings(broker, store, path, others, machine, names_ha_port), unknown


def _asked_of(machine: Machine, texts: Mapping[str, str]) -> dict[str, str]:
    """Values of settings that are not set but known from the machine."""
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
    """Public address of a broker that listens on ``bind_address``."""
    if bind_address in _WILDCARDS:
        return machine.address()
    return bind_address


def _ip_of(machine: Machine, host: str) -> str:
    if _is_ip(host):
        return host.strip("[]")
    try:
        return machine.resolve(host)
    except OSError:
        raise ConfigError(f"brokerIP1={host}: unknown host; give an address that clients reach") from None


def _port_for_slaves(listen_port: int) -> int:
    return listen_port + 1 if 0 < listen_port < MAX_PORT else 0


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
