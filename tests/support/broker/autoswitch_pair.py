"""Two brokers in controller mode, their controller and a name server, all in the test process on virtual disks."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Self

from orbitmq.broker import load_settings
from orbitmq.broker.autoswitch.broker import ControlledBroker
from orbitmq.controller import Controller, ControllerConfig
from orbitmq.nameserver import NameServer, NameServerConfig
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.command import Command
from orbitmq.remoting import RemotingClient
from orbitmq.testing import MemoryDisk
from support.nameserver_harness import as_text
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from orbitmq.platform.disk import Disk

SETTINGS = {
    "brokerName": "g",
    "brokerIP1": HOST,
    "brokerIP2": HOST,
    "bindAddress": HOST,
    "listenPort": 0,
    "storePathRootDir": "/messages",
    "mappedFileSizeCommitLog": 1 << 21,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxIndexNum": 10_000,
    "enableControllerMode": "true",
    "allAckInSyncStateSet": "true",
    "autoCreateTopicEnable": "true",
    "brokerHeartbeatInterval": 50,
    "syncBrokerMetadataPeriod": 200,
    "checkSyncStateSetPeriod": 100,
    "slaveMetadataCheckPeriod": 50,
    "osPageCacheBusyTimeOutMills": 60_000,
    "slaveTimeout": 20_000,
    "timerPrecisionMs": 100,
}


class AutoswitchPair:
    """Master and slave by the decision of a controller."""

    def __init__(self, disks: tuple[Disk, Disk] | None = None, **settings: object) -> None:
        self.controller = Controller(ControllerConfig(bind_address=HOST, listen_port=0), disk=MemoryDisk())
        self._names = NameServer(NameServerConfig(listen_port=0, bind_address=HOST))
        self._disks = disks or (MemoryDisk(), MemoryDisk())
        self._settings = settings
        self.brokers: list[ControlledBroker] = []
        self._exit = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        for server in (self.controller, self._names):
            await server.start()
            self._exit.push_async_callback(server.stop)
        self.name_server = f"{HOST}:{self._names.port}"
        places = {"namesrvAddr": self.name_server, "controllerAddr": f"{HOST}:{self.controller.port}"}
        for disk in self._disks:
            settings, _ = load_settings(disk, None, as_text({**SETTINGS, **places, **self._settings}))
            broker = ControlledBroker(settings, disk=disk)
            await broker.start()
            self._exit.push_async_callback(broker.stop)
            self.brokers.append(broker)
            await eventually(lambda: self.brokers[-1].term.is_known)
        await eventually(lambda: len(self.in_sync) == len(self.brokers))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._exit.aclose()

    @property
    def master(self) -> ControlledBroker:
        return next(broker for broker in self.brokers if broker.term.is_master)

    @property
    def slave(self) -> ControlledBroker:
        return next(broker for broker in self.brokers if not broker.term.is_master)

    @property
    def in_sync(self) -> frozenset[int]:
        sync = None
        for broker in self.brokers:
            if broker.broker is not None and broker.broker.replica is not None:
                sync = broker.broker.replica.sync or sync
        return frozenset() if sync is None else sync.members

    async def elect(self, broker: ControlledBroker) -> None:
        """Make a broker the master, as ``mqadmin electMaster`` does."""
        fields = {
            "clusterName": "DefaultCluster",
            "brokerName": "g",
            "brokerId": str(broker.term.own_id),
            "designateElect": "true",
        }
        client = RemotingClient()
        try:
            answer = await client.call(
                f"{HOST}:{self.controller.port}", Command(RequestCode.CONTROLLER_ELECT_MASTER, ext_fields=fields), 5
            )
            assert answer.code == 0, answer.remark
        finally:
            await client.close()
