"""Static topics: logical queues and where their parts lie on which broker."""

import dataclasses
from dataclasses import field

from orbitmq.protocol.bodies.codec import Body
from orbitmq.protocol.bodies.version import DataVersion


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class LogicQueueMappingItem(Body):
    """One stretch of a logical queue in a physical one; -1 is an end that is still open."""

    gen: int = 0
    queue_id: int = 0
    bname: str = ""
    logic_offset: int = 0
    start_offset: int = 0
    end_offset: int = -1
    time_of_start: int = -1
    time_of_end: int = -1


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicQueueMappingInfo(Body):
    """Which logical queues a broker leads at present: logical id to physical id."""

    topic: str = ""
    scope: str = "__global__"
    total_queues: int = 0
    bname: str = ""
    epoch: int = 0
    dirty: bool = False
    curr_id_map: dict[int, int] = field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicQueueMappingDetail(TopicQueueMappingInfo):
    """The same with the whole history of every logical queue the broker hosts."""

    hosted_queues: dict[int, list[LogicQueueMappingItem]] = field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class TopicQueueMappingSerializeWrapper(Body):
    """A broker's static topics; ``config/topicQueueMapping.json``."""

    topic_queue_mapping_info_map: dict[str, TopicQueueMappingDetail] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
