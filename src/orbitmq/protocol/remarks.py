"""The text of a response: what a client may read of an error."""

from __future__ import annotations

import re

_ABSOLUTE_PATH = re.compile(r"""(?<![\w./-])/(?:[^\s/:;,'"()]+/)*([^\s/:;,'"()]+)/?""")


def hide_paths(text: str) -> str:
    """A text in which only the last name of each absolute path is left.

    Where a server keeps its files is for its log: no client needs it, and an attacker could use it.
    """
    return _ABSOLUTE_PATH.sub(r"\1", text) if "/" in text else text


def switched_off(key: str, *, value: str = "false") -> str:
    """The end of a remark for a feature that a setting of the broker has switched off by this value."""
    other = "true" if value == "false" else "false"
    return f"; {key}={value} in its settings, set {key}={other}"
