"""A SQL92 expression as a tree.

A node is an operand (has a value) or a condition (is true, false or unknown). Where a value's type is not a
string's it is known from the text alone, since property values are always strings.
"""

from __future__ import annotations

import dataclasses
import enum


class NumberType(enum.Enum):
    """The Java type of a number, which decides how a property compared with it is read."""

    INT = "int"
    LONG = "long"
    DOUBLE = "double"


class Order(enum.Enum):
    """The comparisons by size."""

    GREATER = ">"
    NOT_LESS = ">="
    LESS = "<"
    NOT_GREATER = "<="


class Search(enum.Enum):
    """Position of one string in another."""

    CONTAINS = "CONTAINS"
    STARTSWITH = "STARTSWITH"
    ENDSWITH = "ENDSWITH"


@dataclasses.dataclass(frozen=True, slots=True)
class Node:
    """A part of an expression, with its offset in the text and the number of levels below it."""

    at: int
    depth: int


@dataclasses.dataclass(frozen=True, slots=True)
class Property(Node):
    """The value of a property, unknown (null) if the message has none of that name."""

    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Text(Node):
    """A string literal."""

    value: str


@dataclasses.dataclass(frozen=True, slots=True)
class Number(Node):
    """A number. With a minus before it it is no longer a literal to the rules about literals."""

    value: int | float
    type: NumberType
    is_literal: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Negated(Node):
    """A minus before something that is no number: always null."""

    operand: Node


@dataclasses.dataclass(frozen=True, slots=True)
class Condition(Node):
    """A node that is true, false or unknown."""


@dataclasses.dataclass(frozen=True, slots=True)
class Truth(Condition):
    """``TRUE``, ``FALSE`` or ``NULL``."""

    value: bool | None


@dataclasses.dataclass(frozen=True, slots=True)
class Asserted(Condition):
    """A property in place of a condition: unknown if it is null, else false, since no string is a boolean."""

    property: Property


@dataclasses.dataclass(frozen=True, slots=True)
class Equal(Condition):
    """``left = right``."""

    left: Node
    right: Node


@dataclasses.dataclass(frozen=True, slots=True)
class IsNull(Condition):
    """``operand IS NULL``."""

    operand: Node


@dataclasses.dataclass(frozen=True, slots=True)
class Ordered(Condition):
    """``left > right`` and its three variants."""

    order: Order
    left: Node
    right: Node


@dataclasses.dataclass(frozen=True, slots=True)
class Between(Condition):
    """``value BETWEEN low AND high``."""

    value: Node
    low: Node
    high: Node
    negated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class AnyOf(Condition):
    """``property IN ('a', 'b')``."""

    property: Property
    values: frozenset[str]
    negated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Searched(Condition):
    """``operand CONTAINS 'text'`` and its two variants."""

    search: Search
    operand: Node
    text: str
    negated: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Opposite(Condition):
    """``NOT condition``."""

    condition: Condition


@dataclasses.dataclass(frozen=True, slots=True)
class Conjunction(Condition):
    """``a AND b AND c``, in that order."""

    conditions: tuple[Condition, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class Disjunction(Condition):
    """``a OR b OR c``, in that order."""

    conditions: tuple[Condition, ...]
