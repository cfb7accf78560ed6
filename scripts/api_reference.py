"""The API reference of the documentation site: pages made from signatures and docstrings, for `make docs`.

Each page is a module with the names of its ``__all__``. Nothing is written by hand, so nothing is out of date.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import inspect
import itertools
import re
import textwrap
from typing import Any


@dataclasses.dataclass(frozen=True)
class Page:
    """A page of the reference: the public names of a module."""

    file: str
    module: str
    title: str
    beside: str = ""
    """A module whose names are left out where both have the same object."""
    names: tuple[str, ...] = ()
    """In place of ``__all__``."""


PAGES = (
    Page("api/orbitmq.md", "orbitmq", "orbitmq: the blocking client"),
    Page("api/aio.md", "orbitmq.aio", "orbitmq.aio: the client for asyncio", beside="orbitmq"),
    Page("api/testing.md", "orbitmq.testing", "orbitmq.testing: clusters inside tests"),
    Page("api/telemetry.md", "orbitmq.telemetry", "orbitmq.telemetry: spans and metrics"),
    Page("api/outbox.md", "orbitmq.outbox", "orbitmq.outbox: messages in your own transactions"),
    Page("api/idempotent.md", "orbitmq.idempotent", "orbitmq.idempotent: effects that happen once"),
    Page("api/admin.md", "orbitmq.admin", "orbitmq.admin: administration"),
)

OPTIONS = {
    "orbitmq.client.config": "ClientConfig",
    "orbitmq.client.producer.config": "ProducerConfig",
    "orbitmq.client.push.config": "ConsumerConfig",
    "orbitmq.client.lite_pull.config": "LitePullConfig",
    "orbitmq.client.simple.config": "SimpleConfig",
}
"""Dataclasses whose fields are the keywords of the clients."""


def pages() -> dict[str, str]:
    """The text of every page in Markdown, by its file."""
    made = {page.file: _page(page) for page in PAGES}
    made["api/options.md"] = _options()
    lines = "\n".join(f"| [{page.module}]({page.file.removeprefix('api/')}) | {_about(page)} |" for page in PAGES)
    made["api/index.md"] = (
        "# Reference\n\nThe public names of each module, from their signatures and docstrings. "
        f"[All options of clients](options.md) are on one page.\n\n| module | |\n|---|---|\n{lines}\n"
    )
    return made


def _about(page: Page) -> str:
    return page.title.partition(": ")[2]


def _page(page: Page) -> str:
    module = importlib.import_module(page.module)
    other = importlib.import_module(page.beside) if page.beside else None
    names = page.names or tuple(module.__all__)
    found = {name: getattr(module, name) for name in sorted(names, key=str.lower)}
    own = {name: value for name, value in found.items() if other is None or getattr(other, name, None) is not value}
    parts = [f"# {page.title}", markdown(module.__doc__)]
    if len(own) < len(found):
        parts.append(f"The other names are those of [{page.beside}](orbitmq.md).")
    classes = {name: value for name, value in own.items() if inspect.isclass(value)}
    errors = {name: value for name, value in classes.items() if issubclass(value, BaseException)}
    functions = {name: value for name, value in own.items() if inspect.isroutine(value)}
    rest = {name: value for name, value in own.items() if name not in {*classes, *functions}}
    parts += [_class(name, value) for name, value in classes.items() if name not in errors]
    parts += [_class(f"AdminClient.{name}", kind, shows_call=False) for name, kind in _subjects(page).items()]
    for name, value in functions.items():
        parts.append(f"## {name}\n\n{_signature(name, value)}\n\n{markdown(value.__doc__)}")
    if errors:
        parts.append("## Exceptions\n\n| exception | derived from | |\n|---|---|---|\n" + _errors(errors))
    if rest:
        parts.append("## Constants\n\n" + "\n".join(f"- `{name}`" for name in rest))
    return _joined(parts)


def _subjects(page: Page) -> dict[str, type]:
    """The classes of ``admin.topics``, ``admin.groups`` and so on."""
    if page.module != "orbitmq.admin":
        return {}
    client = importlib.import_module(page.module).AdminClient("127.0.0.1:9876")
    found = {name: type(value) for name, value in vars(client).items() if not name.startswith("_")}
    return {name: kind for name, kind in found.items() if kind.__module__.startswith("orbitmq.admin.")}


def _joined(parts: list[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n\n".join(filter(None, parts))).strip() + "\n"


def _errors(errors: dict[str, type[BaseException]]) -> str:
    return "\n".join(
        f"| `{name}` | {', '.join(f'`{base.__name__}`' for base in value.__bases__)} | {_cell(value.__doc__)} |"
        for name, value in errors.items()
    )


def _class(name: str, kind: type, *, shows_call: bool = True) -> str:
    parts = [f"## {name}", _signature(name, kind) if shows_call else "", markdown(kind.__doc__), _fields(kind)]
    for member, value in _members(kind):
        heading = f"### {name}.{member}"
        if isinstance(value, property):
            doc = markdown(value.__doc__)
            parts.append(f"{heading}\n\n```python\n{member}: {_returned(value)}\n```\n\n{doc}")
        else:
            function = value.__func__ if isinstance(value, classmethod | staticmethod) else value
            prefix = "async def " if inspect.iscoroutinefunction(function) else ""
            parts.append(f"{heading}\n\n{_signature(prefix + member, function)}\n\n{markdown(function.__doc__)}")
    return "\n\n".join(filter(None, parts))


def _members(kind: type) -> list[tuple[str, Any]]:
    """Public methods and properties of a class and of its bases in this package, in the order of the source."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] != "orbitmq":
            continue
        for name, value in vars(base).items():
            is_member = inspect.isfunction(value) or isinstance(value, property | classmethod | staticmethod)
            if is_member and not name.startswith("_"):
                found.pop(name, None)
                found[name] = value
    return list(found.items())


def _signature(name: str, value: Any) -> str:
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    shown = [one for one in signature.parameters.values() if one.name not in {"self", "cls"}]
    returned = signature.return_annotation
    plain = signature.replace(parameters=[_plain(one) for one in shown], return_annotation=inspect.Signature.empty)
    text = str(plain)
    arrow = "" if inspect.isclass(value) or returned is inspect.Signature.empty else f" -> {_annotation(returned)}"
    line = f"{name}{text}{arrow}"
    if len(line) > 100:
        line = re.sub(r"^([^(]*)\((.*)\)( -> .*)?$", _folded, line, flags=re.DOTALL)
    return f"```python\n{line}\n```"


def _folded(match: re.Match[str]) -> str:
    """A long signature with one parameter on each line."""
    parts, depth, start = [], 0, 0
    inside = match[2]
    for position, character in enumerate(inside):
        depth += (character in "([{") - (character in ")]}")
        if character == "," and depth == 0:
            parts.append(inside[start:position].strip())
            start = position + 1
    parts.append(inside[start:].strip())
    return f"{match[1]}(\n" + "".join(f"    {part},\n" for part in parts) + f"){match[3] or ''}"


class _Text(str):
    """A text whose repr has no quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter without quotes around its annotation, and with a default that is the same in every run."""
    annotation = parameter.annotation
    if annotation is not inspect.Parameter.empty:
        annotation = _Text(_annotation(annotation))
    default = parameter.default
    if default is not inspect.Parameter.empty:
        default = _Text(_default(default))
    return parameter.replace(annotation=annotation, default=default)


def _annotation(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _default(value: object) -> str:
    text = repr(value)
    return "…" if " at 0x" in text or text.startswith("<") or len(text) > 60 else text


def _returned(value: property) -> str:
    annotation = inspect.signature(value.fget).return_annotation if value.fget else inspect.Signature.empty
    return "Any" if annotation is inspect.Signature.empty else _annotation(annotation)


def _fields(kind: type) -> str:
    if not dataclasses.is_dataclass(kind):
        return ""
    docs = _field_docs(kind)
    rows = []
    for field in dataclasses.fields(kind):
        if field.name.startswith("_") or not field.init:
            continue
        has_default = field.default is not dataclasses.MISSING
        default = f"`{_default(field.default)}`" if has_default else ""
        kind_of_field = _escaped(_annotation(field.type))
        rows.append(f"| `{field.name}` | `{kind_of_field}` | {default} | {docs.get(field.name, '')} |")
    return "| field | type | default | |\n|---|---|---|---|\n" + "\n".join(rows) if rows else ""


def _field_docs(kind: type) -> dict[str, str]:
    """The strings below the fields of a class and its bases."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(base)))
        except (OSError, TypeError):
            continue
        body = tree.body[0].body if isinstance(tree.body[0], ast.ClassDef) else []
        for field, below in itertools.pairwise(body):
            is_doc = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_doc:
                found[field.target.id] = _cell(str(below.value.value))
    return found


def _options() -> str:
    parts = [
        "# Options of clients",
        "Keywords of producers and consumers. Those of `ClientConfig` are for all of them. Times are seconds.",
    ]
    for module, name in OPTIONS.items():
        kind = getattr(importlib.import_module(module), name)
        parts.append(f"## {name}\n\n{markdown(kind.__doc__)}\n\n{_fields(kind)}")
    return _joined(parts)


def _cell(text: str | None) -> str:
    """A docstring as one cell of a table."""
    return _escaped(" ".join(inspect.cleandoc(text or "").replace("``", "`").split()))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def markdown(doc: str | None) -> str:
    """A docstring as Markdown: what is indented below ``::`` becomes a block of Python."""
    lines: list[str] = []
    block: list[str] | None = None
    for line in [*inspect.cleandoc(doc or "").splitlines(), "."]:
        if block is not None and (line.startswith("    ") or not line):
            block.append(line)
            continue
        if block is not None:
            code = textwrap.dedent("\n".join(block)).strip()
            lines += ["```python", code, "```", ""]
            block = None
        if line.rstrip().endswith("::"):
            before = line.rstrip().removesuffix("::")
            lines += [f"{before}:", ""] if before else []
            block = []
        else:
            lines.append(line)
    text = re.sub(r"(?<!`)``(?!`)", "`", "\n".join(lines[:-1]).strip())
    return re.sub(r"`orbitmq\.aio\.(\w+)\.(\w+)`", _aio_link, text)


def _aio_link(match: re.Match[str]) -> str:
    return f"[{match[0]}](aio.md#{match[1].lower()}{match[2].lower()})"
