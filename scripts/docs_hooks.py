"""Hooks of mkdocs: the API reference, and links from ``docs/`` to other files of the repository.

The reference is made from docstrings (``api_reference.py``) and lies nowhere. Links to sources stay as text in the
site: on GitHub such a link opens the source, but the site has only ``docs/``, where it would be a dead link.
"""

from __future__ import annotations

import pathlib
import re
import sys
from typing import Any

from mkdocs.structure.files import File

OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\.?/(?:\.\./)*(?:src|tests|bench|deploy|scripts|[A-Z]+\.md|Makefile)[^)]*\)")


def on_files(files: Any, *, config: Any) -> Any:
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    import api_reference  # noqa: PLC0415 - beside this file

    for path, text in api_reference.pages().items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    return OUTSIDE.sub(r"\1", markdown)
