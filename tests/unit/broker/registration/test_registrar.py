"""Registrar: registration with real name servers that restart, and field by field as a real broker's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.metadata.topics import TopicTable
from orbitmq.broker.registration import registrar as registration_module
from orbitmq.broker.registration.registrar import Registration
from orbitmq.nameserver import NameServer, NameServerConfig
from orbitmq.protocol.bodies import DataVersion, KVTable, RegisterBrokerBody, TopicConfig
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.message.crc import body_crc
from orbitmq.remoting import RemotingClient
from orbitmq.remoting.processor import handler_of
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.client_registry_harness import run_here
from support.remoting_harness import HOST, decoded, eventually, on_each_loop, serving
from support.wire_captures import captured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, RemotingServer
    from support.wire_captures import Captured

T0 = 1_700_000_000_000
NOBODY = f"{HOST}:1"
"""Address without a name server."""


class Broker:
    """The topics of a broker and its registrar."""

    def __init__(self, *name_servers: str, **settings: Any) -> None:
        self.clock = ManualClock(T0)
        usual = {"broker_name": "broker-w", "listen_port": 14911, "namesrv_addr": ";".join(name_servers)}
        self.config = BrokerConfig(**{**usual, **settings})
        self.writer = ConfigWriter(MemoryDisk(), "/store/config", run_here)
        self.topics = TopicTable(self.writer, self.config, self.clock)
        self.registration = Registration(
            self.config, self.topics, self.clock, ha_address="192.0.2.2:14912", first_pause=0.01, patience=5
        )
        self.topics.on_change = self.registration.topics_changed

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, *name_servers: str, **settings: Any) -> AsyncIterator[Broker]:
        broker = cls(*name_servers, **settings)
        broker.registration.start()
        try:
            yield broker
        finally:
            await broker.registration.stop()
            await broker.writer.stop()

    async def is_registered_with(self, *name_servers: str) -> None:
        await eventually(lambda: set(self.registration.registered_with) == set(name_servers))


@contextlib.asynccontextmanager
async def name_server(port: int = 0) -> AsyncIterator[NameServer]:
    config = NameServerConfig(
        listen_port=port, bind_address=HOST, kv_config_path="/ns/kv.json", config_store_path="/ns/properties"
    )
    server = NameServer(config, disk=MemoryDisk())
    await server.start()
    try:
        yield server
    finally:
        await server.stop(grace=0)


def at(server: NameServer | Listening) -> str:
    return f"{HOST}:{server.port}"


def topics_of(server: NameServer) -> dict[str, int]:
    """The topics of the broker in a name server, with their permissions."""
    return {topic: queues["broker-w"].perm for topic, queues in server.table.topics.items() if "broker-w" in queues}


class Listening:
    """A name server that records requests and responds as a test configures; by default with success."""

    server: RemotingServer

    def __init__(self, answer: Callable[[Command], Command] | None = None) -> None:
        self.heard: list[Command] = []
        self._answer = answer or (lambda request: request.response(ResponseCode.SUCCESS))
        self._may_answer = asyncio.Event()
        self._may_answer.set()

    def fall_silent(self) -> None:
        self._may_answer.clear()

    def speak(self) -> None:
        self._may_answer.set()

    @property
    def port(self) -> int:
        return self.server.ports[0]

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Listening]:
        codes = (
            RequestCode.REGISTER_BROKER,
            RequestCode.UNREGISTER_BROKER,
            RequestCode.QUERY_DATA_VERSION,
            RequestCode.BROKER_HEARTBEAT,
        )
        async with serving({code: handler_of(self._hear) for code in codes}) as self.server:
            yield self

    async def _hear(self, request: Command, _: Connection) -> Command:
        self.heard.append(request)
        await self._may_answer.wait()
        return self._answer(request)

    def registered(self) -> list[set[str]]:
        """The topics of each registration."""
        return [set(said(one).topic_config_table) for one in self.of(RequestCode.REGISTER_BROKER)]

    def of(self, code: int) -> list[Command]:
        return [request for request in self.heard if request.code == code]


def said(request: Command) -> Any:
    return RegisterBrokerBody.decode(request.body or b"").topic_config_serialize_wrapper


def real(scenario: str, code: int) -> list[Captured]:
    return [frame for frame in captured(scenario) if frame.code == code and not frame.is_response]


# Compared with a real broker field by field


def assert_same_registration(ours: Command, theirs: Captured) -> None:
    (real_one,) = decoded(theirs.wire)
    assert (ours.flag, ours.language, ours.version) == (real_one.flag, real_one.language, real_one.version)
    without_crc = {name: text for name, text in real_one.ext_fields.items() if name != "bodyCrc32"}
    assert {name: text for name, text in ours.ext_fields.items() if name != "bodyCrc32"} == without_crc
    mine, theirs_said = said(ours), said(real_one)
    assert mine.topic_config_table == theirs_said.topic_config_table
    # The same bytes once both have one order and one time.
    for body in (mine, theirs_said):
        body.data_version = body.mapping_data_version = DataVersion()
        body.topic_config_table = dict(sorted(body.topic_config_table.items()))
    assert RegisterBrokerBody(mine).encode() == RegisterBrokerBody(theirs_said).encode()
    for one in (ours, real_one):
        assert int(one.ext_fields["bodyCrc32"]) == body_crc(one.body or b"")


@on_each_loop
async def test_a_broker_registers_and_leaves_as_a_real_one_does() -> None:
    async with Listening().running() as server:
        async with Broker.running(at(server), trace_topic_enable=True) as broker:
            await broker.is_registered_with(at(server))
            broker.topics.update(TopicConfig("T_adm", 6, 6))
            await broker.registration.settled()
        first, second, goodbye = server.heard
        assert_same_registration(first, real("broker_register_json", RequestCode.REGISTER_BROKER)[0])
        assert said(first).data_version == DataVersion(0, 0, T0)
        assert said(first).mapping_data_version == DataVersion(0, 0, T0)
        (single,) = (
            frame
            for frame in real("admin", RequestCode.REGISTER_BROKER)
            if b'"T_adm":{' in frame.wire and b'"counter":33' in frame.wire
        )
        assert_same_registration(second, single)
        assert said(second).data_version == DataVersion(1, 0, T0)
        (real_goodbye,) = decoded(real("broker_unregister_json", RequestCode.UNREGISTER_BROKER)[0].wire)
        assert goodbye.code == RequestCode.UNREGISTER_BROKER
        assert (goodbye.ext_fields, goodbye.body) == (real_goodbye.ext_fields, real_goodbye.body)
        assert (goodbye.flag, goodbye.version) == (real_goodbye.flag, real_goodbye.version)


# Several name servers


@on_each_loop
async def test_all_name_servers_get_the_registration_changes_and_the_unregistration() -> None:
    async with name_server() as one, name_server() as two:
        async with Broker.running(at(one), at(two)) as broker:
            await broker.is_registered_with(at(one), at(two))
            expected = {topic: config.perm for topic, config in broker.topics.configs.items()}
            assert topics_of(one) == topics_of(two) == expected
            await broker.topics.create(TopicConfig("T", 4, 4))
            await broker.registration.settled()
            assert topics_of(one)["T"] == topics_of(two)["T"] == 6
            broker.topics.update(TopicConfig("T", 4, 4, 4))
            await broker.registration.settled()
            assert topics_of(one)["T"] == topics_of(two)["T"] == 4
        assert not one.table.brokers
        assert not two.table.brokers


@on_each_loop
async def test_a_restarted_name_server_gets_a_full_registration_and_others_are_not_affected() -> None:
    async with name_server() as one, name_server() as two, Broker.running(at(one), at(two)) as broker:
        port = two.port
        await broker.is_registered_with(at(one), at(two))
        await two.stop(grace=0)
        await broker.is_registered_with(at(one))
        broker.topics.update(TopicConfig("T1"))
        await broker.registration.settled()
        assert "T1" in topics_of(one)
        async with name_server(port) as returned:
            await broker.is_registered_with(at(one), at(returned))
            assert topics_of(returned).keys() == broker.topics.configs.keys()
            broker.topics.update(TopicConfig("T2"))
            await broker.registration.settled()
            assert "T2" in topics_of(one)
            assert "T2" in topics_of(returned)


@on_each_loop
async def test_an_unreachable_name_server_is_retried_until_it_responds() -> None:
    async with name_server() as server:
        address, port = at(server), server.port
        await server.stop(grace=0)
        async with Broker.running(address) as broker:
            await broker.registration.settled()
            assert broker.registration.registered_with == []
            async with name_server(port) as there:
                await broker.is_registered_with(address)
                assert topics_of(there)


@on_each_loop
async def test_an_unresponsive_name_server_delays_no_other() -> None:
    async with name_server() as server, Listening().running() as silent:
        silent.fall_silent()
        async with Broker.running(at(silent), at(server), NOBODY) as broker:
            await broker.is_registered_with(at(server))
            broker.topics.update(TopicConfig("T"))
            await eventually(lambda: "T" in topics_of(server))
            assert broker.registration.registered_with == [at(server)]
            broker.registration.patience = 0.01
            await broker.registration.settled()
        # The stop was not delayed, and the reachable one got the unregistration.
        assert not server.table.brokers
        silent.speak()


async def test_each_change_of_state_is_one_line_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "orbitmq.broker")
    attempts: list[str] = []
    connection = RemotingClient.connection

    async def counted(client: RemotingClient, address: str) -> Connection:
        attempts.append(address)
        return await connection(client, address)

    monkeypatch.setattr(RemotingClient, "connection", counted)
    async with name_server() as server, Broker.running(at(server)) as broker:
        address, port = at(server), server.port
        await broker.is_registered_with(address)
        await server.stop(grace=0)
        before = len(attempts)
        await eventually(lambda: len(attempts) > before + 4)
        async with name_server(port):
            await broker.is_registered_with(address)
            for number in range(3):
                broker.topics.update(TopicConfig(f"T{number}"))
                await broker.registration.settled()
            there, gone, back = (record.message for record in caplog.records if record.name == "orbitmq.broker")
    assert there == back == f"registration: registered with name server {address}"
    assert gone.startswith(f"registration: name server {address} failed, will retry: ")


@on_each_loop
async def test_a_broker_without_name_servers_runs_alone() -> None:
    async with Broker.running() as broker:
        broker.topics.update(TopicConfig("T"))
        broker.registration.register_soon()
        await broker.registration.wipe_write_permission()
        assert broker.registration.registered_with == []


# Changes


@on_each_loop
async def test_changes_of_one_loop_iteration_go_in_one_request() -> None:
    async with Listening().running() as server, Broker.running(at(server)) as broker:
        await broker.is_registered_with(at(server))
        await asyncio.gather(*(broker.topics.create(TopicConfig(f"T{number}", 1, 1)) for number in range(100)))
        await broker.registration.settled()
        everything, burst = server.registered()
        assert len(burst) == 100
        assert len(everything & burst) == 0
        assert said(server.heard[1]).data_version.counter == 100


@on_each_loop
async def test_changes_while_a_request_is_in_flight_go_in_the_next() -> None:
    async with Listening().running() as server, Broker.running(at(server)) as broker:
        await broker.is_registered_with(at(server))
        server.fall_silent()
        broker.topics.update(TopicConfig("T1"))
        await eventually(lambda: len(server.heard) == 2)
        for number in (2, 3):
            broker.topics.update(TopicConfig(f"T{number}"))
            await asyncio.sleep(0)
        server.speak()
        await broker.registration.settled()
        assert server.registered()[1:] == [{"T1"}, {"T2", "T3"}]


@on_each_loop
async def test_a_topic_deleted_before_its_registration_is_not_registered() -> None:
    async with Listening().running() as server, Broker.running(at(server)) as broker:
        await broker.is_registered_with(at(server))
        broker.topics.update(TopicConfig("T"))
        broker.topics.delete("T")
        await broker.registration.settled()
        broker.topics.update(TopicConfig("U"))
        await broker.registration.settled()
        assert server.registered()[1:] == [{"U"}]


@on_each_loop
async def test_a_refusing_name_server_gets_full_registrations_until_it_accepts() -> None:
    def answer(request: Command) -> Command:
        refuses = len(server.heard) in {1, 2, 4}
        return request.response(ResponseCode.SYSTEM_ERROR if refuses else ResponseCode.SUCCESS, remark="no")

    async with (server := Listening(answer)).running(), Broker.running(at(server)) as broker:
        await broker.is_registered_with(at(server))
        assert [len(topics) > 10 for topics in server.registered()] == [True, True, True]
        broker.topics.update(TopicConfig("T"))
        await eventually(lambda: len(server.heard) == 5)
        await broker.is_registered_with(at(server))
        single, everything = server.registered()[3:]
        assert single == {"T"}
        assert len(everything) > 10
        assert "T" in everything


async def test_an_unexpected_error_of_a_registration_is_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    build, failures = Registration.request_for_all, [RuntimeError("injected")]

    def failing(registration: Registration) -> list[Command]:
        if failures:
            raise failures.pop()
        return build(registration)

    monkeypatch.setattr(Registration, "request_for_all", failing)
    async with name_server() as server, Broker.running(at(server)) as broker:
        await broker.is_registered_with(at(server))
    assert "failed, will retry: RuntimeError: injected" in caplog.text


@on_each_loop
async def test_topics_become_ordered_by_the_list_in_the_response() -> None:
    table = KVTable({"BenchmarkTest": "broker-w:4", "elsewhere": "x:1"}).encode()
    server = Listening(lambda request: request.response(ResponseCode.SUCCESS, body=table))
    async with server.running(), Broker.running(at(server)) as broker:
        await broker.is_registered_with(at(server))
        assert [name for name, config in broker.topics.configs.items() if config.order] == ["BenchmarkTest"]
        assert broker.topics.data_version.counter == 1


# Permissions


@on_each_loop
async def test_wiping_the_write_permission_registers_read_only_topics() -> None:
    async with name_server() as one, name_server() as two, Broker.running(at(one), at(two), NOBODY) as broker:
        await broker.is_registered_with(at(one), at(two))
        await broker.registration.wipe_write_permission()
        expected = {topic: config.perm & ~2 for topic, config in broker.topics.configs.items()}
        assert expected["BenchmarkTest"] == 4
        assert topics_of(one) == topics_of(two) == expected
        # Later changes are read-only too; the broker's own table is unchanged.
        broker.topics.update(TopicConfig("T"))
        await broker.registration.settled()
        assert topics_of(one)["T"] == topics_of(two)["T"] == 4
        assert broker.topics.configs["T"].perm == 6


@on_each_loop
async def test_the_permission_of_the_broker_limits_that_of_its_topics() -> None:
    async with name_server() as server, Broker.running(at(server), broker_permission=4) as broker:
        await broker.is_registered_with(at(server))
        assert set(topics_of(server).values()) == {0, 4}
        broker.config.broker_permission = 6
        broker.topics.bump()
        broker.registration.register_soon()
        await broker.registration.settled()
        assert topics_of(server)["BenchmarkTest"] == 6
        assert topics_of(server)["TBW102"] == 7


# Period


@pytest.fixture
def short_period(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registration_module, "MIN_PERIOD_MS", 10)


@pytest.mark.usefixtures("short_period")
async def test_everything_is_registered_again_in_each_period() -> None:
    async with (
        Listening().running() as server,
        Broker.running(at(server), register_name_server_period=10) as broker,
    ):
        await eventually(lambda: len(server.heard) >= 4)
        topics = set(broker.topics.configs)
        assert all(registered == topics for registered in server.registered())
        # Encoded once: nothing has changed.
        assert len({request.body for request in server.heard}) == 1


@pytest.mark.usefixtures("short_period")
async def test_addresses_that_change_are_followed_in_the_next_period() -> None:
    async with name_server() as one, name_server() as two:
        async with Broker.running(at(one), register_name_server_period=10) as broker:
            await broker.is_registered_with(at(one))
            broker.config.namesrv_addr = f"{at(one)}; {at(two)};"
            await broker.is_registered_with(at(one), at(two))
            broker.config.namesrv_addr = at(two)
            await broker.is_registered_with(at(two))
            broker.topics.update(TopicConfig("T"))
            await broker.registration.settled()
            assert "T" in topics_of(two)
            assert "T" not in topics_of(one)
        assert not two.table.brokers


@pytest.mark.usefixtures("short_period")
async def test_without_force_register_the_broker_queries_the_version_first() -> None:
    def answer(request: Command) -> Command:
        if request.code != RequestCode.QUERY_DATA_VERSION:
            return request.response(ResponseCode.SUCCESS)
        asked = DataVersion.decode(request.body or b"")
        is_known = bool(known) and asked == known[-1]
        changed = {"changed": "false" if is_known else "true"}
        return request.response(ResponseCode.SUCCESS, ext_fields=changed, body=request.body if is_known else None)

    known: list[DataVersion] = []
    async with (
        (server := Listening(answer)).running(),
        Broker.running(at(server), register_name_server_period=10, force_register=False) as broker,
    ):
        await broker.is_registered_with(at(server))
        known.append(broker.topics.data_version)
        await eventually(lambda: len(server.of(RequestCode.QUERY_DATA_VERSION)) >= 1)
        before = len(server.of(RequestCode.REGISTER_BROKER))
        asked = len(server.of(RequestCode.QUERY_DATA_VERSION))
        await eventually(lambda: len(server.of(RequestCode.QUERY_DATA_VERSION)) >= asked + 3)
        assert len(server.of(RequestCode.REGISTER_BROKER)) == before
        broker.topics.bump()
        await eventually(lambda: len(server.of(RequestCode.REGISTER_BROKER)) > before)
        question = server.of(RequestCode.QUERY_DATA_VERSION)[0]
        assert question.ext_fields.keys() == {"brokerName", "brokerAddr", "clusterName", "brokerId"}


@pytest.mark.usefixtures("short_period")
async def test_the_version_query_works_with_a_real_name_server() -> None:
    async with (
        name_server() as server,
        Broker.running(at(server), register_name_server_period=10, force_register=False) as broker,
    ):
        await broker.is_registered_with(at(server))
        (before,) = server.table.brokers.values()
        broker.topics.delete("BenchmarkTest")
        await eventually(lambda: next(iter(server.table.brokers.values())).data_version.counter == 1)
        assert before.address == broker.config.broker_address


# Rare settings


@on_each_loop
async def test_many_topics_go_in_several_requests() -> None:
    settings = {"enable_split_registration": True, "split_registration_size": 5}
    async with (
        Listening().running() as server,
        name_server() as real_one,
        Broker.running(at(server), at(real_one), **settings) as broker,
    ):
        await broker.is_registered_with(at(server), at(real_one))
        parts = server.registered()
        assert [len(part) for part in parts[:-1]] == [5] * (len(parts) - 1)
        assert set().union(*parts) == broker.topics.configs.keys()
        assert topics_of(real_one).keys() == broker.topics.configs.keys()


@pytest.mark.parametrize(
    ("old", "code"), [(True, RequestCode.QUERY_DATA_VERSION), (False, RequestCode.BROKER_HEARTBEAT)]
)
async def test_groups_with_acting_masters_send_short_heartbeats(old: bool, code: int) -> None:
    settings = {
        "enable_slave_acting_master": True,
        "compatible_with_old_name_srv": old,
        "broker_heartbeat_interval": 10,
    }
    async with Listening().running() as server, Broker.running(at(server), **settings):
        await eventually(lambda: len(server.of(code)) >= 2)
        assert all(beat.is_oneway for beat in server.of(code))
        fields = server.of(RequestCode.REGISTER_BROKER)[0].ext_fields
        assert (fields["enableActingMaster"], fields["heartbeatTimeoutMillis"]) == ("true", "10000")


async def test_compressed_registration_is_logged_as_unsupported(caplog: pytest.LogCaptureFixture) -> None:
    async with name_server() as server, Broker.running(at(server), compressed_register=True) as broker:
        await broker.is_registered_with(at(server))
    assert "compressedRegister=true has no effect" in caplog.text


@on_each_loop
async def test_stopping_twice_or_before_anything_began_does_no_harm() -> None:
    broker = Broker(NOBODY)
    await broker.registration.stop()
    broker = Broker(NOBODY)
    broker.registration.start()
    await broker.registration.stop()
    await broker.registration.stop()
    names: Sequence[str] = ["T"]
    broker.registration.topics_changed(names)
    broker.registration.register_soon()
