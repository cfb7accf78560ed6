"""Settings of a controller: RocketMQ's files load, and what would split the brain is refused."""

from __future__ import annotations

import pytest

from orbitmq.controller import ControllerConfig, load_config
from orbitmq.platform.settings import ConfigError, from_settings, parse_conf
from orbitmq.testing import MemoryDisk


def loaded(text: str) -> ControllerConfig:
    disk = MemoryDisk()
    disk.write("/etc/controller.conf", text.encode())
    config, unknown = load_config(disk, "/etc/controller.conf", defaults={"bindAddress": "127.0.0.1"})
    assert unknown == []
    return config


def test_the_listen_address_is_that_of_the_own_peer() -> None:
    config = loaded(
        "controllerDLegerGroup = group1\ncontrollerDLegerPeers = n0-10.1.2.3:9878;n1-10.1.2.4:9868\n"
        "controllerDLegerSelfId = n1\ncontrollerStoreType=etcd\n"
    )
    own = config.own_peer
    assert own is not None
    assert (own.id, own.address, config.bind_address, config.group) == ("n1", "10.1.2.4:9868", "10.1.2.4", "group1")


def test_a_file_that_names_a_bind_address_keeps_it() -> None:
    peers = "controllerDLegerPeers=n0-10.1.2.3:9878\ncontrollerDLegerSelfId=n0\n"
    assert loaded(peers + "bindAddress=0.0.0.0\n").bind_address == "0.0.0.0"
    assert loaded(peers.replace("10.1.2.3", "controller-0.example")).bind_address == "127.0.0.1"
    assert loaded("").bind_address == "127.0.0.1"


def test_the_peers_of_jraft_are_its_addresses_in_the_order_of_its_ids() -> None:
    config = loaded(
        "controllerType=jRaft\njRaftServerId=localhost:9881\ncontrollerStoreType=etcd\njRaftGroupId=g\n"
        "jRaftInitConf=localhost:9880,localhost:9881\njRaftControllerRPCAddr=localhost:9770,localhost:9771\n"
    )
    own = config.own_peer
    assert own is not None
    assert (own.address, config.group, config.store_path.rpartition("/")[2]) == (
        "localhost:9771", "g", "jRaftController",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("controllerDLegerPeers=n0-h:1;n1-h:2\ncontrollerDLegerSelfId=n0", "controllerStoreType=file"),
        ("controllerType=jRaft", "controllerStoreType=file"),
        ("controllerType=Paxos", "controllerType"),
        ("controllerStoreType=zookeeper", "controllerStoreType"),
        ("controllerDLegerPeers=n0:h:1", "controllerDLegerPeers"),
        ("controllerDLegerPeers=n0-h:1;n0-h:2", "twice"),
        ("controllerStoreType=etcd\netcdEndpoints=10.0.0.1:2379", "etcdEndpoints"),
        ("controllerStoreType=etcd\netcdEndpoints=http://h:x", "etcdEndpoints"),
        ("controllerStoreType=etcd\netcdEndpoints=,", "etcdEndpoints"),
        ("controllerStoreType=etcd\netcdCertFile=/c.pem", "etcdKeyFile"),
        ("etcdLeaseSeconds=1", "etcdLeaseSeconds"),
        ("scanNotActiveBrokerInterval=0", "scanNotActiveBrokerInterval"),
    ],
)
def test_a_value_that_cannot_be_is_named(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        from_settings(ControllerConfig, parse_conf(text))


def test_an_own_id_that_is_no_peer_is_named() -> None:
    config, _ = from_settings(
        ControllerConfig, parse_conf("controllerDLegerPeers=n0-h:1\ncontrollerDLegerSelfId=n7")
    )
    with pytest.raises(ConfigError, match="controllerDLegerSelfId=n7"):
        _ = config.own_peer
