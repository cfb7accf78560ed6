"""Errors of filters: in the text of an expression, or in its evaluation."""

from __future__ import annotations

from orbitmq.protocol.codes import ResponseCode


class FilterError(ValueError):
    """A subscription that cannot be compiled to a filter.

    Not a ``ProtocolError``: the request that brought it is well-formed, its answer is a response code and the
    connection stays.
    """

    response_code = ResponseCode.SUBSCRIPTION_PARSE_FAILED


class FilterSyntaxError(FilterError):
    """A syntax error in an expression; line and column count from 1."""

    def __init__(self, reason: str, line: int, column: int) -> None:
        super().__init__(f"{reason}, at line {line}, column {column}")
        self.reason = reason
        self.line = line
        self.column = column


class Refusal(Exception):  # noqa: N818 - does not leave this package
    """An error at a character of an expression; converted to ``FilterSyntaxError`` at the end."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


class FilterEvaluationError(Exception):
    """A comparison that has no result for these properties, such as ``a > 5`` with ``a`` being ``red``.

    Not the expression's fault and not the message's: the message just does not match.
    """
