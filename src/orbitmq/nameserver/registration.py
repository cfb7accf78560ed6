"""Decoding and validation of a whole registration, before the route table changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from orbitmq.nameserver.brokers import DEFAULT_HEARTBEAT_TIMEOUT_MS, Queues, Registration
from orbitmq.protocol.bodies import (
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    is_compressed,
)
from orbitmq.protocol.codes import RequestCode
from orbitmq.protocol.command.fields import ZONE_NAME, decode_fields
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.errors import ProtocolError
from orbitmq.protocol.fastjson import loads
from orbitmq.protocol.message.crc import body_crc
from orbitmq.remoting.addresses import host_and_port
from orbitmq.remoting.processor import RequestRefusedError

if TYPE_CHECKING:
    from orbitmq.nameserver.limits import NameServerLimits
    from orbitmq.protocol.command.command import Command

_FIELDS = REQUEST_FIELDS[RequestCode.REGISTER_BROKER]

_FILTER_SERVERS_SINCE = 37
"""Version 3.0.11. Registrations of older brokers are a table of topics only."""


def decode_registration(request: Command, limits: NameServerLimits) -> Registration:
    """The registration in a request. Raises ProtocolError or RequestRefusedError."""
    fields = cast("dict[str, Any]", decode_fields(request.ext_fields, _FIELDS))
    body = request.body or b""
    if fields["bodyCrc32"] != 0 and fields["bodyCrc32"] != body_crc(body):
        raise RequestRefusedError("crc32 not match")
    for name in ("brokerName", "clusterName", "brokerAddr"):
        limits.check_name(name, fields[name])
    # An invalid address would be sent to every client.
    host_and_port(fields["brokerAddr"])
    topics, registration, has_filter_servers = _decode_body(body, request.version, compressed=fields["compressed"])
    for topic in topics:
        limits.check_name("topic", topic)
    wrapper = registration.topic_config_serialize_wrapper
    for topic, info in wrapper.topic_queue_mapping_info_map.items():
        limits.check_name("static topic", topic)
        limits.check_name("broker of a static topic", info.bname)
    if len(registration.filter_server_list) > limits.filter_servers:
        raise RequestRefusedError(
            f"{len(registration.filter_server_list)} filter servers, at most {limits.filter_servers}"
        )
    for server in registration.filter_server_list:
        limits.check_name("filter server", server)
    zone = request.ext_fields.get(ZONE_NAME)
    timeout = fields["heartbeatTimeoutMillis"]
    return Registration(
        cluster=fields["clusterName"],
        broker_name=fields["brokerName"],
        broker_id=fields["brokerId"],
        address=fields["brokerAddr"],
        # Empty if the broker does not replicate.
        ha_address=limits.check_name("haServerAddr", fields["haServerAddr"]) if fields["haServerAddr"] else "",
        data_version=wrapper.data_version,
        topics=topics,
        mappings=wrapper.topic_queue_mapping_info_map,
        filter_servers=registration.filter_server_list if has_filter_servers else None,
        heartbeat_timeout_ms=DEFAULT_HEARTBEAT_TIMEOUT_MS if timeout is None else timeout,
        enable_acting_master=fields["enableActingMaster"],
        zone=limits.check_name("zone", zone) if zone else None,
    )


def _decode_body(
    body: bytes, version: int, *, compressed: bool
) -> tuple[dict[str, Queues], RegisterBrokerBody, bool]:
    """The topics, the rest of the body, and whether the body has filter servers."""
    if not body:
        return {}, RegisterBrokerBody(), version >= _FILTER_SERVERS_SINCE
    if version < _FILTER_SERVERS_SINCE:
        document = _document(body)
        topics = _topics(document.pop("topicConfigTable", None))
        registration = RegisterBrokerBody()
        registration.topic_config_serialize_wrapper.data_version = TopicConfigSerializeWrapper.from_json(
            document
        ).data_version
        return topics, registration, False
    if compressed or is_compressed(body):
        # Brokers of version 5.x compress, but their header says that they do not.
        registration = RegisterBrokerBody.decode_compressed(body)
        table = registration.topic_config_serialize_wrapper.topic_config_table
        return dict(_of_config(name, config) for name, config in table.items()), registration, True
    document = _document(body)
    wrapper = document.get("topicConfigSerializeWrapper")
    raw_topics = None
    if isinstance(wrapper, dict):
        raw_topics = wrapper.pop("topicConfigTable", None)
        # The history of static topics is for brokers; routes need only the current mapping.
        wrapper.pop("topicQueueMappingDetailMap", None)
    return _topics(raw_topics), RegisterBrokerBody.from_json(document), True


def _document(body: bytes) -> dict[Any, Any]:
    document = loads(body)
    if not isinstance(document, dict):
        raise ProtocolError("a registration must be a JSON object")
    return document


def _topics(table: Any) -> dict[str, Queues]:
    """The queues by topic, without a ``TopicConfig`` for each.

    Brokers register all their topics every 30 seconds, changed or not, and creating these objects would take ten
    times as long as everything else. Unusual entries fall back to ``TopicConfig``.
    """
    if table is None:
        return {}
    if not isinstance(table, dict):
        raise ProtocolError("topicConfigTable: expected an object")
    topics: dict[str, Queues] = {}
    for key, raw in table.items():
        if raw is None:
            continue
        try:
            name = raw["topicName"]
            read = raw["readQueueNums"]
            write = raw["writeQueueNums"]
            perm = raw["perm"]
            sys_flag = raw["topicSysFlag"]
        except (KeyError, TypeError, IndexError):
            name = None
        if (
            type(name) is str
            and name
            and type(read) is type(write) is type(perm) is type(sys_flag) is int
            and not (read | write | perm | sys_flag) >> 31
        ):
            topics[name] = Queues(read, write, perm, sys_flag)
        else:
            name, queues = _of_config(key, TopicConfig.from_json(raw))
            topics[name] = queues
    return topics


def _of_config(key: Any, config: TopicConfig) -> tuple[str, Queues]:
    """The name of a topic (its own, else its key in the table) and its queues."""
    name = config.topic_name or key
    if not isinstance(name, str):
        raise ProtocolError(f"topicConfigTable: {str(name)[:40]!r} is not a topic name")
    queues = Queues(config.read_queue_nums, config.write_queue_nums, config.perm, config.topic_sys_flag)
    if any(number >> 31 for number in queues):
        raise ProtocolError(f"topicConfigTable: {name[:80]!r} has a number that is negative or not an int32")
    return name, queues
