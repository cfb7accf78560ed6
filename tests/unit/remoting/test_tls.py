"""TLS on the same port as plain frames, in the three modes, with certificates that may change while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import shutil
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from orbitmq.protocol.command.command import Command
from orbitmq.remoting import (
    ClientTls,
    ConnectError,
    Connection,
    Limits,
    RemotingClient,
    RemotingServer,
    ServerTls,
    TlsConfigError,
    TlsMode,
)
from support.remoting_harness import (
    ECHO,
    HOST,
    PATIENCE,
    RawPeer,
    answer_to,
    decoded,
    echo,
    eventually,
    on_each_loop,
    request,
    serving,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from orbitmq.protocol.command.header import Header
    from orbitmq.remoting import Answer, Buffer


class Authority:
    """Who signs certificates, and files of those it signed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.trusted = str(folder / "authority.pem")
        self._authority.cert_pem.write_to_path(self.trusted)

    def issue(self, name: str) -> dict[str, Any]:
        """The paths of a certificate and its key."""
        leaf = self._authority.issue_cert(HOST, common_name=name, key_type=trustme.KeyType.ECDSA)
        certificate, key = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        leaf.cert_chain_pems[0].write_to_path(certificate)
        leaf.private_key_pem.write_to_path(key)
        return {"certificate_path": str(certificate), "key_path": str(key)}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


@contextlib.asynccontextmanager
async def calling(server: RemotingServer, **options: Any) -> AsyncIterator[Connection]:
    """A client's end of a new connection to a server."""
    client = RemotingClient({ECHO: echo}, **options)
    try:
        yield await client.connect(f"{HOST}:{server.ports[0]}")
    finally:
        await client.close()


def name_in(connection: Connection) -> str:
    """The common name of the certificate that the peer showed."""
    certificate = connection._transport.get_extra_info("ssl_object").getpeercert()
    return str(dict(entry[0] for entry in certificate["subject"])["commonName"])


def encrypt(key_path: str, encrypted_path: str) -> None:
    """Write a key again so that reading it takes the password ``secret``."""
    key = serialization.load_pem_private_key(Path(key_path).read_bytes(), None)
    Path(encrypted_path).write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )


@on_each_loop
@pytest.mark.parametrize("mode", list(TlsMode))
@pytest.mark.parametrize("tls", [None, ClientTls(verify_server=False)])
async def test_the_mode_decides_who_may_come_in(mode: TlsMode, tls: ClientTls | None, authority: Authority) -> None:
    welcome = mode is TlsMode.PERMISSIVE or (mode is TlsMode.ENFORCING) == (tls is not None)
    async with serving({ECHO: echo}, tls=ServerTls(mode, **authority.issue("broker"))) as server:
        answers: list[object] = []
        with contextlib.suppress(ConnectError):
            async with calling(server, tls=tls) as connection:
                call = connection.call(Command(ECHO, body=b"hello"), PATIENCE)
                answers += await asyncio.gather(call, return_exceptions=True)

    assert [isinstance(answer, Command) and answer.body == b"hello" for answer in answers if welcome] == [
        True
    ] * welcome
    assert welcome or not any(isinstance(answer, Command) for answer in answers)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("disabled", TlsMode.DISABLED),
        ("permissive", TlsMode.PERMISSIVE),
        ("enforcing", TlsMode.ENFORCING),
        ("whatever", TlsMode.PERMISSIVE),
    ],
)
def test_an_unknown_mode_is_permissive(text: str, mode: TlsMode) -> None:
    assert TlsMode.of(text) is mode


@on_each_loop
async def test_an_ordinary_tls_client_is_understood_in_any_split(authority: Authority) -> None:
    context = ssl.create_default_context(cafile=authority.trusted)
    async with (
        serving({ECHO: echo}, tls=ServerTls(**authority.issue("broker"))) as server,
        RawPeer.connected(server, context) as peer,
    ):
        stream = b"".join(request(ECHO, opaque, body=bytes(100 * opaque)) for opaque in range(50))
        for at in range(0, len(stream), 999):
            peer.send(stream[at : at + 999])
        answers = [await peer.receive() for _ in range(50)]

    assert [(answer.opaque, len(answer.body or b"")) for answer in answers] == [(n, 100 * n) for n in range(50)]


@on_each_loop
async def test_large_bodies_and_parts_of_a_mapped_file_go_through_tls(authority: Authority) -> None:
    with mmap.mmap(-1, 1 << 22) as mapped:
        mapped[:] = bytes(range(256)) * (len(mapped) // 256)
        view = memoryview(mapped)

        def parts(_: Connection, header: Header, __: bytes, serialize_type: int) -> Answer:
            whole = answer_to(header, serialize_type, body=bytes(len(view)))
            pieces: list[Buffer] = [whole[: -len(view)], view[:10], view[10:]]
            return pieces

        async with serving({ECHO: echo, 1: parts}, tls=ServerTls(**authority.issue("broker"))) as server:
            body = bytes(range(256)) * 32768
            async with calling(server, tls=ClientTls(verify_server=False)) as connection:
                calls = [connection.call(Command(code, body=body), PATIENCE) for code in (ECHO, 1, ECHO)]
                answers = await asyncio.gather(*calls)
        whole = bytes(view)
        view.release()

    assert [answer.body for answer in answers] == [body, whole, body]


@on_each_loop
async def test_a_server_calls_its_client_over_tls(authority: Authority) -> None:
    async with serving({ECHO: echo}, tls=ServerTls(**authority.issue("broker"))) as server:
        async with calling(server, tls=ClientTls(verify_server=False)) as connection:
            await connection.call(Command(ECHO), PATIENCE)
            (other,) = server.connections
            answer = await other.call(Command(ECHO, body=b"back"), PATIENCE)
            assert other.remote_address == connection.local_address
        await eventually(lambda: not server.connections)

    assert answer.body == b"back"


@on_each_loop
async def test_a_proxy_may_stand_before_tls(authority: Authority) -> None:
    """What follows the PROXY line is TLS, so the handshake is done by hand on a plain socket."""
    seen: list[str] = []
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = ssl.create_default_context(cafile=authority.trusted).wrap_bio(incoming, outgoing, server_hostname=HOST)
    async with (
        serving(
            {ECHO: echo},
            tls=ServerTls(**authority.issue("broker")),
            on_open=lambda connection: seen.append(connection.remote_address),
            trusted_proxies=HOST,
        ) as server,
        RawPeer.connected(server) as peer,
    ):
        peer.send(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 10911\r\n")

        async def through(operation: Any, *arguments: Any) -> Any:
            while True:
                try:
                    result = operation(*arguments)
                except ssl.SSLWantReadError:
                    peer.send(outgoing.read())
                    incoming.write(await peer.reader.read(65536))
                else:
                    peer.send(outgoing.read())
                    return result

        await through(tls.do_handshake)
        await through(tls.write, request(ECHO, 3))
        received = await through(tls.read, 65536)

    assert [answer.opaque for answer in decoded(received)] == [3]
    assert seen == ["192.0.2.1:56324"]


@on_each_loop
async def test_new_connections_use_a_new_certificate_and_old_ones_live_on(
    authority: Authority, tmp_path: Path
) -> None:
    first, second, third = (authority.issue(name) for name in ("first", "second", "third"))
    used: dict[str, Any] = {key: str(tmp_path / key) for key in first}

    def install(issued: dict[str, Any]) -> None:
        for key, path in used.items():
            shutil.copy(issued[key], path + ".new")
            os.replace(path + ".new", path)

    install(first)
    trusting = ClientTls(trusted_path=authority.trusted, check_name=False)
    async with serving({ECHO: echo}, tls=ServerTls(**used)) as server, calling(server, tls=trusting) as old:
        names = [name_in(old)]
        install(second)
        async with calling(server, tls=trusting) as connection:
            names.append(name_in(connection))
        install(third)
        server.reload_certificates()
        async with calling(server, tls=trusting) as connection:
            names.append(name_in(connection))
        answer = await old.call(Command(ECHO, body=b"still here"), PATIENCE)

    assert names == ["first", "second", "third"]
    assert answer.body == b"still here"


@on_each_loop
async def test_files_that_cannot_be_used_leave_the_former_certificate_in_use(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    issued, other = authority.issue("first"), authority.issue("other")
    used: dict[str, Any] = {key: shutil.copy(path, tmp_path / key) for key, path in issued.items()}
    async with serving({ECHO: echo}, tls=ServerTls(**used)) as server:
        # Half of a replacement: the new certificate does not fit the old key.
        shutil.copy(other["certificate_path"], used["certificate_path"])
        names = []
        for _ in range(2):
            async with calling(
                server, tls=ClientTls(trusted_path=authority.trusted, check_name=False)
            ) as connection:
                names.append(name_in(connection))
        os.remove(used["key_path"])
        async with calling(server, tls=ClientTls(verify_server=False)) as connection:
            await connection.call(Command(ECHO), PATIENCE)

    assert names == ["first", "first"]
    assert (
        len([record for record in caplog.records if "tls: certificate reload failed" in record.getMessage()]) == 2
    )


@on_each_loop
async def test_a_client_may_have_to_show_a_certificate(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger")
    tls = ServerTls(
        TlsMode.ENFORCING,
        **authority.issue("broker"),
        trusted_path=authority.trusted,
        client_auth=ssl.CERT_REQUIRED,
    )
    outcomes = []
    own: dict[str, Any]
    for own in ({}, stranger.issue("client"), authority.issue("client")):
        async with serving({ECHO: echo}, tls=tls) as server:
            try:
                async with calling(server, tls=ClientTls(verify_server=False, **own)) as connection:
                    # With TLS 1.3 a client hears of it only after its own part of the handshake is done.
                    calls = await asyncio.gather(connection.call(Command(ECHO), PATIENCE), return_exceptions=True)
                    outcomes.append(isinstance(calls[0], Command))
            except ConnectError:
                outcomes.append(False)

    assert outcomes == [False, False, True]


@on_each_loop
async def test_a_client_that_verifies_refuses_a_strangers_certificate(authority: Authority, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger")
    async with serving({ECHO: echo}, tls=ServerTls(**stranger.issue("broker"))) as server:
        with pytest.raises(ConnectError, match="its certificate is not accepted"):
            async with calling(server, tls=ClientTls(trusted_path=authority.trusted, check_name=False)):
                pass
        await eventually(lambda: not server.connections)


@on_each_loop
@pytest.mark.parametrize("wire", [b"\x16\x03\x01\x00\x05hello", b"\x16" + bytes(100), b"\x16\x03\x01"])
async def test_what_is_no_handshake_closes_the_connection(wire: bytes, authority: Authority) -> None:
    limits = Limits(sweep_seconds=0.005, handshake_seconds=0.02)
    tls = ServerTls(**authority.issue("broker"))
    async with serving({ECHO: echo}, limits, tls=tls) as server, RawPeer.connected(server) as peer:
        peer.send(wire)
        await peer.rest()

        assert server.connections == frozenset()


@on_each_loop
async def test_broken_records_after_the_handshake_close_the_connection(authority: Authority) -> None:
    gone: list[Exception | None] = []
    async with serving(
        {ECHO: echo}, tls=ServerTls(**authority.issue("broker")), on_close=lambda _, error: gone.append(error)
    ) as server:
        async with calling(server, tls=ClientTls(verify_server=False)) as connection:
            await connection.call(Command(ECHO), PATIENCE)
            connection._transport._transport.write(b"\x17\x03\x03\x00\x05hello")  # type: ignore[attr-defined]
            await eventually(lambda: connection.is_closing)
        await eventually(lambda: gone)

    assert isinstance(gone[0], ssl.SSLError)


@on_each_loop
async def test_without_a_certificate_a_permissive_server_refuses_tls_and_says_why(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with serving({ECHO: echo}) as server:
        with pytest.raises(ConnectError):
            async with calling(server, tls=ClientTls(verify_server=False)):
                pass
        async with calling(server) as connection:
            assert (await connection.call(Command(ECHO), PATIENCE)).code == 0

    assert "set tls.server.certPath" in caplog.text


@on_each_loop
async def test_certificates_that_cannot_be_used_are_an_error_at_the_start(
    authority: Authority, tmp_path: Path
) -> None:
    issued = authority.issue("broker")
    encrypted = str(tmp_path / "encrypted.key")
    encrypt(issued["key_path"], encrypted)
    missing = str(tmp_path / "missing.pem")
    wrong = [
        ServerTls(TlsMode.ENFORCING),
        ServerTls(certificate_path=missing, key_path=issued["key_path"]),
        ServerTls(**issued, client_auth=ssl.CERT_REQUIRED, trusted_path=missing),
        # Nobody is asked for the password at the terminal.
        ServerTls(certificate_path=issued["certificate_path"], key_path=encrypted),
    ]
    for tls in wrong:
        with pytest.raises(TlsConfigError):
            async with serving({ECHO: echo}, tls=tls):
                pass
    right = ServerTls(certificate_path=issued["certificate_path"], key_path=encrypted, key_password="secret")
    async with (
        serving({ECHO: echo}, tls=right) as server,
        calling(server, tls=ClientTls(verify_server=False)) as connection,
    ):
        assert (await connection.call(Command(ECHO), PATIENCE)).code == 0
