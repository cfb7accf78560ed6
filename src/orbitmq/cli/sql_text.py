"""SQL as it is typed: where one statement ends and the next begins."""

import re

_PIECE = re.compile(
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
    """The statements that end in a semicolon, without it, and what is left after the last of them."""
    found: list[str] = []
    current, at = "", 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        assert piece is not None
        word = piece[0]
        if text.startswith(_OPEN, at) and len(word) == 1:
            # Something that is not closed yet: a semicolon in it is none.
            return found, current + text[at:]
        at = piece.end()
        if word == ";":
            if _said(current):
                found.append(current.strip())
            current = ""
        else:
            current += word
    return found, current if _said(current) else ""


def _said(text: str) -> bool:
    """Whether there is more than blanks and comments."""
    return bool(_COMMENT.sub("", text).strip())
