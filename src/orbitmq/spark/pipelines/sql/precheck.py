"""Mistakes in a query that are found without Spark, which takes seconds to start.

This is not a parser. It refuses only what cannot be right: an unknown first word, a quotation mark or bracket that
is not closed, a misspelled clause, a table that is neither a topic nor named in the query. Spark's own parser finds
the rest.
"""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
from typing import TYPE_CHECKING

from orbitmq.spark.pipelines.sql.errors import QueryError
from orbitmq.spark.pipelines.sql.topics import UnknownTopicError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_FIRST_WORDS = """
add alter analyze begin cache call clear comment commit convert create declare delete desc describe dfs drop execute
explain export fetch from grant if import insert list load lock map merge msck open optimize reduce refresh repair
replace reset revoke rollback select set show start table truncate uncache unlock update use values with
"""
FIRST_WORDS = frozenset(_FIRST_WORDS.split())
"""The words with which a statement of Spark SQL can begin."""
CLAUSES = (
    "where",
    "group",
    "having",
    "order",
    "limit",
    "join",
    "union",
    "left",
    "right",
    "inner",
    "cross",
    "lateral",
)
BEFORE_BY = frozenset(("group", "order", "sort", "distribute", "cluster", "partition", "partitioned", "bucketed"))
"""A word before BY may also be a name (``EXCEPT by``): only near misses of these are refused."""
_NEAR = 0.75

_TOKEN = re.compile(
    r"""
    (?P<blank>\s+|--[^\n]*|/\*.*?\*/)
    | (?P<text>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    | (?P<quoted>`(?:[^`]|``)*`)
    | (?P<word>[^\W\d]\w*)
    | (?P<number>\d[\w.]*)
    | (?P<open>['"`]|/\*)
    | (?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PAIRS = {")": "(", "]": "["}


@dataclasses.dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """In lower case; empty if it is not a plain word."""
        return self.text.lower() if self.kind == "word" else ""

    @property
    def name(self) -> str | None:
        """A table's or column's name."""
        if self.kind == "quoted":
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" else None


def check_query(text: str, topic_of: Callable[[str], str]) -> None:
    """``topic_of`` raises UnknownTopicError for a name that is not a topic. Raises QueryError, and OrbitMQError."""
    tokens = list(_tokens(text))
    if not tokens:
        return
    first = tokens[0]
    if first.word and first.word not in FIRST_WORDS:
        near = difflib.get_close_matches(first.word, FIRST_WORDS, 1)
        hint = f": did you mean {near[0].upper()}?" if near else ""
        raise _error(f"a query cannot begin with {first.text!r}{hint}", text, first)
    _check_brackets(tokens, text)
    if first.word in {"select", "with", "from"}:
        _check_clauses(tokens, text)
        _check_tables(tokens, text, topic_of)


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "mark"
        if kind == "open":
            raise _error(f"{match[0]} is never closed", text, _Token(kind, match[0], match.start()))
        if kind != "blank":
            yield _Token(kind, match[0], match.start())


def _check_brackets(tokens: list[_Token], text: str) -> None:
    opened: list[_Token] = []
    for token in tokens:
        if token.text in _PAIRS.values() and token.kind == "mark":
            opened.append(token)
        elif token.text in _PAIRS and token.kind == "mark":
            if not opened or opened[-1].text != _PAIRS[token.text]:
                raise _error(f"{token.text!r} closes nothing", text, token)
            opened.pop()
    if opened:
        raise _error(f"{opened[-1].text!r} is never closed", text, opened[-1])


def _check_clauses(tokens: list[_Token], text: str) -> None:
    words = [token.word for token in tokens]
    for token, following in zip(tokens, [*tokens[1:], None], strict=True):
        after = "" if following is None else following.word
        if after == "by" and token.word and token.word not in BEFORE_BY and (near := _near(token.word, BEFORE_BY)):
            raise _error(f"{token.text!r} BY is not a clause: did you mean {near.upper()} BY?", text, token)
    if "from" not in words and len(tokens) > 2:
        for token, following in itertools.pairwise(tokens[1:]):
            if token.word and following.name is not None and _near(token.word, ("from",), 0.7):
                raise _error(f"there is no FROM: did you mean FROM for {token.text!r}?", text, token)
    for number, token in enumerate(tokens):
        if token.word in {"from", "join"} and _is_misspelled(tokens[number + 1 : number + 4]):
            wrong = tokens[number + 2]
            near = _near(wrong.word, CLAUSES)
            raise _error(f"{wrong.text!r} is not a clause: did you mean {near.upper()}?", text, wrong)


def _is_misspelled(after: list[_Token]) -> bool:
    """True for ``orders WHER x``: a near miss of a clause, where an alias would be, with an operand behind it."""
    if len(after) < 3 or after[0].name is None or not after[1].word or after[1].word in CLAUSES:
        return False
    is_operand = after[2].kind in {"text", "quoted", "number"} or (
        after[2].word and after[2].word not in _FOLLOWING
    )
    return bool(is_operand and _near(after[1].word, CLAUSES))


_FOLLOWING = frozenset(
    (*CLAUSES, "on", "using", "as", "natural", "full", "outer", "semi", "anti", "intersect", "except", "minus",
     "window", "qualify", "cluster", "distribute", "sort", "offset", "tablesample", "pivot", "unpivot")
)  # fmt: skip
"""The words that may follow the alias of a table."""


def _near(word: str, words: frozenset[str] | tuple[str, ...], cutoff: float = _NEAR) -> str:
    found = difflib.get_close_matches(word, words, 1, cutoff)
    return found[0] if found and found[0] != word else ""


def _check_tables(tokens: list[_Token], text: str, topic_of: Callable[[str], str]) -> None:
    """Tables of FROM and JOIN that are single names: others are files, functions or of a catalog."""
    named = _names_of_ctes(tokens)
    depths = _function_depths(tokens)
    for number, token in enumerate(tokens[:-1]):
        table = tokens[number + 1]
        if token.word not in {"from", "join"} or depths[number] or table.name is None:
            continue
        after = tokens[number + 2].text if number + 2 < len(tokens) else ""
        is_other = (
            after in {".", "("} or table.name.lower() in named or table.word in {"lateral", "values", "stream"}
        )
        if is_other or tokens[number - 1].word == "distinct":
            continue
        try:
            topic_of(table.name)
        except UnknownTopicError as error:
            raise _error(str(error), text, table) from None


def _names_of_ctes(tokens: list[_Token]) -> set[str]:
    """Names that stand before ``AS (`` or ``(columns) AS (``, wherever they are."""
    found = set()
    for number, token in enumerate(tokens):
        if token.name is not None and number and tokens[number - 1].text.lower() in {"with", ",", "recursive"}:
            found.add(token.name.lower())
    return found


def _function_depths(tokens: list[_Token]) -> list[bool]:
    """For each token, True inside the brackets of a function: FROM in ``extract(year FROM x)`` has no table."""
    found, stack = [], []
    for number, token in enumerate(tokens):
        if token.text == "(" and token.kind == "mark":
            before = tokens[number - 1].name if number else None
            after = tokens[number + 1].word if number + 1 < len(tokens) else ""
            stack.append(before is not None and after not in {"select", "with", "from", "values"})
        elif token.text == ")" and token.kind == "mark" and stack:
            stack.pop()
        found.append(bool(stack and stack[-1]))
    return found


def _error(sentence: str, text: str, token: _Token) -> QueryError:
    before = text[: token.at]
    line, column = before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1
    return QueryError(sentence, text, (line, column))
