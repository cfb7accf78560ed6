"""TLS on the ports that are not RocketMQ's: the Prometheus endpoint and the console."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import trustme

from orbitmq.broker.config.loader import load_settings
from orbitmq.platform.settings import ConfigError
from orbitmq.testing import MemoryDisk
from support.broker.broker_harness import running_broker
from support.cli.server_process import orbitmq
from support.remoting_harness import HOST

if TYPE_CHECKING:
    from pathlib import Path


class Certificate:
    """A certificate of an authority of its own, in files that can be replaced."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "server.pem", folder / "server.key"
        self.client = self.replace()

    def replace(self) -> ssl.SSLContext:
        """Write another one; a context of clients that trust only that."""
        authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        leaf = authority.issue_cert(HOST, key_type=trustme.KeyType.ECDSA)
        leaf.private_key_pem.write_to_path(str(self.key))
        leaf.cert_chain_pems[0].write_to_path(str(self.certificate))
        context = ssl.create_default_context()
        authority.configure_trust(context)
        return context


async def fetched(url: str, tls: ssl.SSLContext) -> httpx.Response:
    async with httpx.AsyncClient(verify=tls) as client:
        return await client.get(url)


async def test_metrics_are_scraped_over_tls_with_the_current_certificate(tmp_path: Path) -> None:
    files = Certificate(tmp_path)
    settings: dict[str, Any] = {
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": "0",
        "metricsPromExporterTls": "true",
        "tls.server.certPath": str(files.certificate),
        "tls.server.keyPath": str(files.key),
    }
    async with running_broker(MemoryDisk(), **settings) as broker:
        assert broker.metrics is not None
        address = f"{HOST}:{broker.metrics.port}/metrics"
        assert "rocketmq_" in (await fetched(f"https://{address}", files.client)).text
        with pytest.raises(httpx.HTTPError):
            await fetched(f"http://{address}", files.client)
        former, files.client = files.client, files.replace()
        assert "rocketmq_" in (await fetched(f"https://{address}", files.client)).text
        with pytest.raises(httpx.ConnectError):
            await fetched(f"https://{address}", former)


def test_tls_of_the_metrics_needs_a_certificate() -> None:
    with pytest.raises(ConfigError, match=r"set tls\.server\.certPath"):
        load_settings(MemoryDisk(), None, {"metricsPromExporterTls": "true"})


async def test_the_console_is_served_over_https(tmp_path: Path) -> None:
    files = Certificate(tmp_path)
    options = ("--data", tmp_path / "console", "--port", 0, "--history-size", 0, "--nameserver", f"demo={HOST}:9")
    tls = ("--tls-cert", files.certificate, "--tls-key", files.key)
    async with orbitmq(tmp_path, "dashboard", *options, *tls) as console:
        address = await console.says(r"console +(https://\S+)")
        password = await console.says(r"password (\S+)")
        async with httpx.AsyncClient(verify=files.client) as client:
            signed_in = await client.post(f"{address}/api/v1/session", json={"user": "admin", "password": password})
            assert signed_in.status_code == 200
            assert "Secure" in signed_in.headers["set-cookie"]
        files.client = files.replace()
        assert (await fetched(f"{address}/login", files.client)).status_code == 200
        with pytest.raises(httpx.HTTPError):
            await fetched(address.replace("https", "http"), files.client)
        assert await console.stopped() == 0
