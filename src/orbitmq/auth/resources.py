"""Resources and actions of access rules: ``Topic:orders``, ``Group:billing*``, ``Cluster:*``, ``*``."""

from __future__ import annotations

import dataclasses
import enum

from orbitmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX


class ResourceType(enum.Enum):
    """Kind of a resource; the value is RocketMQ's spelling."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Pattern(enum.IntEnum):
    """Pattern by which a rule names resources. The order is that of precedence: the most specific first."""

    LITERAL = 0
    PREFIXED = 1
    ANY = 2


class Action(enum.Enum):
    """Action of a request on a resource; the value is RocketMQ's spelling."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


_TYPES = {one.value.lower(): one for one in ResourceType}
_ACTIONS = {one.value.lower(): one for one in Action}


def action_of(text: str) -> Action | None:
    """An action by its name, in any case."""
    return _ACTIONS.get(text.lower())


@dataclasses.dataclass(frozen=True, slots=True)
class Resource:
    """One resource, or the pattern of several."""

    type: ResourceType
    name: str = ""
    """Without the ``*`` of a prefix."""
    pattern: Pattern = Pattern.LITERAL

    def __str__(self) -> str:
        """The key of the resource, as rules and error texts have it."""
        if self.type is ResourceType.ANY:
            return "*"
        star = "" if self.pattern is Pattern.LITERAL else "*"
        return f"{self.type.value}:{self.name}{star}"

    def covers(self, other: Resource) -> bool:
        """True if a rule for this resource applies to a requested (literal) one."""
        if self.type is ResourceType.ANY:
            return True
        if self.type is not other.type:
            return False
        if self.pattern is Pattern.LITERAL:
            return self.name == other.name
        return self.pattern is Pattern.ANY or other.name.startswith(self.name)


def resource_of(text: str) -> Resource | None:
    """The resource with this key; None if its type is unknown."""
    if text == "*":
        return Resource(ResourceType.ANY, "", Pattern.ANY)
    kind, _, name = text.partition(":")
    found = _TYPES.get(kind.lower())
    if found is None:
        return None
    if name == "*":
        return Resource(found, "", Pattern.ANY)
    if name.endswith("*"):
        return Resource(found, name.partition("*")[0], Pattern.PREFIXED)
    return Resource(found, name)


def topic_resource(name: str) -> Resource:
    """The resource that guards a topic: for a retry topic that of its group."""
    if name.startswith(RETRY_PREFIX):
        return group_resource(name)
    return Resource(ResourceType.TOPIC, name)


def group_resource(name: str) -> Resource:
    """The resource of a group, or of the group that a retry topic belongs to."""
    if name.startswith(RETRY_PREFIX):
        name = name.removeprefix(RETRY_PREFIX).removeprefix(DLQ_PREFIX)
    return Resource(ResourceType.GROUP, name)
