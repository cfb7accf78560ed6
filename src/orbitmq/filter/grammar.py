"""The language of SQL92 expressions: which rows of tokens are expressions, and how tightly what binds.

``NOT``, ``+`` and ``-`` bind tighter than any comparison: ``NOT a = 1`` is ``(NOT a) = 1``.
"""

from __future__ import annotations

GRAMMAR = """
?start: disjunction

?disjunction: conjunction (OR conjunction)*
?conjunction: equality (AND equality)*

?equality: comparison
    | equality EQUAL comparison -> equal
    | equality UNEQUAL comparison -> unequal
    | equality IS [NOT] NULL -> is_null

?comparison: unary
    | comparison (GREATER | NOT_LESS | LESS | NOT_GREATER) unary -> ordered
    | comparison [NOT] (CONTAINS | STARTSWITH | ENDSWITH) STRING -> search
    | comparison [NOT] BETWEEN unary AND unary -> between
    | comparison [NOT] IN _OPEN STRING (_COMMA STRING)* _CLOSE -> any_of

?unary: _PLUS unary
    | MINUS unary -> negated
    | NOT unary -> opposite
    | primary

?primary: STRING -> text
    | DECIMAL -> integer
    | FLOAT -> double
    | (TRUE | FALSE | NULL) -> truth
    | NAME -> property
    | _OPEN disjunction _CLOSE

%declare OR AND EQUAL UNEQUAL IS NOT NULL GREATER NOT_LESS LESS NOT_GREATER
%declare CONTAINS STARTSWITH ENDSWITH BETWEEN IN TRUE FALSE MINUS _PLUS _OPEN _CLOSE _COMMA
%declare STRING DECIMAL FLOAT NAME
"""
