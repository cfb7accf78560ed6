"""Admin requests for topics, over a real socket, with tables and a store on a virtual disk."""

from __future__ import annotations

import contextlib
import itertools
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq.broker.clients.consumer_filters import ConsumerFilters
from orbitmq.broker.clients.heartbeat import ClientRequests
from orbitmq.broker.clients.registry import Clients
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.persistence import ConfigWriter
from orbitmq.broker.metadata import topics as topics_module
from orbitmq.broker.metadata.subscription_groups import GroupTable
from orbitmq.broker.metadata.topic_admin import TopicRequests
from orbitmq.broker.metadata.topics import TopicTable
from orbitmq.broker.offsets.table import OffsetTable
from orbitmq.broker.runtime import Metadata
from orbitmq.broker.stats.counters import TOPIC_PUT_NUMS, BrokerStats
from orbitmq.protocol.bodies import (
    CreateTopicListRequestBody,
    DataVersion,
    GroupList,
    MessageQueue,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicList,
    TopicOffset,
    TopicStatsTable,
)
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.command import Command
from orbitmq.store import StoredMessage
from orbitmq.store.background.service import StoreService
from orbitmq.store.config_tables import CONSUMER_OFFSETS, TOPICS
from orbitmq.testing import ManualClock, MemoryDisk
from support.broker.client_registry_harness import consumer, heartbeat, run_here, subscription
from support.broker.runtimes import runtime_of
from support.nameserver_harness import as_text
from support.remoting_harness import RawPeer, decoded, serving
from support.store.stores import T0, open_small
from support.wire_captures import captured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from support.wire_captures import Captured

CODES = frozenset(
    {
        RequestCode.UPDATE_AND_CREATE_TOPIC,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE,
        RequestCode.DELETE_EXPIRED_COMMITLOG,
        RequestCode.CLEAN_UNUSED_TOPIC,
        RequestCode.GET_TOPIC_STATS_INFO,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO,
        RequestCode.GET_ALL_TOPIC_CONFIG,
    }
)

_opaques = itertools.count(1)


class TopicBroker:
    """The topic tables and processors of a broker, and a client."""

    peer: RawPeer

    def __init__(self, **settings: Any) -> None:
        self.clock = ManualClock(T0)
        self.disk = MemoryDisk()
        self.config = BrokerConfig(**{"broker_name": "broker-w", "listen_port": 14911, **settings})
        self.writer = ConfigWriter(self.disk, "/store/config", run_here)
        self.topics = TopicTable(self.writer, self.config, self.clock)
        self.offsets = OffsetTable(self.writer, self.clock)
        self.stats = BrokerStats(self.clock, "DefaultCluster")
        groups = GroupTable(self.writer, self.config, self.clock)
        filters = ConsumerFilters(self.writer, self.config, self.clock)
        clients = Clients(self.config, self.clock, filters)
        self.store = open_small("/store", disk=self.disk, clock=self.clock)
        self.service = StoreService(self.store, run_here)
        self.told: list[str] = []
        self.topics.on_change = self.told.extend
        self.known_to_name_servers: list[list[str]] = []
        requests = TopicRequests(
            runtime_of(self.store, self.writer, self.stats, config=self.config),
            Metadata(self.topics, groups, self.offsets, filters),
            self.service,
            clients,
            self._registered,
        )
        self.handlers = {
            **requests.handlers,
            **ClientRequests(self.config, self.clock, clients, self.topics, groups).handlers,
        }

    async def _registered(self) -> None:
        self.known_to_name_servers.append(list(self.told))

    @classmethod
    @contextlib.asynccontextmanager
    async def running(cls, **settings: Any) -> AsyncIterator[TopicBroker]:
        broker = cls(**settings)
        try:
            async with serving(broker.handlers) as server, RawPeer.connected(server) as broker.peer:
                yield broker
            await broker.writer.stop()
        finally:
            broker.store.close()

    async def ask(self, code: int, body: bytes | None = None, /, **fields: object) -> Command:
        self.peer.send(Command(code, next(_opaques), ext_fields=as_text(fields), body=body).encode())
        # A consumer is also notified of changes in its group.
        while not (answer := await self.peer.receive()).is_response:
            pass
        return answer

    async def create(self, topic: str, **fields: object) -> Command:
        usual: dict[str, object] = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": 4,
            "writeQueueNums": 4,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
            "attributes": "",
        }
        return await self.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, **(usual | fields))

    def saved(self) -> dict[str, TopicConfig]:
        return TOPICS.load(self.disk, "/store/config").topic_config_table


async def test_a_created_topic_is_on_disk_and_registered_before_the_response() -> None:
    async with TopicBroker.running() as broker:
        answer = await broker.create("T", attributes="+message.type=FIFO", topicSysFlag=None, order=True)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")
        created = TopicConfig("T", 4, 4, 6, order=True, attributes={"message.type": "FIFO"})
        assert broker.topics.configs["T"] == broker.saved()["T"] == created
        assert broker.known_to_name_servers == [["T"]]
        assert broker.topics.data_version.counter == 1


async def test_a_changed_topic_keeps_its_other_attributes() -> None:
    async with TopicBroker.running() as broker:
        await broker.create("T", attributes="+message.type=FIFO,+queue.type=SimpleCQ")
        await broker.create("T", perm=4, writeQueueNums=2)
        kept = {"message.type": "FIFO", "queue.type": "SimpleCQ"}
        assert broker.topics.configs["T"] == TopicConfig("T", 4, 2, 4, attributes=kept)
        await broker.create("T", perm=4, writeQueueNums=2, attributes="-message.type")
        assert broker.topics.configs["T"].attributes == {"queue.type": "SimpleCQ"}
        assert broker.topics.data_version.counter == 3


async def test_an_update_with_equal_settings_changes_nothing() -> None:
    async with TopicBroker.running() as broker:
        await broker.create("T", attributes="+message.type=FIFO")
        for attributes in ("", "+message.type=FIFO"):
            answer = await broker.create("T", attributes=attributes)
            assert answer.code == ResponseCode.SUCCESS
        assert broker.topics.data_version.counter == 1
        assert broker.told == ["T"]


@pytest.mark.parametrize(
    ("topic", "fields", "code", "remark"),
    [
        ("TBW102", {}, 29, "The topic[TBW102] is conflict with system topic."),
        ("broker-w", {}, 29, "The topic[broker-w] is conflict with system topic."),
        ("rmq_sys_x", {}, 29, "The topic[rmq_sys_x] is conflict with system topic."),
        (
            "bad name",
            {},
            29,
            "The specified topic: bad name, contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("T", {"attributes": "+nope=1"}, 1, "unsupported key: nope"),
        ("T", {"attributes": "+message.type=MIXED"}, 29, "MIXED message type is not supported."),
        ("T", {"topicFilterType": "X"}, 1, "topicFilterType = [X] value invalid"),
        ("T", {"readQueueNums": -1}, 29, "readQueueNums -1 is not between 0 and 65535"),
        ("T", {"writeQueueNums": 65536}, 29, "writeQueueNums 65536 is not between 0 and 65535"),
        ("T", {"perm": 16}, 29, "perm 16 is not between 0 and 15"),
        ("T", {"perm": "x"}, 1, "field perm: 'x' is not an int32"),
        ("T", {"perm": None}, 1, "field perm (perm) is missing"),
    ],
)
async def test_an_invalid_topic_is_refused_and_nothing_changes(
    topic: str, fields: dict[str, object], code: int, remark: str
) -> None:
    async with TopicBroker.running() as broker:
        before = dict(broker.topics.configs)
        answer = await broker.create(topic, **fields)
        assert (answer.code, answer.remark) == (code, remark)
        assert broker.topics.configs == before
        assert broker.topics.data_version.counter == 0


async def test_settings_may_allow_mixed_types_and_system_topics() -> None:
    async with TopicBroker.running(
        enable_mixed_message_type=True, validate_system_topic_when_update_topic=False
    ) as broker:
        assert (await broker.create("T", attributes="+message.type=MIXED")).code == ResponseCode.SUCCESS
        assert (await broker.create("TBW102", perm=6)).code == ResponseCode.SUCCESS


async def test_the_number_of_topics_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    async with TopicBroker.running() as broker:
        monkeypatch.setattr(topics_module, "MAX_TOPICS", len(broker.topics.configs) + 1)
        assert (await broker.create("T1")).code == ResponseCode.SUCCESS
        answer = await broker.create("T2")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "topic limit reached" in (answer.remark or "")
        assert (await broker.create("T1", perm=4)).code == ResponseCode.SUCCESS


async def test_a_list_of_topics_is_created_at_once() -> None:
    async with TopicBroker.running() as broker:
        await broker.create("T1", readQueueNums=16, writeQueueNums=16)
        wanted = [TopicConfig("T1"), TopicConfig("T2", attributes={"+message.type": "DELAY"}), TopicConfig("T3")]
        answer = await broker.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, CreateTopicListRequestBody(wanted).encode()
        )
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, "not set any response code")
        # Real brokers stop at the first topic that has these settings already.
        assert broker.told == ["T1", "T2", "T3"]
        assert broker.saved()["T2"] == TopicConfig("T2", attributes={"message.type": "DELAY"})


async def test_a_list_with_one_invalid_topic_creates_none() -> None:
    async with TopicBroker.running() as broker:
        wanted = [TopicConfig("T1"), TopicConfig("TBW102")]
        answer = await broker.ask(
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, CreateTopicListRequestBody(wanted).encode()
        )
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert "T1" not in broker.topics.configs


async def test_static_topics_are_refused_with_a_hint() -> None:
    frame = next(f for f in captured("admin2") if f.code == RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC)
    async with TopicBroker.running() as broker:
        answer = await broker.peer.ask(frame.wire)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith("this broker does not serve static topics")
        assert "T_static" not in broker.topics.configs


async def test_the_queues_of_a_batch_topic_are_numbered_by_batches() -> None:
    async with TopicBroker.running() as broker:
        await broker.create("B", attributes="+queue.type=BatchCQ")
        broker.store.append(StoredMessage("B", 0, b"one"))
        queue = broker.store.queues.find("B", 0)
        assert queue is not None
        assert queue.is_batch
        answer = await broker.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="B")
        ends = TopicStatsTable.decode(answer.body or b"").offset_table[MessageQueue("B", "broker-w", 0)]
        assert ends == TopicOffset(0, 1, T0)
        await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="B")
        await broker.create("B")
        broker.store.append(StoredMessage("B", 0, b"one"))
        queue = broker.store.queues.find("B", 0)
        assert queue is not None
        assert not queue.is_batch


async def test_all_topics_are_listed_at_once_without_paging() -> None:
    async with TopicBroker.running() as broker:
        await broker.create("T")
        answer = await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
        body = TopicConfigAndMappingSerializeWrapper.decode(answer.body or b"")
        assert body.topic_config_table == broker.topics.configs
        assert body.data_version == broker.topics.data_version
        assert answer.ext_fields == {"totalTopicNum": str(len(broker.topics.configs))}


async def test_all_topics_are_listed_by_page() -> None:
    async with TopicBroker.running(split_metadata_size=5) as broker:
        seen: dict[str, TopicConfig] = {}
        version, total = "", 1
        while len(seen) < total:
            answer = await broker.ask(
                RequestCode.GET_ALL_TOPIC_CONFIG, topicSeq=len(seen), maxTopicNum=2000, dataVersion=version
            )
            page = TopicConfigAndMappingSerializeWrapper.decode(answer.body or b"")
            assert 0 < len(page.topic_config_table) <= 5
            seen.update(page.topic_config_table)
            version, total = page.data_version.encode().decode(), int(answer.ext_fields["totalTopicNum"])
        assert seen == broker.topics.configs


@pytest.mark.parametrize("version", ["", " ", DataVersion(7, 0, 7).encode().decode()])
async def test_a_peer_with_another_version_restarts_at_the_first_page(version: str) -> None:
    async with TopicBroker.running() as broker:
        answer = await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG, topicSeq=3, maxTopicNum=2, dataVersion=version)
        page = TopicConfigAndMappingSerializeWrapper.decode(answer.body or b"")
        assert list(page.topic_config_table) == sorted(broker.topics.configs)[:2]


async def test_invalid_pages_are_refused_or_empty() -> None:
    async with TopicBroker.running() as broker:
        version = broker.topics.data_version.encode().decode()
        code = RequestCode.GET_ALL_TOPIC_CONFIG
        beyond = await broker.ask(code, topicSeq=1000, maxTopicNum=2, dataVersion=version)
        assert TopicConfigAndMappingSerializeWrapper.decode(beyond.body or b"").topic_config_table == {}
        before = await broker.ask(code, topicSeq=-5, maxTopicNum=1, dataVersion=version)
        assert len(TopicConfigAndMappingSerializeWrapper.decode(before.body or b"").topic_config_table) == 1
        assert (await broker.ask(code, topicSeq=0, maxTopicNum=0)).code == ResponseCode.INVALID_PARAMETER
        assert (await broker.ask(code, topicSeq=0, dataVersion="{")).code == ResponseCode.SYSTEM_ERROR
        assert (await broker.ask(code, dataVersion="")).code == ResponseCode.SUCCESS


async def test_topic_stats_have_the_offsets_of_all_queues() -> None:
    async with TopicBroker.running() as broker:
        await broker.create("T", readQueueNums=1, writeQueueNums=2)
        broker.store.append(StoredMessage("T", 1, b"first"))
        broker.clock.advance(10)
        broker.store.append(StoredMessage("T", 1, b"second"))
        answer = await broker.ask(RequestCode.GET_TOPIC_STATS_INFO, topic="T")
        assert TopicStatsTable.decode(answer.body or b"") == TopicStatsTable(
            {
                MessageQueue("T", "broker-w", 0): TopicOffset(0, 0, 0),
                MessageQueue("T", "broker-w", 1): TopicOffset(0, 2, T0 + 10),
            }
        )


async def test_the_consumers_of_a_topic_subscribe_it_or_have_offsets() -> None:
    async with TopicBroker.running() as broker:
        said = heartbeat("client", consumer("CG_online", subscription("T")))
        assert (await broker.ask(RequestCode.HEART_BEAT, said.encode())).code == ResponseCode.SUCCESS
        broker.offsets.commit("CG_offline", "T", 0, 5)
        broker.offsets.commit("CG_offline", "U", 0, 5)
        answer = await broker.ask(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, topic="T")
        assert GroupList.decode(answer.body or b"").group_list == ["CG_offline", "CG_online"]
        answer = await broker.ask(RequestCode.QUERY_TOPICS_BY_CONSUMER, group="CG_offline")
        assert TopicList.decode(answer.body or b"") == TopicList(["T", "U"], "127.0.0.1:14911")


async def test_a_deleted_topic_takes_its_queues_offsets_and_pop_retries_with_it() -> None:
    async with TopicBroker.running() as broker:
        for topic in ("T", "%RETRY%g_T", "%RETRY%g+T", "%RETRY%g", "U"):
            broker.topics.create_at_once(topic, 1, 6)
            broker.store.append(StoredMessage(topic, 0, b"message"))
            broker.offsets.commit("g", topic, 0, 1)
        answer = await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        for topic in ("T", "%RETRY%g_T", "%RETRY%g+T"):
            assert topic not in broker.topics.configs
            assert topic not in broker.saved()
            assert topic not in broker.store.queues.names()
            assert broker.offsets.query("g", topic, 0) == -1
        for topic in ("%RETRY%g", "U"):
            assert topic in broker.saved()
            assert broker.store.max_offset(topic, 0) == broker.offsets.query("g", topic, 0) == 1
        assert set(CONSUMER_OFFSETS.load(broker.disk, "/store/config").offset_table) == {"%RETRY%g@g", "U@g"}


@pytest.mark.parametrize("deletes", [True, False])
async def test_the_figures_of_a_deleted_topic_go_with_it_unless_they_are_to_stay(deletes: bool) -> None:
    async with TopicBroker.running(auto_delete_unused_stats=deletes) as broker:
        await broker.create("T")
        broker.stats.put("T", 0, 1, 10)
        assert broker.stats.view(TOPIC_PUT_NUMS, "T") is not None
        await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
        assert (broker.stats.view(TOPIC_PUT_NUMS, "T") is None) is deletes


async def test_the_response_names_a_disk_that_fails_to_remove_queues() -> None:
    async with TopicBroker.running() as broker:
        for code, topic in (
            (RequestCode.DELETE_TOPIC_IN_BROKER, "T"),
            (RequestCode.CLEAN_UNUSED_TOPIC, "U"),
        ):
            broker.store.append(StoredMessage(topic, 0, b"message"))
            broker.store.sync_queues()
            if topic == "U":
                # No message in it is readable any more.
                queue = broker.store.queues.get(topic, 0)
                queue.min_offset = queue.max_offset
            broker.disk.fail("remove")
            answer = await broker.ask(code, topic="T")
            broker.disk.heal()
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert answer.remark == f"the queues of {topic} cannot be removed: Input/output error"
            assert (await broker.ask(code, topic="T")).code == ResponseCode.SUCCESS
            assert topic not in broker.store.queues.names()


async def test_pop_retries_stay_if_the_settings_say_so() -> None:
    async with TopicBroker.running(clear_retry_topic_when_delete_topic=False) as broker:
        for topic in ("T", "%RETRY%g_T"):
            broker.topics.create_at_once(topic, 1, 6)
        broker.offsets.commit("g", "T", 0, 1)
        await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T")
        assert "T" not in broker.topics.configs
        assert "%RETRY%g_T" in broker.topics.configs


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        (" ", "The specified topic is blank."),
        ("SCHEDULE_TOPIC_XXXX", "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic."),
    ],
)
async def test_system_topics_cannot_be_deleted(topic: str, remark: str) -> None:
    async with TopicBroker.running() as broker:
        answer = await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic=topic)
        assert (answer.code, answer.remark) == (ResponseCode.INVALID_PARAMETER, remark)


async def test_queues_of_unknown_topics_can_be_cleaned_up() -> None:
    async with TopicBroker.running() as broker:
        await broker.create("T")
        for topic in ("T", "Lost", "%LMQ%light", "rmq_sys_x"):
            broker.store.append(StoredMessage(topic, 0, b"message"))
        broker.store.queues.get("Forgotten", 0)
        assert (await broker.ask(RequestCode.CLEAN_UNUSED_TOPIC)).code == ResponseCode.SUCCESS
        # Readable messages are kept, though the table has lost their topic.
        assert broker.store.queues.names() == ["%LMQ%light", "Lost", "T", "rmq_sys_x"]


async def test_expired_files_are_removed_on_request() -> None:
    async with TopicBroker.running() as broker:
        await broker.create("T")
        for _ in range(60):
            broker.store.append(StoredMessage("T", 0, b"m" * 100))
        broker.store.flush()
        broker.store.sync_queues()
        broker.clock.advance(100 * 3_600_000)
        assert broker.service.retention.run().log_files == []
        assert (await broker.ask(RequestCode.DELETE_EXPIRED_COMMITLOG)).code == ResponseCode.SUCCESS
        assert broker.service.retention.run().log_files != []
        first = broker.store.min_offset("T", 0)
        assert 0 < first < 60
        assert (await broker.ask(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)).code == ResponseCode.SUCCESS
        assert (broker.store.min_offset("T", 0), broker.store.max_offset("T", 0)) == (first, 60)


def exchanges() -> list[tuple[Captured, Captured]]:
    """Topic requests to a real broker, with its responses."""
    found = []
    for scenario in ("admin", "admin2", "java_json_15_pop_direct", "java_json_20_errors", "ha"):
        asked: dict[tuple[int, int], Captured] = {}
        for frame in captured(scenario):
            key = frame.connection, frame.header["opaque"]
            if not frame.is_response and frame.code in CODES:
                asked[key] = frame
            elif frame.is_response and frame.request_code in CODES and key in asked:
                found.append((asked.pop(key), frame))
    return found


async def test_real_requests_are_answered_as_a_real_broker_answered_them() -> None:
    """Replayed in order; topics created before the recording are created before they are first listed."""
    pairs = exchanges()
    assert {request.code for request, _ in pairs} == CODES
    async with TopicBroker.running(trace_topic_enable=True) as broker:
        for request, real in pairs:
            topic = request.ext_fields.get("topic", "")
            is_shown = request.code in {RequestCode.GET_TOPIC_CONFIG, RequestCode.GET_TOPIC_STATS_INFO}
            if is_shown and real.code == ResponseCode.SUCCESS and topic not in broker.topics.configs:
                body = real.frame[2]
                is_config = request.code == RequestCode.GET_TOPIC_CONFIG
                broker.topics.update(TopicConfig.decode(body) if is_config else TopicConfig(topic, 4, 4))
            ours = await broker.peer.ask(request.wire)
            (theirs,) = decoded(real.wire)
            assert (ours.code, ours.remark) == (theirs.code, theirs.remark), request
            assert ours.ext_fields.keys() == theirs.ext_fields.keys(), request
            assert (ours.body is None) == (theirs.body is None), request
            if request.code == RequestCode.GET_TOPIC_CONFIG:
                assert ours.body == theirs.body, request


async def test_tables_are_answered_in_the_shape_of_a_real_broker() -> None:
    shapes: dict[int, Any] = {
        RequestCode.GET_ALL_TOPIC_CONFIG: TopicConfigAndMappingSerializeWrapper,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: TopicList,
        RequestCode.GET_TOPIC_STATS_INFO: TopicStatsTable,
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: GroupList,
    }
    compared = set()
    async with TopicBroker.running(trace_topic_enable=True) as broker:
        await broker.create("T_push")
        for request, real in exchanges():
            if request.code in shapes and real.code == ResponseCode.SUCCESS:
                ours = await broker.peer.ask(request.wire)
                shape = shapes[request.code]
                mine, theirs = shape.decode(ours.body).to_json(), shape.decode(real.frame[2]).to_json()
                assert mine.keys() == theirs.keys()
                if request.code == RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER:
                    assert sorted(mine["topicList"]) == sorted(theirs["topicList"])
                if request.code == RequestCode.GET_TOPIC_STATS_INFO:
                    assert {str(queue) for queue in mine["offsetTable"]} == {
                        str(queue) for queue in theirs["offsetTable"]
                    }
                compared.add(request.code)
    assert compared == set(shapes)
