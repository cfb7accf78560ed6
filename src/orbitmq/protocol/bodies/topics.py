"""Topics: their configuration, tables and lists of them, and the version stamp of such tables."""

import dataclasses
import enum
from dataclasses import field

from orbitmq.protocol.bodies.codec import Body
from orbitmq.protocol.bodies.static_topics import TopicQueueMappingDetail, TopicQueueMappingInfo
from orbitmq.protocol.bodies.version import DataVersion


class TopicFilterType(enum.StrEnum):
    """Number of tags that a message of the topic may have; in practice always one."""

    SINGLE_TAG = "SINGLE_TAG"
    MULTI_TAG = "MULTI_TAG"


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicConfig(Body):
    """One topic on one broker. ``perm``: 4 read, 2 write, 1 inherit; ``topic_sys_flag``: 1 unit, 2 unit-sub."""

    topic_name: str = ""
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: TopicFilterType = TopicFilterType.SINGLE_TAG
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicConfigAndQueueMapping(TopicConfig):
    """A topic with its part in a static topic (answer of 351)."""

    mapping_detail: TopicQueueMappingDetail | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicConfigSerializeWrapper(Body):
    """All topics of a broker; also ``config/topics.json``."""

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper):
    """All topics of a broker together with its static topics (21, 103)."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingInfo] = field(default_factory=dict)
    topic_queue_mapping_detail_map: dict[str, TopicQueueMappingDetail] = field(default_factory=dict)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class CreateTopicListRequestBody(Body):
    """Topics to create or update in one request (18)."""

    topic_config_list: list[TopicConfig] = field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicList(Body):
    """Names of topics; the name server's system list (304) also names a broker's address."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class KVTable(Body):
    """Names and values: runtime information (28), key-value configuration (219), order configuration (103)."""

    table: dict[str, str] = field(default_factory=dict)
