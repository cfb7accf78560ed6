"""SQL92 parser: from the text of an expression to its tree, refusing what RocketMQ refuses.

Like RocketMQ's parser this one stops where the expression is complete and the next token cannot go on with it:
``a = 1 whatever`` is ``a = 1``. Only that next token must be a token.
"""

from __future__ import annotations

import functools
import re
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedToken

from orbitmq.filter.errors import FilterSyntaxError, Refusal
from orbitmq.filter.grammar import GRAMMAR
from orbitmq.filter.numbers import INT_LIMIT, LONG_LIMIT
from orbitmq.filter.tokens import tokens
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

MAX_DEPTH = 100
"""Levels of an expression; parentheses alone are none, nor is a chain of ANDs. Evaluating takes a Python frame
for each, of which there are 1,000."""

_TRUTHS = {"TRUE": True, "FALSE": False, "NULL": None}
_MISSING = {
    "NAME": "a property or a value",
    "STRING": "a string",
    "_OPEN": "'('",
    "_CLOSE": "')'",
    "NULL": "NULL",
    "AND": "AND",
}
"""Descriptions of expected tokens for error messages, most specific first."""


def parse(expression: str) -> Condition:
    """The tree of an expression. Raises ``FilterSyntaxError`` and nothing else."""
    try:
        return _as_condition(_parse(expression))
    except Refusal as refusal:
        lines = re.split("\r\n|\r|\n", expression[: refusal.offset])
        raise FilterSyntaxError(refusal.reason, len(lines), len(lines[-1]) + 1) from None


def prepare() -> None:
    """Build the tables of the grammar in advance, which takes a tenth of a second."""
    _parser()


def _parse(expression: str) -> Node:
    parser = _parser().parse_interactive()
    end = Token("$END", "", len(expression.rstrip()))
    unexpected = None
    try:
        for token in tokens(expression):
            parser.feed_token(token)
    except UnexpectedToken as error:
        unexpected = error
    try:
        node: Node = parser.feed_token(end)
    except UnexpectedToken as error:
        raise _refusal(unexpected or error) from None
    return node


def _refusal(error: UnexpectedToken) -> Refusal:
    missing = next((text for name, text in _MISSING.items() if name in error.expected), None)
    found = "the end" if error.token.type == "$END" else _shortened(error.token)
    reason = f"{missing} is expected instead of {found}" if missing else f"{found} is not expected here"
    return Refusal(reason, error.token.start_pos or 0)


def _shortened(text: str) -> str:
    # With Python's escapes: a string may contain line ends and characters that UTF-8 cannot encode.
    return repr(str(text) if len(text) <= 32 else f"{text[:31]}…")


@functools.cache
def _parser() -> Lark:
    return Lark(GRAMMAR, parser="lalr", lexer="basic", transformer=_Rules())


class _Rules(Transformer[Token, Node]):
    """Builds tree nodes from the rules of the grammar, and checks types."""

    def disjunction(self, parts: list[Any]) -> Node:
        conditions = tuple([_as_condition(part) for part in parts[::2]])
        return Disjunction(_at(parts[1]), _depth(*conditions), conditions)

    def conjunction(self, parts: list[Any]) -> Node:
        conditions = tuple([_as_condition(part) for part in parts[::2]])
        return Conjunction(_at(parts[1]), _depth(*conditions), conditions)

    def equal(self, parts: list[Any]) -> Node:
        left, sign, right = parts
        for side in (left, right):
            if isinstance(side, Truth) and side.value is None:
                raise Refusal("NULL is never equal to anything: write IS NULL or IS NOT NULL", side.at)
        is_literal = right.is_literal if isinstance(right, Number) else isinstance(right, Text)
        if isinstance(left, Truth) and is_literal:
            raise Refusal("TRUE and FALSE cannot be compared with a number or a string", right.at)
        return Equal(_at(sign), _depth(left, right), left, right)

    def unequal(self, parts: list[Any]) -> Node:
        equal = self.equal(parts)
        assert isinstance(equal, Equal)
        return Opposite(equal.at, _depth(equal), equal)

    def is_null(self, parts: list[Any]) -> Node:
        operand, sign, negation, _ = parts
        node = IsNull(_at(sign), _depth(operand), operand)
        return Opposite(node.at, _depth(node), node) if negation else node

    def ordered(self, parts: list[Any]) -> Node:
        left, sign, right = parts
        _check_ordered(left, right)
        return Ordered(_at(sign), _depth(left, right), Order(str(sign)), left, right)

    def between(self, parts: list[Any]) -> Node:
        value, negation, sign, low, _, high = parts
        _check_ordered(value, low, high)
        if not negation and _are_swapped(low, high):
            raise Refusal("the lower bound of BETWEEN is above the upper one", low.at)
        return Between(_at(sign), _depth(value, low, high), value, low, high, negation is not None)

    def any_of(self, parts: list[Any]) -> Node:
        operand, negation, sign, *strings = parts
        if not isinstance(operand, Property):
            raise Refusal("IN is only possible for a property", _at(sign))
        return AnyOf(_at(sign), _depth(operand), operand, frozenset(map(_unquoted, strings)), negation is not None)

    def search(self, parts: list[Any]) -> Node:
        operand, negation, sign, text = parts
        return Searched(
            _at(sign), _depth(operand), Search(sign.type), operand, _unquoted(text), negation is not None
        )

    def negated(self, parts: list[Any]) -> Node:
        sign, operand = parts
        if isinstance(operand, Number):
            return Number(_at(sign), operand.depth, -operand.value, operand.type, is_literal=False)
        return Negated(_at(sign), _depth(operand), operand)

    def opposite(self, parts: list[Any]) -> Node:
        sign, operand = parts
        condition = _as_condition(operand)
        return Opposite(_at(sign), _depth(condition), condition)

    def text(self, parts: list[Any]) -> Node:
        return Text(_at(parts[0]), 0, _unquoted(parts[0]))

    def integer(self, parts: list[Any]) -> Node:
        digits = parts[0].rstrip("lL")
        value = int(digits) if len(digits) < 20 else LONG_LIMIT
        if value >= LONG_LIMIT:
            raise Refusal("the number does not fit into 64 bits", _at(parts[0]))
        number_type = NumberType.INT if value < INT_LIMIT else NumberType.LONG
        return Number(_at(parts[0]), 0, value, number_type, is_literal=True)

    def double(self, parts: list[Any]) -> Node:
        value = float(parts[0])
        # RocketMQ accepts only positive doubles, so 0.0 is refused: it must be written as 0.
        if value in (0.0, float("inf")):
            raise Refusal("the number is out of the range of positive doubles", _at(parts[0]))
        return Number(_at(parts[0]), 0, value, NumberType.DOUBLE, is_literal=True)

    def truth(self, parts: list[Any]) -> Node:
        return Truth(_at(parts[0]), 0, _TRUTHS[parts[0].type])

    def property(self, parts: list[Any]) -> Node:
        return Property(_at(parts[0]), 0, str(parts[0]))


def _as_condition(node: Node) -> Condition:
    if isinstance(node, Condition):
        return node
    if isinstance(node, Property):
        return Asserted(node.at, node.depth, node)
    raise Refusal("a condition is expected instead of a value", node.at)


def _check_ordered(*operands: Node) -> None:
    for operand in operands:
        if isinstance(operand, Text | Condition):
            raise Refusal("only numbers and properties can be compared by size", operand.at)


def _are_swapped(low: Node, high: Node) -> bool:
    """The bounds are literals with no value between them."""
    if not (isinstance(low, Number) and isinstance(high, Number) and low.is_literal and high.is_literal):
        return False
    if NumberType.DOUBLE in (low.type, high.type):
        return float(low.value) > float(high.value)
    return low.value > high.value


def _depth(*below: Node) -> int:
    deepest = max(below, key=lambda node: node.depth)
    if deepest.depth >= MAX_DEPTH:
        raise Refusal(f"the expression is nested deeper than {MAX_DEPTH} levels", deepest.at)
    return deepest.depth + 1


def _at(token: Token) -> int:
    return token.start_pos or 0


def _unquoted(text: str) -> str:
    return text[1:-1].replace("''", "'")
