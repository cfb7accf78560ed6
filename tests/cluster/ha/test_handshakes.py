"""HA connections with a proof of identity and with TLS: nobody else gets a byte of the log."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from orbitmq.auth.credentials import Credentials
from orbitmq.auth.policies import UserStatus, UserType
from orbitmq.broker.config.loader import load_settings
from orbitmq.broker.ha import handshake
from orbitmq.broker.ha.handshake import MAX_PENDING
from orbitmq.broker.ha.proof import MAGIC, NONCE_BYTES, MasterProof, SlaveProof
from orbitmq.platform.settings import ConfigError
from orbitmq.store import StoredMessage
from orbitmq.store.replication.frames import REPORT, FrameError
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import running_broker
from support.broker.replica_harness import FAST, log_bytes
from support.broker.requests import TOPIC
from support.remoting_harness import HOST, eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from orbitmq.broker import Broker

USERS: dict[str, Any] = {
    "authenticationEnabled": "true",
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inners-secret"}',
}
PROVING = {**FAST, **USERS, "haAuthenticationEnabled": "true"}


def fill(master: Broker) -> None:
    """Append messages past the guard of clients."""
    for number in range(20):
        master.store.append(StoredMessage(TOPIC, 0, b"secret %d" % number * 1000))


@contextlib.asynccontextmanager
async def master_with_messages(**settings: Any) -> AsyncIterator[Broker]:
    async with running_broker(MemoryDisk(), **settings) as master:
        fill(master)
        yield master


@contextlib.asynccontextmanager
async def slave_of(master: Broker, **settings: Any) -> AsyncIterator[Broker]:
    async with running_broker(
        MemoryDisk(),
        **{
            **settings,
            "brokerRole": "SLAVE",
            "brokerId": "1",
            "haMasterAddress": f"{HOST}:{master.replication.port}",
        },
    ) as slave:
        yield slave


async def copied(master: Broker, slave: Broker) -> None:
    await eventually(lambda: slave.store.log.end == master.store.log.end > 0)
    assert log_bytes(slave) == log_bytes(master)


async def answer_of(master: Broker, *sent: bytes) -> bytes:
    """Everything that a peer of the HA port receives until it is closed."""
    reader, writer = await asyncio.open_connection(HOST, master.replication.port)
    received = b""
    try:
        for data in sent:
            writer.write(data)
        async with asyncio.timeout(30):
            with contextlib.suppress(ConnectionResetError):
                while data := await reader.read(65536):
                    received += data
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
    return received


async def test_a_slave_that_proves_itself_copies_the_log_and_follows_it() -> None:
    async with master_with_messages(**PROVING) as master, slave_of(master, **PROVING) as slave:
        await copied(master, slave)
        fill(master)
        await copied(master, slave)
        assert not master.replication.gate.pending


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {**PROVING, "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"wrong"}'},
            "its proof of User:'inner' is wrong",
        ),
        (
            {
                **PROVING,
                "innerClientAuthenticationCredentials": '{"accessKey":"nobody","secretKey":"inners-secret"}',
            },
            "its proof of User:'nobody' is wrong",
        ),
        (FAST, "it did not prove itself"),
    ],
    ids=["wrong secret", "unknown user", "RocketMQ's slave"],
)
async def test_a_slave_without_proof_gets_nothing(
    settings: dict[str, Any], said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with master_with_messages(**PROVING) as master, slave_of(master, **settings) as slave:
        await eventually(lambda: said in caplog.text)
        assert slave.store.log.end == 0
        assert not master.replication.slaves


async def test_a_disabled_user_and_a_normal_one_cannot_copy() -> None:
    async with master_with_messages(**PROVING) as master:
        assert master.access.secret_of_super_user("inner") == b"inners-secret"
        table = master.access.table
        assert table is not None
        inner = table.users["inner"]
        for change in ({"status": UserStatus.DISABLE}, {"type": UserType.NORMAL}):
            table.users = {"inner": dataclasses.replace(inner, **change)}
            assert master.access.secret_of_super_user("inner") is None


@pytest.mark.parametrize(
    "sent",
    [
        (REPORT.pack(0),),
        (MAGIC, b"\x05inner" + bytes(64)),
        (MAGIC, b"\x00" + bytes(64)),
        (MAGIC, b"\xff" + bytes(400)),
        (b"GET / HTTP/1.1\r\n\r\n",),
    ],
)
async def test_a_stranger_receives_at_most_a_random_number(
    sent: tuple[bytes, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "SECONDS", 0.5)
    async with master_with_messages(**PROVING) as master:
        received = await answer_of(master, *sent)
        assert len(received) <= len(MAGIC) + NONCE_BYTES
        assert not received or received.startswith(MAGIC)
        assert not master.replication.slaves


async def test_a_recorded_handshake_is_worth_nothing() -> None:
    """The master's random number is another one each time."""
    credentials, secrets = Credentials("inner", "s"), {"inner": b"s"}
    slave, first, second = SlaveProof(credentials), MasterProof(secrets.get), MasterProof(secrets.get)
    recorded = slave.feed(first.feed(MAGIC))
    assert slave.feed(first.feed(recorded)) == b""
    assert slave.is_done
    assert first.is_done
    second.feed(MAGIC)
    with pytest.raises(FrameError, match="wrong"):
        second.feed(recorded)


async def test_a_handshake_may_be_split_anywhere_and_the_log_may_follow_at_once() -> None:
    credentials, secrets = Credentials("inner", "s"), {"inner": b"s"}
    slave, master = SlaveProof(credentials), MasterProof(secrets.get)

    def by_bytes(feed: Any, data: bytes) -> bytes:
        return b"".join(feed(data[at : at + 1]) for at in range(len(data)))

    proof = by_bytes(slave.feed, by_bytes(master.feed, MAGIC))
    last = master.feed(proof + REPORT.pack(7))
    assert (master.is_done, master.rest) == (True, REPORT.pack(7))
    slave.feed(last + b"frames")
    assert (slave.is_done, slave.rest) == (True, b"frames")


async def test_a_slave_copies_nothing_from_a_master_that_does_not_know_the_secret() -> None:
    slave = SlaveProof(Credentials("inner", "s"))
    slave.feed(MAGIC + bytes(NONCE_BYTES))
    with pytest.raises(FrameError, match="the master did not prove"):
        slave.feed(bytes(32))
    with pytest.raises(FrameError, match="not a master of OrbitMQ"):
        SlaveProof(Credentials("inner", "s")).feed(bytes(12))


async def test_strangers_in_the_handshake_keep_no_slave_out() -> None:
    async with master_with_messages(**PROVING) as master:
        silent = [await asyncio.open_connection(HOST, master.replication.port) for _ in range(MAX_PENDING + 10)]
        await eventually(lambda: len(master.replication.gate.pending) == MAX_PENDING)
        async with slave_of(master, **PROVING) as slave:
            await copied(master, slave)
        for _, writer in silent:
            writer.transport.abort()


# TLS


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, str], dict[str, str]]:
    """Settings of a master and of a slave."""
    folder: Path = tmp_path_factory.mktemp("ha")
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    leaf = authority.issue_cert(HOST, key_type=trustme.KeyType.ECDSA)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    leaf.cert_chain_pems[0].write_to_path(str(folder / "server.pem"))
    leaf.private_key_pem.write_to_path(str(folder / "server.key"))
    ours = {
        "haTlsEnable": "true",
        "tls.server.certPath": str(folder / "server.pem"),
        "tls.server.keyPath": str(folder / "server.key"),
    }
    return ours, {"haTlsEnable": "true", "tls.enable": "true", "tls.client.trustCertPath": str(folder / "ca.pem")}


@pytest.mark.parametrize("settings", [FAST, PROVING], ids=["TLS", "TLS and proof"])
async def test_the_log_is_copied_over_tls(
    tls: tuple[dict[str, str], dict[str, str]], settings: dict[str, Any]
) -> None:
    ours, theirs = tls
    async with master_with_messages(**settings, **ours) as master:
        async with slave_of(master, **settings, **theirs) as slave:
            await copied(master, slave)
            fill(master)
            await copied(master, slave)
        assert b"secret" not in await answer_of(master, REPORT.pack(0))


async def test_a_slave_refuses_a_master_with_a_strangers_certificate(
    tls: tuple[dict[str, str], dict[str, str]], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = tls
    trustme.CA(key_type=trustme.KeyType.ECDSA).cert_pem.write_to_path(str(tmp_path / "other.pem"))
    other = {**theirs, "tls.client.trustCertPath": str(tmp_path / "other.pem")}
    async with master_with_messages(**FAST, **ours) as master, slave_of(master, **FAST, **other) as slave:
        await eventually(lambda: "TLS handshake failed" in caplog.text)
        assert slave.store.log.end == 0


# Settings


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"haAuthenticationEnabled": "true"}, "needs authenticationEnabled"),
        ({"haTlsEnable": "true"}, "set tls.server.certPath"),
        ({"haTlsEnable": "true", "brokerRole": "SLAVE", "brokerId": "1"}, "needs tls.enable=true"),
        (
            {
                "haAuthenticationEnabled": "true",
                "authenticationEnabled": "true",
                "brokerRole": "SLAVE",
                "brokerId": "1",
            },
            "needs innerClientAuthenticationCredentials",
        ),
    ],
)
def test_handshakes_that_cannot_be_done_refuse_the_start(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_settings(MemoryDisk(), None, settings)
