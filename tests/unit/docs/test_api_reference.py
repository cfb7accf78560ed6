"""The API reference that `make docs` makes: every public name is in it, with what its docstring says."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

import pytest

from support.paths import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(PROJECT / "scripts"))
    yield importlib.import_module("api_reference")
    sys.modules.pop("api_reference", None)


def test_every_public_name_is_in_the_reference(reference: Any) -> None:
    pages = reference.pages()
    missing = []
    for page in reference.PAGES:
        beside = pages[f"api/{page.beside}.md"] if page.beside else ""
        headings = pages[page.file] + beside
        missing += [
            f"{page.module}.{name}"
            for name in importlib.import_module(page.module).__all__
            if f"## {name}\n" not in headings and f"`{name}`" not in headings
        ]
    assert missing == []


def test_every_option_of_a_client_is_in_the_reference(reference: Any) -> None:
    options = reference.pages()["api/options.md"]
    assert "| `send_msg_timeout` | `float` | `3.0` | For a send with all its attempts. |" in options
    assert options.count("## ") == len(reference.OPTIONS)


def test_signatures_and_docstrings_are_shown(reference: Any) -> None:
    pages = reference.pages()
    blocking = pages["api/orbitmq.md"]
    assert "### Producer.send\n\n```python\nsend(\n    message: Message,\n" in blocking
    assert "(aio.md#producersend)" in blocking
    assert "async def send(" in pages["api/aio.md"]
    assert "### AdminClient.topics.all\n" in pages["api/admin.md"]
    assert " at 0x" not in "".join(pages.values())


def test_every_page_is_in_the_navigation_of_the_site(reference: Any) -> None:
    navigation = (PROJECT / "mkdocs.yml").read_text("utf-8")
    assert [file for file in reference.pages() if f"- {file}\n" not in navigation] == []


def test_a_literal_block_of_a_docstring_is_a_code_block(reference: Any) -> None:
    doc = """Sends ``x``.

    ::

        with it:
            pass

    Done::

        more
    """
    assert reference.markdown(doc) == (
        "Sends `x`.\n\n```python\nwith it:\n    pass\n```\n\nDone:\n\n```python\nmore\n```"
    )
