"""The check of a declarative pipeline without Java, a broker or Spark.

Definition files in Python are read as Spark reads them, by importing them; but the functions that make DataFrames
are only noted, not called. So are SQL statements: what is in them is Spark's to judge (``run --dry-run`` asks it).
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import sys
import traceback
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.pipelines.graph_element_registry import GraphElementRegistry, graph_element_registration_context
from pyspark.pipelines.output import Sink

from orbitmq.client.errors import OrbitMQError
from orbitmq.spark.pipelines.declarative.project import Problem, Project
from orbitmq.spark.pipelines.spark_job import sentence_of
from orbitmq.spark.sink.options import SinkOptions
from orbitmq.spark.topic_source.option_parser import OptionReader
from orbitmq.spark.topic_source.options import IGNORED, READING

if TYPE_CHECKING:
    import pathlib
    from collections.abc import Iterator

    from pyspark.pipelines.flow import AutoCdcFlow, Flow
    from pyspark.pipelines.output import Output

FORMAT = "orbitmq"
_NAME = r"(?P<name>(?:`[^`]+`|\w+)(?:\.(?:`[^`]+`|\w+))*)"
_OUTPUT = re.compile(
    rf"CREATE\s+(?:OR\s+REFRESH\s+)?(?:STREAMING\s+TABLE|MATERIALIZED\s+VIEW|TEMPORARY\s+VIEW)\s+"
    rf"(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}",
    re.IGNORECASE,
)
_FLOW = re.compile(
    rf"CREATE\s+FLOW\s+\S+\s+AS\s+(?:INSERT\s+INTO|AUTO\s+CDC\s+(?:ONCE\s+)?INTO)\s+{_NAME}", re.IGNORECASE
)
_SETTING = re.compile(r"(SET|USE)\b", re.IGNORECASE)
_READERS = ("option", "options")
_FUNCTIONS = ("topic", "topic_now")
"""Of ``orbitmq.spark.declarative``."""


def problems_of(project: Project) -> list[Problem]:
    """All problems, sorted by file and line."""
    found = [*project.problems]
    registry = _DefinitionRegistry(project)
    with _within(project.folder), graph_element_registration_context(registry):
        for path in project.files:
            if path.suffix == ".sql":
                registry.note_sql(path)
            else:
                found += _imported(path)
    found += registry.problems()
    if not registry.outputs and not found:
        found.append(Problem(project.spec, 1, "nothing is defined: there is no table, view or sink"))
    return sorted(set(found))


class _NoSpark:
    """Stands where Spark puts its session. Only functions that make DataFrames use it, and those are not called."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"'spark.{name}' is used outside of the functions that make DataFrames")


class _DefinitionRegistry(GraphElementRegistry):
    """Records the definitions with their locations."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.outputs: dict[str, tuple[pathlib.Path, int]] = {}
        self._targets: list[tuple[str, pathlib.Path, int]] = []
        self._problems: list[Problem] = []

    def problems(self) -> list[Problem]:
        missing = [
            Problem(
                path, line, f"there is no table and no sink {name!r} to write to: define it, or correct the name"
            )
            for name, path, line in self._targets
            if _short(name) not in self.outputs
        ]
        return [*self._problems, *missing]

    # What Spark's decorators call

    def register_output(self, output: Output) -> None:
        place = self._place(output.source_code_location)
        self._note(output.name, *place)
        if isinstance(output, Sink) and output.format == FORMAT:
            try:
                SinkOptions.of({**_ANY_NAME_SERVER, **output.options})
            except OrbitMQError as error:
                self._problems.append(Problem(*place, str(error)))

    def register_flow(self, flow: Flow) -> None:
        self._targets.append((flow.target, *self._place(flow.source_code_location)))

    def register_auto_cdc_flow(self, flow: AutoCdcFlow) -> None:
        self._targets.append((flow.target, *self._place(flow.source_code_location)))

    def register_sql(self, sql_text: str, file_path: pathlib.Path) -> None:
        self._note_statements(sql_text, file_path)

    def _place(self, location: Any) -> tuple[pathlib.Path, int]:
        return type(self._project.spec)(location.filename), location.line_number or 1

    def _note(self, name: str, path: pathlib.Path, line: int) -> None:
        short = _short(name)
        if short in self.outputs:
            first, at = self.outputs[short]
            self._problems.append(Problem(path, line, f"{name!r} is defined twice: also in {first.name}:{at}"))
        else:
            self.outputs[short] = (path, line)

    # SQL

    def note_sql(self, path: pathlib.Path) -> None:
        try:
            self._note_statements(path.read_text(encoding="utf-8"), path)
        except (OSError, UnicodeDecodeError) as error:
            self._problems.append(Problem(path, 1, f"the file cannot be read: {error}"))

    def _note_statements(self, text: str, path: pathlib.Path) -> None:
        for line, statement, is_whole in _statements(text):
            if not is_whole:
                self._problems.append(Problem(path, line, "a quotation mark, comment or bracket is never closed"))
            elif match := _OUTPUT.match(statement):
                self._note(match["name"], path, line)
            elif match := _FLOW.match(statement):
                self._targets.append((match["name"], path, line))
            elif not _SETTING.match(statement):
                begun = " ".join(statement.split()[:3])
                self._problems.append(
                    Problem(path, line, f"{begun!r} defines nothing: it takes a streaming table, view or flow")
                )


_ANY_NAME_SERVER = {"nameserver": "127.0.0.1:9876"}
"""Where none is written, the command or the environment says it when the pipeline runs."""


def _short(name: str) -> str:
    """The last part of a name: catalogs and databases are Spark's to resolve."""
    return name.rsplit(".", maxsplit=1)[-1].strip("`").lower()


def _statements(text: str) -> Iterator[tuple[int, str, bool]]:
    """The statements of a SQL file: line, text without comments, and whether all that is opened in it is closed."""
    token = re.compile(
        r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|;|[()]|[^-/'\"`;()]+|.", re.DOTALL
    )
    line, start, depth, parts, is_whole = 1, 1, 0, "", True
    for match in token.finditer(text + "\n;"):
        part = match[0]
        if part == ";":
            if parts.strip():
                yield start, parts.strip(), is_whole and depth == 0
            depth, parts, is_whole = 0, "", True
        elif not part.startswith(("--", "/*")):
            if not parts.strip():
                parts = ""
                start = line + part[: len(part) - len(part.lstrip())].count("\n")
            depth += {"(": 1, ")": -1}.get(part, 0)
            # A mark that begins nothing whole stands alone.
            is_whole = is_whole and part not in {"'", '"', "`"}
            parts += part
        elif part == "/*":
            is_whole = False
        line += part.count("\n")


# Python


def _imported(path: pathlib.Path) -> list[Problem]:
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError, OSError) as error:
        return [Problem(path, getattr(error, "lineno", None) or 1, f"Python cannot read it: {error}")]
    found = list(_wrong_options(tree, path))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # noqa: PT018 - a file with this suffix has both
    module = importlib.util.module_from_spec(spec)
    module.__dict__["spark"] = _NoSpark()
    was, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        # Any error: it is the user's code.
        frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = frames[-1].lineno if frames else None
        text = sentence_of(error) if isinstance(error, PySparkException) else f"{type(error).__name__}: {error}"
        found.append(Problem(path, line or 1, text))
    finally:
        sys.dont_write_bytecode = was
    return found


def _wrong_options(tree: ast.AST, path: pathlib.Path) -> Iterator[Problem]:
    """Options of reading topics whose names are written out and are none."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _reads_topics(node):
            for name in _option_names(node):
                try:
                    OptionReader({name: "x"}, READING, "reading topics", IGNORED)
                except OrbitMQError as error:
                    yield Problem(path, node.lineno, str(error))


def _reads_topics(node: ast.Call) -> bool:
    """True for ``topic(…)`` and ``spark.readStream.format("orbitmq")….option(…)``."""
    if isinstance(node.func, ast.Name):
        return node.func.id in _FUNCTIONS
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in _READERS:
        return False
    chain = list(_chain(node))
    return any(attr in {"read", "readStream"} for attr, _ in chain) and FORMAT in _formats(chain)


def _chain(node: ast.expr) -> Iterator[tuple[str, ast.Call | None]]:
    """The attributes and calls of ``a.b(…).c(…)``, from the last one back."""
    current: ast.expr = node
    while True:
        call = current if isinstance(current, ast.Call) else None
        inner = call.func if call is not None else current
        if not isinstance(inner, ast.Attribute):
            return
        yield inner.attr, call
        current = inner.value


def _formats(chain: list[tuple[str, ast.Call | None]]) -> set[object]:
    return {
        argument.value
        for attr, call in chain
        if attr == "format" and call is not None
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }


def _option_names(node: ast.Call) -> list[str]:
    own = {"key", "value", "name", "schema"}
    names = [word.arg for word in node.keywords if word.arg is not None and word.arg not in own]
    first = node.args[0] if node.args else None
    if isinstance(node.func, ast.Attribute) and isinstance(first, ast.Constant) and isinstance(first.value, str):
        names.append(first.value)
    return names


@contextlib.contextmanager
def _within(folder: pathlib.Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
