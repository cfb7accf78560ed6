"""The documents: their commands, links and anchors, and the pages that index and site list."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from support.cli.documentation import examples
from support.cli.documented_commands import (
    DocumentedCommand,
    commands_of,
    documented_commands,
    documents,
    parse,
)
from support.paths import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

    from support.cli.documentation import Example

LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)")
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """Anchors of the headings, as GitHub and the site make them."""
    headings = HEADING.findall(CODE.sub("", document.read_text("utf-8")))
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip() for heading in headings)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("command", documented_commands("orbitmq"), ids=str)
def test_a_documented_command_is_accepted(command: DocumentedCommand) -> None:
    parse(list(command.words[1:]))


def test_documented_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (PROJECT / "Makefile").read_text("utf-8"), re.MULTILINE))
    commands = documented_commands("make")
    assert len(commands) > 5
    assert [str(command) for command in commands if command.words[1] not in targets] == []


def test_links_and_anchors_lead_somewhere() -> None:
    dead = []
    for document in documents():
        for target, anchor in LINK.findall(CODE.sub("", document.read_text("utf-8"))):
            path = (document.parent / target).resolve() if target else document
            is_dead = not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path))
            if is_dead:
                dead.append(f"{document.relative_to(PROJECT)}: {target}#{anchor}")
    assert dead == []


def test_every_page_is_in_the_index_and_in_the_navigation_of_the_site() -> None:
    index = (PROJECT / "docs/README.md").read_text("utf-8")
    navigation = (PROJECT / "mkdocs.yml").read_text("utf-8")
    pages = [page.relative_to(PROJECT / "docs") for page in sorted((PROJECT / "docs").rglob("*.md"))]
    assert [
        str(page) for page in pages if f"- {page}\n" not in navigation and f": {page}\n" not in navigation
    ] == []
    own = [page for page in pages if page.parent.name == "" and page.name != "README.md"]
    assert [str(page) for page in own if f"]({page})" not in index] == []


def test_commands_are_found_in_shell_blocks() -> None:
    text = "```sh\norbitmq send a 'b c' | orbitmq tail a   # both\nmake x && \\\n    make y\n```\n"
    text += "```python\nmake z\n```\n"
    assert list(commands_of(text)) == [
        (2, ("orbitmq", "send", "a", "b c")),
        (2, ("orbitmq", "tail", "a")),
        (3, ("make", "x")),
        (3, ("make", "y")),
    ]


@pytest.mark.parametrize("arguments", [["sent", "a"], ["send", "a", "--tagg", "b"], ["serve", "--prot", "1"]])
def test_a_command_that_does_not_exist_is_refused(arguments: list[str]) -> None:
    with pytest.raises(ValueError, match=r"no|refused|No such"):
        parse(arguments)


@pytest.mark.parametrize("example", [one for one in examples() if not one.note.startswith("given")], ids=str)
def test_an_example_can_be_pasted_into_a_file(example: Example) -> None:
    """Without ``await`` outside a function, which only ``python -m asyncio`` understands."""
    compile(example.code, str(example), "exec")
