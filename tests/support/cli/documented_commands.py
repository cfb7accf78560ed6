"""The ``orbitmq`` commands of the documents: found in shell blocks, and parsed by the real command line.

Parsing is what a document can get wrong: a verb, option or value that does not exist. The commands do not run here;
what they do is tested in ``tests/cli`` and in the rings of brokers and Spark.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from typing import TYPE_CHECKING, Any

import typer

from orbitmq.cli import VERBS, app_with
from orbitmq.cli.app import SERVERS, is_operated
from orbitmq.cli.server import broker, controller, nameserver, serve
from support.paths import PROJECT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_BLOCK = re.compile(r"^```(?P<language>\w*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_SHELLS = frozenset({"sh", "bash", "console", ""})
_OPERATORS = frozenset({"|", "||", "&&", ";", "&", ">", "<", ">>"})
_PARSERS = {
    "serve": serve.parser,
    "broker": broker.parser,
    "nameserver": nameserver.parser,
    "controller": controller.parser,
}


@dataclasses.dataclass(frozen=True, slots=True)
class DocumentedCommand:
    """One ``orbitmq`` or ``make`` command in a shell block."""

    document: str
    line: int
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.document}:{self.line}: {' '.join(self.words)}"


def documents() -> list[Path]:
    """All Markdown files that users and contributors read."""
    return [PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted((PROJECT / "docs").rglob("*.md"))]


def documented_commands(program: str) -> list[DocumentedCommand]:
    return [
        DocumentedCommand(str(document.relative_to(PROJECT)), line, words)
        for document in documents()
        for line, words in commands_of(document.read_text("utf-8"))
        if words[0] == program and not any(word.startswith("[") for word in words)  # a synopsis
    ]


def commands_of(text: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """The simple commands of all shell blocks, with the line where each begins."""
    for block in _BLOCK.finditer(text):
        if block["language"] not in _SHELLS:
            continue
        line = text.count("\n", 0, block.start("code")) + 1
        begun = ""
        for number, row in enumerate(block["code"].splitlines()):
            if not (block["language"] or begun or row.startswith("orbitmq ")):
                continue  # a block without a language shows output as well
            command = begun + row
            if command.endswith("\\"):
                begun = command + "\n"
                continue
            try:
                found = list(_simple_commands(command.replace("\\\n", " ")))
            except ValueError:  # a quotation goes on in the next row
                begun = command + "\n"
                continue
            yield from ((line + number - begun.count("\n"), words) for words in found)
            begun = ""


def _simple_commands(line: str) -> Iterator[tuple[str, ...]]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    lexer.commenters = "#"
    words: list[str] = []
    for word in lexer:
        if word in _OPERATORS:
            if words:
                yield tuple(words)
            words = []
        else:
            words.append(word)
    if words:
        yield tuple(words)


def parse(arguments: list[str]) -> None:
    """Parse the arguments of ``orbitmq`` without running anything. Raises ValueError if one is refused."""
    verb, *rest = arguments
    if is_operated(verb, rest):
        verb, arguments = "admin", ["admin", *arguments]
    elif verb in SERVERS:
        try:
            _PARSERS[verb]().parse_args(rest)
        except SystemExit as error:
            raise ValueError(f"{verb} {rest} is refused") from error
        return
    if verb not in VERBS:
        raise ValueError(f"there is no verb {verb}")
    # Typer brings a Click of its own in newer versions, so its classes are not named here.
    command: Any = typer.main.get_command(app_with([verb]))
    context: Any = None
    try:
        while True:
            context = command.make_context(command.name or "", list(arguments), parent=context)
            if not hasattr(command, "resolve_command"):
                return
            remaining = [*context._protected_args, *context.args]
            if not remaining and command.invoke_without_command:
                return
            _, command, arguments = command.resolve_command(context, remaining)
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise ValueError(error.format_message()) from error
