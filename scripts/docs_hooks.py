"""Hooks of mkdocs: links from ``docs/`` to other files of the repository stay as text in the site.

On GitHub such a link opens the source. The site has only ``docs/``, where it would be a dead link, and a warning.
"""

from __future__ import annotations

import re
from typing import Any

OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\.?/(?:\.\./)*(?:src|tests|bench|deploy|scripts|[A-Z]+\.md|Makefile)[^)]*\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    return OUTSIDE.sub(r"\1", markdown)
