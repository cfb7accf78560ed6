"""The servers under test: OrbitMQ's broker with its gRPC port, or Apache's proxy in LOCAL mode, as processes.

They are Apache's with ``ORBITMQ_CONFORMANCE_PEER=apache``: the same tests pass against both.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
import time
from typing import TYPE_CHECKING

from conformance.servers.processes import against_apache, serving
from peers import apache
from peers.apache import ApacheNameServer
from peers.frames import GET_BROKER_CLUSTER_INFO, ask
from peers.grpc.clients import PROXY, ApacheProxy
from peers.ports import free_port, is_listening
from peers.process import PeerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SETTINGS = {
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
    "transactionCheckInterval": "1000",
    "transactionTimeOut": "500",
    # A group without offsets begins where the topic begins while its messages are in memory.
    "initPopOffsetByCheckMsgInMem": "true",
}

PROXY_SETTINGS = {
    # A push consumer that closes waits for its receives.
    "grpcClientConsumerMinLongPollingTimeoutMillis": "2000",
    "grpcClientConsumerMaxLongPollingTimeoutMillis": "2000",
}

_UPDATE_AND_CREATE_TOPIC = 17
_UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
_PATIENCE = 30


@dataclasses.dataclass(frozen=True, slots=True)
class Servers:
    """A name server, and a broker with a gRPC port."""

    endpoints: str
    nameserver: str
    broker_address: str
    proxy_endpoints: str = ""
    """Of a proxy in front of the broker, if there is one."""

    def create_topic(self, name: str, kind: str = "NORMAL", queues: int = 2) -> str:
        fields = {
            "topic": name,
            "defaultTopic": "TBW102",
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": "6",
            "order": "false",
            "attributes": f"+message.type={kind}",
        }
        answer = ask(self.broker_address, _UPDATE_AND_CREATE_TOPIC, fields)
        assert answer.code == 0, answer
        deadline = time.monotonic() + _PATIENCE
        while ask(self.nameserver, 105, {"topic": name}).code and time.monotonic() < deadline:
            time.sleep(0.05)
        return name

    def create_group(
        self, name: str, *, ordered: bool = False, retries: int = 16, attributes: Mapping[str, str] | None = None
    ) -> str:
        group = {
            "groupName": name,
            "consumeEnable": True,
            "consumeMessageOrderly": ordered,
            "retryMaxTimes": retries,
            "retryQueueNums": 1,
            "brokerId": 0,
            "whichBrokerWhenConsumeSlowly": 1,
            "consumeFromMinEnable": True,
            "consumeBroadcastEnable": True,
            "notifyConsumerIdsChangedEnable": True,
            "attributes": {f"+{key}": value for key, value in (attributes or {}).items()},
        }
        body = json.dumps(group).encode()
        assert ask(self.broker_address, _UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body).code == 0
        return name


def unavailable() -> str | None:
    """None if the servers can be run here, otherwise the reason."""
    return (apache.available() or PROXY.unavailable("Apache's proxy")) if against_apache() else None


@contextlib.contextmanager
def grpc_servers(home: Path, more: Mapping[str, str] | None = None) -> Iterator[Servers]:
    """Servers with an empty store, and with ``more`` settings of the broker; they are gone afterwards."""
    settings = {**SETTINGS, **(more or {})}
    if against_apache():
        with (
            ApacheNameServer(home / "nameserver") as nameserver,
            ApacheProxy(home / "proxy", nameserver.address, settings, PROXY_SETTINGS) as proxy,
        ):
            _wait(nameserver.address, proxy.broker_address)
            # OrbitMQ's proxy serves Apache's broker as well.
            with orbitmq_proxy(home / "orbitmq-proxy", nameserver.address) as own:
                yield Servers(proxy.endpoints, nameserver.address, proxy.broker_address, own)
        return
    port = free_port()
    with serving(home, {**settings, **PROXY_SETTINGS, "grpcServerPort": str(port)}) as running:
        endpoints = f"127.0.0.1:{port}"
        assert is_listening(endpoints)
        with orbitmq_proxy(home / "proxy", running.nameserver) as proxy:
            yield Servers(endpoints, running.nameserver, running.broker_address, proxy)


@contextlib.contextmanager
def orbitmq_proxy(home: Path, nameserver: str) -> Iterator[str]:
    """``orbitmq proxy`` in front of a cluster, as a process; its endpoints."""
    home.mkdir(parents=True, exist_ok=True)
    port = free_port()
    command = [sys.executable, "-m", "orbitmq", "proxy", "-n", nameserver, "--port", str(port)]
    for key, value in PROXY_SETTINGS.items():
        command += ["--set", f"{key}={value}"]
    process = PeerProcess("orbitmq proxy", command, home=home, environment={})
    try:
        endpoints = f"127.0.0.1:{port}"
        process.wait_until(lambda: is_listening(endpoints), what="listening", seconds=_PATIENCE)
        yield endpoints
    finally:
        process.kill()


def _wait(nameserver: str, broker_address: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while f'"{broker_address}"'.encode() not in ask(nameserver, GET_BROKER_CLUSTER_INFO).body:
        assert time.monotonic() < deadline, "the broker is not registered"
        time.sleep(0.1)
