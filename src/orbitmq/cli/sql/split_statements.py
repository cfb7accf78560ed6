"""Splits typed SQL into statements at semicolons."""

import re

_TOKEN = re.compile(
    r"""
    '(?:[^'\\]|\\.|'')*'        # a text; a quote in it is doubled or has a backslash before it
    | "(?:[^"\\]|\\.|"")*"
    | `(?:[^`]|``)*`            # a name
    | --[^\n]*                  # a comment to the end of the line
    | /\*.*?\*/
    | ;
    | [^'"`;/-]+
    | .
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.DOTALL)
_OPEN = ("'", '"', "`", "/*")


def statements(text: str) -> tuple[list[str], str]:
    """The complete statements without their semicolons, and the rest after the last one."""
    found: list[str] = []
    current, at = "", 0
    while at < len(text):
        token = _TOKEN.match(text, at)
        assert token is not None
        word = token[0]
        if text.startswith(_OPEN, at) and len(word) == 1:
            # An open quotation mark or comment: a semicolon in it ends nothing.
            return found, current + text[at:]
        at = token.end()
        if word == ";":
            if _has_statement(current):
                found.append(current.strip())
            current = ""
        else:
            current += word
    return found, current if _has_statement(current) else ""


def _has_statement(text: str) -> bool:
    """True if there is more than blanks and comments."""
    return bool(_COMMENT.sub("", text).strip())
