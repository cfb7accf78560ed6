"""A server starts with what it needs to listen; what else there is to load waits until there is work for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from orbitmq.protocol.codes import RequestCode, ResponseCode
from support.broker.requests import TOPIC, talking_at
from support.cli.server_process import orbitmq
from support.native.marks import needs_native

if TYPE_CHECKING:
    from pathlib import Path

    from support.cli.server_process import ServerProcess

LATER = {
    "numpy", "numpy._core", "lz4.frame", "backports.zstd", "typer", "click", "rich", "pydantic",
    "orbitmq.filter.tree", "orbitmq.client",
}  # fmt: skip
"""Modules that a listening server has not imported: each takes a good part of the start-up time to import.

A lazy module is not reported by its own name, only what it imports.
"""


FILTERS = {"orbitmq.filter.tree"}
"""Loaded by a thread of a broker that filters by SQL92, as that of ``orbitmq serve``, once it listens."""


def loaded_by(server: ServerProcess) -> set[str]:
    """The modules that a process has imported so far, as it says itself."""
    return set(re.findall(r"^import time: +\d+ \| +\d+ \| +(\S+)$", server.errors, re.MULTILINE))


@pytest.fixture(autouse=True)
def _imports_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPROFILEIMPORTTIME", "1")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("serve", "--nameserver-port", 0, "--broker-port", 0), r"broker +(\S+)"),
        (("broker", "--port", 0), r"listens on (\S+),"),
        (("nameserver", "--port", 0), r"listens on (\S+)"),
    ],
    ids=lambda said: said[0] if isinstance(said, tuple) else "",
)
async def test_a_server_listens_before_it_loads_what_it_may_never_need(
    tmp_path: Path, arguments: tuple[object, ...], says: str
) -> None:
    async with orbitmq(tmp_path, *arguments) as server:
        await server.says(says)
        assert await server.stopped() == 0
        loaded = loaded_by(server)
    assert "orbitmq.remoting.server" in loaded
    assert not loaded & (LATER - FILTERS if arguments[0] == "serve" else LATER)


@needs_native
async def test_messages_with_keys_are_stored_and_found_without_loading_more(tmp_path: Path) -> None:
    properties = {"UNIQ_KEY": "7F00000100002A139A55000000000001", "KEYS": "Bestellung größer", "TAGS": "größte"}
    times = {"beginTimestamp": 0, "endTimestamp": (1 << 63) - 1}
    async with orbitmq(tmp_path, "serve", "--nameserver-port", 0, "--broker-port", 0) as server:
        broker = await server.says(r"broker +(\S+)")
        async with talking_at(broker) as client:
            for _ in range(300):
                await client.stores(b"hello", TOPIC, properties)
            answer = await client.asks(RequestCode.QUERY_MESSAGE, topic=TOPIC, key="größer", maxNum=32, **times)
            assert answer.code == ResponseCode.SUCCESS
        assert await server.stopped() == 0
        assert not loaded_by(server) & (LATER - FILTERS)
