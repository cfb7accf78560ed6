"""Failover settings: brokers whose role a controller decides (``enableControllerMode``)."""

from __future__ import annotations

import dataclasses

from orbitmq.broker.config.ignored_settings import IgnoredBrokerSettings
from orbitmq.platform.settings import ConfigError, Int64, setting
from orbitmq.protocol.errors import ProtocolError
from orbitmq.remoting.addresses import host_and_port


@dataclasses.dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class FailoverSettings(IgnoredBrokerSettings):
    """Settings of controller mode. Times are milliseconds."""

    enable_controller_mode: bool = False
    """A controller decides whether this broker is master or slave; ``brokerRole`` and ``brokerId`` are ignored."""
    controller_addr: str = ""
    """Controllers, separated by ``;``."""
    fetch_controller_addr_by_dns_lookup: bool = False
    """``controllerAddr`` is one name with a port, whose addresses are all controllers."""
    broker_election_priority: int = 2_147_483_647
    """Of replicas with equal logs the one with the smallest number is elected."""
    controller_heart_beat_timeout_mills: Int64 = 10_000
    """A controller takes a broker that it does not hear from for so long for dead. So long a master goes on without
    an answer of the controllers."""
    sync_broker_metadata_period: Int64 = 5000
    """Between two requests for the current master; a master sends them four times in its lease at least."""
    sync_controller_metadata_period: Int64 = 10_000
    """Between two searches for the leader of the controllers."""
    check_sync_state_set_period: Int64 = 5000
    """Between two checks of which slaves are in sync."""
    fence_without_controller: bool = setting(True, optional=True)
    """Not RocketMQ's: a master without an answer of the controllers for ``controllerHeartBeatTimeoutMills`` refuses
    messages, because another may have been elected."""

    @property
    def controllers(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.controller_addr.split(";") if part.strip())

    def check_failover(self) -> None:
        """Raise ConfigError for controller mode without a usable address of a controller."""
        if not self.enable_controller_mode:
            return
        if not self.controllers:
            raise ConfigError("controllerAddr is empty: enableControllerMode needs host:port of the controllers")
        for address in self.controllers:
            try:
                host_and_port(address)
            except ProtocolError:
                raise ConfigError(
                    f"controllerAddr has {address!r}; give host:port, and several separated by ';'"
                ) from None
