"""Predicate compiler: from the tree of an expression to a function over its property values.

The function takes the values in the order of ``slots``, a string or ``None`` each, and answers ``True``, ``False``
or ``None`` for unknown. It raises ``FilterEvaluationError`` where evaluation by RocketMQ fails with an exception,
and keeps to the same order: an operand that is not evaluated cannot fail.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from orbitmq.filter.errors import FilterEvaluationError
from orbitmq.filter.numbers import compare_doubles, parse_double, parse_int, parse_long
from orbitmq.filter.tree import (
    AnyOf,
    Asserted,
    Between,
    Condition,
    Conjunction,
    Disjunction,
    Equal,
    IsNull,
    Negated,
    Node,
    Number,
    NumberType,
    Opposite,
    Order,
    Ordered,
    Property,
    Search,
    Searched,
    Text,
    Truth,
)

Values = Sequence[str | None]
Predicate = Callable[[Values], bool | None]
Slots = dict[str, int]
"""Positions of the values by property name; filled while predicates are built."""

_Reader = Callable[[str], int | float]
_Equality = Callable[[Any, Any], bool]

_READERS: dict[NumberType, _Reader] = {
    NumberType.INT: parse_int,
    NumberType.LONG: parse_long,
    NumberType.DOUBLE: parse_double,
}
_OPERATORS: dict[Order, Callable[[Any, Any], bool]] = {
    Order.GREATER: operator.gt,
    Order.NOT_LESS: operator.ge,
    Order.LESS: operator.lt,
    Order.NOT_GREATER: operator.le,
}
_MIRRORED = {
    Order.GREATER: Order.LESS,
    Order.NOT_LESS: Order.NOT_GREATER,
    Order.LESS: Order.GREATER,
    Order.NOT_GREATER: Order.NOT_LESS,
}
_SEARCHES: dict[Search, Callable[[str, str], bool]] = {
    Search.CONTAINS: operator.contains,
    Search.STARTSWITH: str.startswith,
    Search.ENDSWITH: str.endswith,
}


def predicate(node: Condition, slots: Slots) -> Predicate:
    """The function of a condition."""
    match node:
        case Truth(value=value):
            return lambda _: value
        case Asserted(property=operand):
            asserted = _slot(operand, slots)
            return lambda values: None if values[asserted] is None else False
        case Equal():
            return _equal(node, slots)
        case IsNull(operand=operand):
            value_of = _value(operand, slots)
            return lambda values: value_of(values) is None
        case Ordered(order=order, left=left, right=right):
            return _ordered(order, left, right, slots)
        case Between():
            return _between(node, slots)
        case AnyOf(property=operand, values=listed, negated=negated):
            return _any_of(_slot(operand, slots), listed, negated)
        case Searched():
            return _searched(node, slots)
        case Opposite(condition=condition):
            return _opposite(predicate(condition, slots))
        case Conjunction(conditions=conditions):
            return _conjunction([predicate(condition, slots) for condition in conditions])
        case Disjunction(conditions=conditions):
            return _disjunction([predicate(condition, slots) for condition in conditions])
    raise AssertionError(node)


def _slot(node: Property, slots: Slots) -> int:
    return slots.setdefault(node.name, len(slots))


def _value(node: Node, slots: Slots) -> Callable[[Values], Any]:
    """The function for the value of a node: a string, a number, a boolean, or ``None``."""
    match node:
        case Property():
            return operator.itemgetter(_slot(node, slots))
        case Text(value=constant) | Number(value=constant):
            return lambda _: constant
        case Negated(operand=operand):
            return _negated(_value(operand, slots))
        case Condition():
            return predicate(node, slots)
    raise AssertionError(node)


def _negated(operand: Callable[[Values], Any]) -> Callable[[Values], None]:
    def evaluate(values: Values) -> None:
        operand(values)

    return evaluate


def _conjunction(conditions: list[Predicate]) -> Predicate:
    if len(conditions) == 2:
        first, second = conditions

        def both(values: Values) -> bool | None:
            left = first(values)
            if left is False:
                return False
            right = second(values)
            return right if left or right is False else None

        return both

    def every(values: Values) -> bool | None:
        result: bool | None = True
        for condition in conditions:
            answer = condition(values)
            if answer is False:
                return False
            if answer is None:
                result = None
        return result

    return every


def _disjunction(conditions: list[Predicate]) -> Predicate:
    def some(values: Values) -> bool | None:
        result: bool | None = False
        for condition in conditions:
            answer = condition(values)
            if answer:
                return True
            if answer is None:
                result = None
        return result

    return some


def _opposite(condition: Predicate) -> Predicate:
    def evaluate(values: Values) -> bool | None:
        answer = condition(values)
        return None if answer is None else not answer

    return evaluate


def _any_of(slot: int, listed: frozenset[str], negated: bool) -> Predicate:
    if negated:
        return lambda values: None if (value := values[slot]) is None else value not in listed
    return lambda values: None if (value := values[slot]) is None else value in listed


def _searched(node: Searched, slots: Slots) -> Predicate:
    if not node.text:
        # False in both forms, without evaluating the operand.
        return lambda _: False
    value_of = _value(node.operand, slots)
    found, text, expected = _SEARCHES[node.search], node.text, not node.negated

    def evaluate(values: Values) -> bool | None:
        value = value_of(values)
        return isinstance(value, str) and found(value, text) is expected

    return evaluate


def _ordered(order: Order, left: Node, right: Node, slots: Slots) -> Predicate:
    match left, right:
        case Property(), Number(value=number, type=number_type):
            return _ordered_to_number(_slot(left, slots), order, number, _READERS[number_type])
        case Number(value=number, type=number_type), Property():
            return _ordered_to_number(_slot(right, slots), _MIRRORED[order], number, _READERS[number_type])
        case Number(value=number), Number(value=other):
            if NumberType.DOUBLE in (left.type, right.type):
                number, other = float(number), float(other)
            constant = _OPERATORS[order](number, other)
            return lambda _: constant
    return _ordered_values(order, _value(left, slots), _value(right, slots))


def _ordered_to_number(slot: int, order: Order, number: float, read: _Reader) -> Predicate:
    """Comparison of a property with a number. In Java a property that is NaN is above every number."""
    match order:
        case Order.GREATER:
            return lambda values: None if (value := values[slot]) is None else not read(value) <= number
        case Order.NOT_LESS:
            return lambda values: None if (value := values[slot]) is None else not read(value) < number
        case Order.LESS:
            return lambda values: None if (value := values[slot]) is None else read(value) < number
        case Order.NOT_GREATER:
            return lambda values: None if (value := values[slot]) is None else read(value) <= number


def _ordered_values(
    order: Order, left: Callable[[Values], str | None], right: Callable[[Values], str | None]
) -> Predicate:
    """Two properties, which are compared as doubles; or one side is a minus before no number, and so is null."""
    compare = _OPERATORS[order]

    def evaluate(values: Values) -> bool | None:
        first = left(values)
        if first is None:
            return None
        second = right(values)
        if second is None:
            return None
        return compare(compare_doubles(parse_double(first), parse_double(second)), 0)

    return evaluate


def _between(node: Between, slots: Slots) -> Predicate:
    match node:
        case Between(value=Property() as operand, low=Number() as low, high=Number() as high) if (
            low.type is high.type
        ):
            # Both bounds parse the property in the same way, so it is parsed once.
            return _between_numbers(_slot(operand, slots), low.value, high.value, node.negated, _READERS[low.type])
    if node.negated:
        below = _ordered(Order.LESS, node.value, node.low, slots)
        return _disjunction([below, _ordered(Order.GREATER, node.value, node.high, slots)])
    not_below = _ordered(Order.NOT_LESS, node.value, node.low, slots)
    return _conjunction([not_below, _ordered(Order.NOT_GREATER, node.value, node.high, slots)])


def _between_numbers(slot: int, low: float, high: float, negated: bool, read: _Reader) -> Predicate:
    if negated:
        return lambda values: None if (value := values[slot]) is None else not low <= read(value) <= high
    return lambda values: None if (value := values[slot]) is None else low <= read(value) <= high


def _equal(node: Equal, slots: Slots) -> Predicate:
    match node:
        case Equal(left=Property() as operand, right=Text(value=text)):
            slot = _slot(operand, slots)
            return lambda values: None if (value := values[slot]) is None else value == text
        case Equal(left=Property() as operand, right=Number(value=number, type=number_type)):
            slot, read = _slot(operand, slots), _READERS[number_type]
            return lambda values: None if (value := values[slot]) is None else read(value) == number
    return _equal_values(_value(node.left, slots), _value(node.right, slots), _equality(node.left, node.right))


def _equal_values(left: Callable[[Values], Any], right: Callable[[Values], Any], equality: _Equality) -> Predicate:
    def evaluate(values: Values) -> bool | None:
        first, second = left(values), right(values)
        if first is None:
            return True if second is None else None
        # Asymmetric, as in RocketMQ: a known value is not equal to null.
        return False if second is None else equality(first, second)

    return evaluate


def _equality(left: Node, right: Node) -> _Equality:
    """The equality function for non-null values of these nodes."""
    match left, right:
        case (Property() | Text(), Number(type=number_type)):
            read = _READERS[number_type]
            return lambda first, second: read(first) == second
        case (Number(type=number_type), Property() | Text()):
            read = _READERS[number_type]
            return lambda first, second: first == read(second)
        case Number(), Number():
            if NumberType.DOUBLE in (left.type, right.type):
                return lambda first, second: float(first) == float(second)
        case (Property() | Text(), Condition()):
            return lambda first, second: (first.lower() == "true") is second
        case (Condition(), Property() | Text()):
            return _never_comparable
        case (Condition(), Number()) | (Number(), Condition()):
            return lambda _first, _second: False
    return operator.eq


def _never_comparable(_first: object, _second: object) -> bool:
    # RocketMQ's conversion of a string on the right side always fails.
    raise FilterEvaluationError("a condition cannot be compared with a string to the right of it")
