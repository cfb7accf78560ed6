"""One replica of a local cluster with failover: the controller in the first name server decides what it is."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from orbitmq.broker.autoswitch.broker import ControlledBroker
from orbitmq.broker.autoswitch.master import AutoSwitchMaster
from orbitmq.remoting import ListenError
from orbitmq.store import StoreError
from orbitmq.testing.cluster_nodes import ATTEMPTS, BrokerNode, forget_name_servers

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.broker import Broker
    from orbitmq.testing.simulation.loop_clock import MovableClock
    from orbitmq.testing.simulation.switched_disk import SwitchedDisk

SETTINGS = {
    "allAckInSyncStateSet": "true",
    "minInSyncReplicas": "2",
    # A test waits for what takes seconds in production.
    "controllerHeartBeatTimeoutMills": "2000",
    "brokerHeartbeatInterval": "200",
    "syncBrokerMetadataPeriod": "500",
    "checkSyncStateSetPeriod": "500",
    "haSendHeartbeatInterval": "500",
}
"""Default settings of replicas."""


class ControlledNode(BrokerNode):
    """A broker in controller mode."""

    def __init__(
        self,
        name: str,
        group: str,
        root: str,
        disk: SwitchedDisk,
        settings: dict[str, str],
        clock: MovableClock,
        controller: Callable[[], str],
    ) -> None:
        """``controller`` has the address of the controller, once that was started. Raises ConfigError."""
        super().__init__(name, root, disk, {**SETTINGS, **settings}, clock)
        self.group = self._texts["brokerName"] = group
        self._controller = controller
        self._controlled: ControlledBroker | None = None

    @property
    def broker(self) -> Broker | None:
        """The broker, if it runs and does not change its role at this moment."""
        return None if self._controlled is None else self._controlled.broker

    @property
    def is_master(self) -> bool:
        return self._controlled is not None and self._controlled.term.is_master

    @property
    def is_running(self) -> bool:
        return self._controlled is not None

    @property
    def in_sync(self) -> int:
        """Replicas in the sync state set of this master; 0 if it is none."""
        replication = None if self.broker is None else self.broker.replication
        return len(replication.sync.members) if isinstance(replication, AutoSwitchMaster) else 0

    async def start(self, name_servers: str) -> None:
        """Returns when it listens; a controller gives it its role a little later."""
        if self._controlled is None:
            texts = {**self._texts, "namesrvAddr": name_servers}
            texts |= {"enableControllerMode": "true", "controllerAddr": self._controller()}
            self._controlled = await self._opened(texts)
            self._port = self._controlled.port

    async def _opened(self, texts: dict[str, str], attempts: int = ATTEMPTS) -> ControlledBroker:
        controlled = ControlledBroker(self._loaded(texts), disk=self.disk, clock=self._clock)
        try:
            await controlled.start()
        except ListenError:
            if self._port or attempts == 1:
                raise
            return await self._opened(texts, attempts - 1)
        return controlled

    def hold(self, *, is_held: bool) -> None:
        """Hang, or go on; controllers do not hear from it meanwhile either."""
        assert self._controlled is not None, "not started"
        self._controlled.hold(is_held=is_held)

    async def stop(self) -> None:
        controlled, self._controlled = self._controlled, None
        if controlled is not None:
            await controlled.stop()

    async def kill(self, seed: int | None = None) -> None:
        """End it without a word to anybody; what was not on the disk is lost."""
        controlled, self._controlled = self._controlled, None
        if controlled is None:
            return
        dead, self.disk = self.disk, self.disk.power_off(seed)
        if controlled.broker is not None:
            forget_name_servers(controlled.broker)
            for connection in controlled.broker.connections:
                connection.abort()
        # No peer is connected any more, and the disk of a killed broker refuses writes.
        try:
            with contextlib.suppress(StoreError):
                await controlled.stop()
        finally:
            await controlled.controllers.close()
        dead.close()
