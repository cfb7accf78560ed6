"""The words of SQL92 expressions.

Of two tokens that fit, the longer one counts: ``0L`` is ``0`` and the name ``L``, because only a number that does
not begin with a zero may have an ``L``, and ``notes`` is a name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lark import Token

from orbitmq.filter.errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_TOKENS = 2_048
"""Compiling this many tokens blocks a broker for some 15 ms. A list of 1,000 strings fits."""

_KEYWORDS = frozenset(
    ["NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS", "CONTAINS", "STARTSWITH", "ENDSWITH"],
)

_EXPONENT = "(?:[eE][+-]?[0-9]+)"
_TOKENS = rf"""
    (?P<BLANK> [ \t\n\r\f]+ | /\*[^*]*\*(?:\*|[^*/][^*]*\*)*/ )
  | (?P<NAME> [A-Za-z_$][A-Za-z0-9_$]* )
  | (?P<STRING> '[^']*(?:''[^']*)*' )
  | (?P<FLOAT> [0-9]+\.[0-9]*{_EXPONENT}? | \.[0-9]+{_EXPONENT}? | [0-9]+{_EXPONENT} )
  | (?P<DECIMAL> 0 | [1-9][0-9]*[lL]? )
  | (?P<UNEQUAL> <> )
  | (?P<NOT_LESS> >= )
  | (?P<NOT_GREATER> <= )
  | (?P<EQUAL> = )
  | (?P<GREATER> > )
  | (?P<LESS> < )
  | (?P<_OPEN> \( )
  | (?P<_CLOSE> \) )
  | (?P<_COMMA> , )
  | (?P<_PLUS> \+ )
  | (?P<MINUS> - )
"""
# A line comment needs the end of its line, else its dashes are two minus signs. That there is an end of line is
# known beforehand, so that a line of nothing but dashes is not searched for one at each of them.
_LAST_LINE = re.compile(_TOKENS, re.VERBOSE)
_OTHER_LINES = re.compile(rf"(?P<COMMENT> --[^\n\r]*[\n\r] ) | {_TOKENS}", re.VERBOSE)


def tokens(text: str) -> Iterator[Token]:
    """The tokens of an expression, lazily: a parser that stops early does not pay for the rest."""
    last_line = max(text.rfind("\n"), text.rfind("\r")) + 1
    position, end, count = 0, len(text), 0
    while position < end:
        match = (_OTHER_LINES if position < last_line else _LAST_LINE).match(text, position)
        if match is None:
            raise Refusal(_what_is_wrong(text, position), position)
        start, position, kind, word = position, match.end(), match.lastgroup or "", match.group()
        if kind in {"BLANK", "COMMENT"}:
            continue
        count += 1
        if count > MAX_TOKENS:
            raise Refusal(f"the expression has more than {MAX_TOKENS} tokens", start)
        if kind == "NAME" and word.upper() in _KEYWORDS:
            kind = word.upper()
        yield Token(kind, word, start)


def _what_is_wrong(text: str, position: int) -> str:
    if text[position] == "'":
        return "the string is not closed"
    if text.startswith("/*", position):
        return "the comment is not closed"
    return f"{text[position]!r} is no part of an expression"
