"""The Python examples of the documents: found, given what they need, and run as a reader would run them.

A block of Python is a program of its own, in a process of its own. ``await`` may stand outside a function, as in
``python -m asyncio``; a block with test functions is run by pytest. A comment before the block, which Markdown does
not show, says the rest::

    <!-- example: given producer -->      a started producer is there by that name (see GIVEN)
    <!-- example: until Ctrl-C -->        it does not end by itself; so does everything with ``consumer.run()``
    <!-- example: skip, and the reason -->

Run as a program, this file runs an example in the place of Python.
"""

from __future__ import annotations

import ast
import asyncio
import dataclasses
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ADDRESS = "127.0.0.1:9876"
"""The name server of the documents, in the place of which an example gets one of its own."""

GIVEN = {
    "producer": (
        f"from orbitmq import *; producer = Producer('{ADDRESS}', group='orders').start()",
        "producer.close()",
    ),
    "async producer": (
        f"from orbitmq.aio import *; producer = await Producer('{ADDRESS}', group='orders').start()",
        "await producer.close()",
    ),
    "consumer": (f"from orbitmq import *; consumer = Consumer('{ADDRESS}', group='billing')", "consumer.close()"),
    "async consumer": (
        f"from orbitmq.aio import *; consumer = Consumer('{ADDRESS}', group='billing')",
        "await consumer.close()",
    ),
}
"""What may be there before an example, by its name: how it is made, and how it ends."""

_BLOCK = re.compile(
    r"(?:<!-- example: (?P<note>[^\n]*?) -->\n+)?^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_TOPIC = re.compile(r'\.(?:on|subscribe|fetch_message_queues|messages)\(\s*"([\w-]+)"')
_GROUP = re.compile(r'Consumer\([^)]*?group="([\w-]+)"')
_TEST = re.compile(r"^(?:async )?def test_", re.MULTILINE)


@dataclasses.dataclass(frozen=True, slots=True)
class Example:
    """A block of Python in a document."""

    document: str
    line: int
    code: str
    note: str = ""

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"

    @property
    def skipped(self) -> str:
        """Why it is not run; nothing if it is."""
        return self.note.removeprefix("skip").lstrip(" ,:") if self.note.startswith("skip") else ""

    @property
    def is_test(self) -> bool:
        return _TEST.search(self.code) is not None

    @property
    def is_endless(self) -> bool:
        return self.note == "until Ctrl-C" or ".run()" in self.code

    @property
    def topics(self) -> list[str]:
        """What it wants messages of."""
        return sorted(set(_TOPIC.findall(self.code)))

    @property
    def groups(self) -> list[str]:
        """Whose members it starts."""
        return sorted(set(_GROUP.findall(self.code)))

    def program(self, address: str) -> str:
        """What is run, with a name server that is there. Raises KeyError for something given that nobody knows."""
        before = after = ""
        if self.note.startswith("given "):
            before, after = GIVEN[self.note.removeprefix("given ")]
        return "\n".join((before, self.code, after)).replace(ADDRESS, address)

    def start(self, folder: Path, address: str) -> subprocess.Popen[str]:
        """Run it in a folder, where it may write."""
        name = "test_example.py" if self.is_test else "example.py"
        path = folder / name
        path.write_text(self.program(address), "utf-8")
        command = [sys.executable, "-W", "error"]
        if self.is_test:
            (folder / "pytest.ini").write_text(
                "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n", "utf-8"
            )
            command += ["-m", "pytest", "-q", "-p", "no:cacheprovider", name]
        else:
            command += [__file__, str(path)]
        return subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            # A reader's own settings are not the example's.
            env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT / "src")},
        )


def examples() -> list[Example]:
    """All examples of the README and of ``docs/``."""
    # Those about Spark are run by its own ring: each would start a JVM.
    documents = [ROOT / "README.md", *sorted(set((ROOT / "docs").glob("*.md")) - set(about_spark()))]
    return [found for document in documents for found in examples_of(document)]


def about_spark() -> list[Path]:
    """The documents whose examples take a session of Spark."""
    return sorted([*ROOT.glob("docs/spark*.md"), *ROOT.glob("docs/pipeline-*.md")])


def examples_of(document: Path) -> list[Example]:
    text = document.read_text("utf-8")
    return [
        Example(
            document=str(document.relative_to(ROOT)) if document.is_relative_to(ROOT) else document.name,
            line=text.count("\n", 0, block.start("code")) + 1,
            code=textwrap.dedent(block["code"]),
            note=block["note"] or "",
        )
        for block in _BLOCK.finditer(text)
    ]


def run_as_program(path: str) -> None:
    """What Python does with a file, and with ``await`` outside functions."""
    source = Path(path).read_text("utf-8")
    # An example is a module of its own: nothing of this one's own future imports holds for it.
    code = compile(source, path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    names: dict[str, object] = {"__name__": "__main__", "__file__": path}
    if code.co_flags & inspect.CO_COROUTINE:
        asyncio.run(_awaited(code, names))
    else:
        exec(code, names)


async def _awaited(code: object, names: dict[str, object]) -> None:
    await eval(code, names)  # type: ignore[arg-type]


if __name__ == "__main__":
    run_as_program(sys.argv[1])
