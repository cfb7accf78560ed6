"""Any settings change that a running server accepts is accepted by its next start."""

from __future__ import annotations

import asyncio
import enum
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.broker.broker import Broker
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.loader import FIXED, load_settings
from orbitmq.broker.config.ranges import BROKER_RANGES
from orbitmq.nameserver import NameServer, NameServerConfig, load_config
from orbitmq.nameserver.config import RANGES
from orbitmq.platform.settings import INT32_MAX, INT64_MAX, Range, as_properties, parse_conf, settings_of
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.store import StoreConfig
from orbitmq.store.setting_ranges import STORE_RANGES
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.broker_harness import ROOT, BrokerPeer, running_broker
from support.nameserver_harness import QuietServer
from support.store.stores import TOPIC, send

if TYPE_CHECKING:
    from orbitmq.platform.settings import Setting

FILE = f"{ROOT}/config/broker.properties"
NAME_SERVER_FILE = "/ns/namesrv.properties"

BROKER_SETTINGS = {**settings_of(StoreConfig), **settings_of(BrokerConfig)}
BROKER_LIMITS = {**STORE_RANGES, **BROKER_RANGES}
TEXTS = [
    "", " ", "1", "04", "04;23", "24", "default", "PULL", "POP", "a", "a/b", "ü", "a\nb=c", "\x00", "x" * 200,
    "x" * 9000, "1s", "1s 2d", "9999999999999d", "1s " * 64, "²s", "(a+)+b", "(", "keep", "delete", "127.0.0.1",
    "::1", "0.0.0.0", "no.such.host.invalid", "one:9876;two:9876", "one", ";", "listenPort;deleteWhen", "../x",
    "\\", "%DLQ%a",
]  # fmt: skip
NOT_LOOKED_UP = frozenset({"brokerIP1", "namesrvAddr"})
"""Host names are resolved by the machine, which a test does not use."""


def numbers(limits: Range) -> st.SearchStrategy[str]:
    edges = [
        limits.low,
        limits.high,
        limits.low - 1,
        limits.high + 1,
        0,
        1,
        -1,
        INT32_MAX,
        INT64_MAX,
        INT64_MAX + 1,
    ]
    return (st.sampled_from(edges) | st.integers(limits.low, limits.high)).map(str)


def values(one: Setting, limits: Range | None) -> st.SearchStrategy[str]:
    kind: Any = one.kind
    if kind is bool:
        return st.sampled_from(["true", "false", "TRUE", "yes"])
    if kind is str:
        return st.sampled_from(TEXTS)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from([*kind.__members__, "OTHER"])
    if kind is float:
        return st.sampled_from(["0", "-1", "1e308", "nan", "0.5"])
    return numbers(limits or Range(-INT32_MAX - 1, INT32_MAX))


def changes(known: dict[str, Setting], limits: dict[str, Range]) -> st.SearchStrategy[dict[str, str]]:
    one = st.sampled_from(sorted(known.keys() - NOT_LOOKED_UP)).flatmap(
        lambda key: st.tuples(st.just(key), values(known[key], limits.get(known[key].name)))
    )
    return st.lists(one, min_size=1, max_size=4).map(dict)


async def _changed_and_started_again(all_changes: list[dict[str, str]]) -> list[bool]:
    """Apply changes to a broker with messages, restart it from the written file, and return the accepted ones."""
    disk, clock = MemoryDisk(), ManualClock(1_700_000_000_000)
    accepted = []
    async with running_broker(disk, clock) as broker, BrokerPeer.of(broker) as peer:
        send(broker.store, 3)
        for asked in all_changes:
            before = (broker.settings.as_properties(), _read(disk))
            answer = await peer.asks(RequestCode.UPDATE_BROKER_CONFIG, as_properties(asked).encode())
            accepted.append(answer.code == ResponseCode.SUCCESS)
            if not accepted[-1]:
                assert (broker.settings.as_properties(), _read(disk)) == before
                assert answer.remark
    if not any(accepted):
        return accepted
    settings, unknown = load_settings(disk, FILE)
    assert unknown == []
    again = Broker(settings, disk=disk, clock=clock)
    await again.start()
    try:
        assert again.store.max_offset(TOPIC, 0) == 3
    finally:
        await again.stop()
    return accepted


def _read(disk: MemoryDisk) -> bytes:
    return b"" if disk.stat(FILE) is None else disk.read(FILE)


@settings(max_examples=25, deadline=None)
@given(st.lists(changes(BROKER_SETTINGS, BROKER_LIMITS), min_size=1, max_size=12))
def test_a_broker_starts_from_the_file_that_any_accepted_change_has_written(
    all_changes: list[dict[str, str]],
) -> None:
    asyncio.run(_changed_and_started_again(all_changes))


@pytest.mark.parametrize("end", ["low", "high"])
def test_a_broker_starts_with_every_number_at_a_limit_of_its_range(end: str) -> None:
    names = {one.name: key for key, one in BROKER_SETTINGS.items() if key not in FIXED}
    asked = [
        {names[name]: str(getattr(limits, end))} for name, limits in BROKER_LIMITS.items() if name in names
    ]  # fmt: skip
    accepted = asyncio.run(_changed_and_started_again(asked))
    assert all(accepted), [one for one, was_accepted in zip(asked, accepted, strict=True) if not was_accepted]


@pytest.mark.parametrize(
    "asked",
    [
        {"messageDelayLevel": "9999999999999d"},
        {"maxIndexNum": "1"},
        {"reviveQueueNum": "2147483647"},
        {"mappedFileSizeCommitLog": "4096"},
        {"storePathRootDir": "/nowhere"},
        {"listenPort": "1"},
        {"brokerRole": "SLAVE"},
    ],
)
def test_a_change_that_would_prevent_the_next_start_is_refused(asked: dict[str, str]) -> None:
    assert asyncio.run(_changed_and_started_again([{"deleteWhen": "05"}, asked])) == [True, False]


@settings(deadline=None)
@given(st.lists(changes(dict(settings_of(NameServerConfig)), RANGES), min_size=1, max_size=8))
def test_a_name_server_starts_from_the_file_that_any_accepted_change_has_written(
    all_changes: list[dict[str, str]],
) -> None:
    server = QuietServer()
    for asked in all_changes:
        before = (server.state(), server.config.as_properties())
        answer = server.ask(RequestCode.UPDATE_NAMESRV_CONFIG, as_properties(asked).encode())
        if answer.code != ResponseCode.SUCCESS:
            assert (server.state(), server.config.as_properties()) == before
    if server.disk.stat(NAME_SERVER_FILE) is None:
        return
    config, unknown = load_config(server.disk, NAME_SERVER_FILE)
    assert unknown == []
    assert config == server.config
    assert parse_conf(server.disk.read(NAME_SERVER_FILE).decode()) == parse_conf(config.as_properties())
    NameServer(config, disk=server.disk)
