"""Clients as a broker knows them: heartbeats, subscriptions, connections, and who consumes which queue how."""

import dataclasses
import enum
from dataclasses import field

from orbitmq.protocol.bodies.codec import Body, java
from orbitmq.protocol.bodies.queues import MessageQueue


class ConsumeType(enum.StrEnum):
    """Way in which a consumer gets messages: pull, push, or pop."""

    CONSUME_ACTIVELY = "CONSUME_ACTIVELY"
    CONSUME_PASSIVELY = "CONSUME_PASSIVELY"
    CONSUME_POP = "CONSUME_POP"


class MessageModel(enum.StrEnum):
    """Broadcasting (every member gets every message) or clustering (members share them)."""

    BROADCASTING = "BROADCASTING"
    CLUSTERING = "CLUSTERING"
    LITE_SELECTIVE = "LITE_SELECTIVE"


class ConsumeFromWhere(enum.StrEnum):
    """Where a group without offsets begins. The second to fourth are old names for the first."""

    CONSUME_FROM_LAST_OFFSET = "CONSUME_FROM_LAST_OFFSET"
    CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST = "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST"
    CONSUME_FROM_MIN_OFFSET = "CONSUME_FROM_MIN_OFFSET"
    CONSUME_FROM_MAX_OFFSET = "CONSUME_FROM_MAX_OFFSET"
    CONSUME_FROM_FIRST_OFFSET = "CONSUME_FROM_FIRST_OFFSET"
    CONSUME_FROM_TIMESTAMP = "CONSUME_FROM_TIMESTAMP"


class MessageRequestMode(enum.StrEnum):
    """Way in which a group gets the messages of a topic."""

    PULL = "PULL"
    POP = "POP"


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class SubscriptionData(Body):
    """Subscription of a group to a topic. ``code_set`` holds the Java hash codes of the tags."""

    topic: str = ""
    sub_string: str = ""
    tags_set: list[str] = field(default_factory=list)
    code_set: list[int] = field(default_factory=list)
    sub_version: int = 0
    expression_type: str = "TAG"
    class_filter_mode: bool = False


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ProducerData(Body):
    """A producer group in a heartbeat."""

    group_name: str = ""


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ConsumerData(Body):
    """A consumer group in a heartbeat. What the client left out is ``None``."""

    group_name: str = ""
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None
    subscription_data_set: list[SubscriptionData] = field(default_factory=list)
    unit_mode: bool = False


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class HeartbeatData(Body):
    """A client's heartbeat (34). A fingerprint other than 0 makes it the second version."""

    client_id: str = field(default="", metadata=java("clientID"))
    producer_data_set: list[ProducerData] = field(default_factory=list)
    consumer_data_set: list[ConsumerData] = field(default_factory=list)
    heartbeat_fingerprint: int = 0
    without_sub: bool = False


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class CheckClientRequestBody(Body):
    """Would this subscription compile (46)?"""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None
    namespace: str | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class Connection(Body):
    """A connected client; ``language`` is a name of ``LanguageCode``."""

    client_id: str = ""
    client_addr: str = ""
    language: str | None = None
    version: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ConsumerConnection(Body):
    """A group's clients and what they subscribed (203)."""

    connection_set: list[Connection] = field(default_factory=list)
    subscription_table: dict[str, SubscriptionData] = field(default_factory=dict)
    consume_type: ConsumeType | None = None
    message_model: MessageModel | None = None
    consume_from_where: ConsumeFromWhere | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ProducerConnection(Body):
    """A producer group's clients (204)."""

    connection_set: list[Connection] = field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ProducerInfo(Body):
    """A producer in the list of all (328)."""

    client_id: str = ""
    remote_ip: str = field(default="", metadata=java("remoteIP"))
    language: str | None = None
    version: int = 0
    last_update_timestamp: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class ProducerTableInfo(Body):
    """All producers by group (328)."""

    data: dict[str, list[ProducerInfo]] = field(default_factory=dict)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class GetConsumerListByGroupResponseBody(Body):
    """The client ids of a group (38)."""

    consumer_id_list: list[str] = field(default_factory=list)


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class QueryAssignmentRequestBody(Body):
    """Which queues are mine (400)? ``strategy_name``: ``AVG`` or ``AVG_BY_CIRCLE``."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = ""
    message_model: MessageModel | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class MessageQueueAssignment(Body):
    """One queue for the asking client; a queue id of -1 is any queue of the broker."""

    message_queue: MessageQueue | None = None
    mode: MessageRequestMode = MessageRequestMode.PULL
    attachments: dict[str, str] | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class QueryAssignmentResponseBody(Body):
    """The answer to 400: ``None`` means keep what you have, an empty list means nothing is yours."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class SetMessageRequestModeRequestBody(Body):
    """Sets the mode in which a group gets the messages of a topic (401)."""

    topic: str = ""
    consumer_group: str = ""
    mode: MessageRequestMode = MessageRequestMode.PULL
    pop_share_queue_num: int = 0


@dataclasses.dataclass(slots=True, eq=False, repr=False)
class MessageRequestModeSerializeWrapper(Body):
    """All such settings by topic and group (402); also ``config/messageRequestMode.json``."""

    message_request_mode_map: dict[str, dict[str, SetMessageRequestModeRequestBody]] = field(default_factory=dict)
