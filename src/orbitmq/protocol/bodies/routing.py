"""Routes: which brokers serve a topic, and what a cluster consists of."""

import dataclasses
from dataclasses import field

from orbitmq.protocol.bodies.codec import Body
from orbitmq.protocol.bodies.static_topics import TopicQueueMappingInfo


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class QueueData(Body):
    """A topic's queues on one broker."""

    broker_name: str = ""
    read_queue_nums: int = 0
    write_queue_nums: int = 0
    perm: int = 0
    topic_sys_flag: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class BrokerData(Body):
    """A master with its slaves: addresses by broker id, the master's being 0."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)
    zone_name: str | None = None
    enable_acting_master: bool = False


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicRouteData(Body):
    """The answer to a route lookup (105).

    Clients of version 401 or newer, and those that ask for standard JSON, get it ``browser_compatible`` with
    ``sort_maps``; older ones in the plain form, with the broker ids unquoted.
    """

    order_topic_conf: str | None = None
    queue_datas: list[QueueData] = field(default_factory=list)
    broker_datas: list[BrokerData] = field(default_factory=list)
    filter_server_table: dict[str, list[str]] = field(default_factory=dict)
    topic_queue_mapping_by_broker: dict[str, TopicQueueMappingInfo] | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ClusterInfo(Body):
    """All brokers and the clusters they form (106)."""

    broker_addr_table: dict[str, BrokerData] = field(default_factory=dict)
    cluster_addr_table: dict[str, list[str]] = field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class BrokerMemberGroup(Body):
    """The brokers that share a name."""

    cluster: str = ""
    broker_name: str = ""
    broker_addrs: dict[int, str] = field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class GetBrokerMemberGroupResponseBody(Body):
    """The answer to 901."""

    broker_member_group: BrokerMemberGroup | None = None
