"""A declarative pipeline on disk: its spec file with the lines of mistakes, and its definition files."""

from __future__ import annotations

import dataclasses
import glob
import pathlib
from typing import Any

import yaml

from orbitmq.spark.pipelines.spark_job import PipelineError

SPEC_NAMES = ("spark-pipeline.yml", "spark-pipeline.yaml")
KEYS = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
REQUIRED = ("name", "storage")
SUFFIXES = (".py", ".sql")


@dataclasses.dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A mistake in a pipeline: its location, and one sentence."""

    file: pathlib.Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@dataclasses.dataclass(frozen=True, slots=True)
class Project:
    """A pipeline as its spec file describes it, as far as that can be read."""

    spec: pathlib.Path
    name: str
    storage: str
    files: tuple[pathlib.Path, ...]
    """What defines it, in the order in which Spark reads it."""
    problems: tuple[Problem, ...]

    @property
    def folder(self) -> pathlib.Path:
        return self.spec.parent


def find_spec(given: pathlib.Path | None = None) -> pathlib.Path:
    """The spec file that is named, or that of a folder, or of this folder or one above. Raises PipelineError."""
    if given is not None and not given.exists():
        raise PipelineError(f"{given} does not exist")
    if given is not None and given.is_file():
        return given.resolve()
    start = (given or pathlib.Path.cwd()).resolve()
    for folder in (start, *(() if given else start.parents)):
        found = [folder / name for name in SPEC_NAMES if (folder / name).is_file()]
        if len(found) > 1:
            raise PipelineError(f"{folder} has both {SPEC_NAMES[0]} and {SPEC_NAMES[1]}: keep one of them")
        if found:
            return found[0]
    raise PipelineError(f"there is no {SPEC_NAMES[0]} in {start}: 'orbitmq pipeline init NAME' makes a project")


def read_project(spec: pathlib.Path) -> Project:
    """Read a spec file; mistakes in it are ``problems``. Raises PipelineError if it cannot be read."""
    try:
        text = spec.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PipelineError(f"{spec} cannot be read: {error}") from error
    return _Reading(spec).project(text)


class _Reading:
    def __init__(self, spec: pathlib.Path) -> None:
        self._spec = spec
        self._problems: list[Problem] = []

    def project(self, text: str) -> Project:
        values = self._values(text)
        name, storage = values.get("name"), values.get("storage")
        files = self._files(values.get("libraries") or [])
        return Project(
            self._spec,
            str(name) if name is not None else "",
            str(storage) if storage is not None else "",
            files,
            tuple(self._problems),
        )

    def _wrong(self, node: yaml.Node | None, text: str) -> None:
        line = 1 if node is None else node.start_mark.line + 1
        self._problems.append(Problem(self._spec, line, text))

    def _values(self, text: str) -> dict[str, Any]:
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
            values = yaml.safe_load(text)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            what = getattr(error, "problem", None) or str(error)
            line = 1 if mark is None else mark.line + 1
            self._problems.append(Problem(self._spec, line, f"this is not YAML: {what}"))
            return {}
        if not isinstance(root, yaml.MappingNode):
            self._wrong(root, f"a spec is a table of {', '.join(KEYS)}")
            return {}
        nodes = {str(key.value): (key, value) for key, value in root.value}
        for name, (key, _) in nodes.items():
            if name not in KEYS:
                self._wrong(key, f"Spark knows no {name!r} in a spec: there are {', '.join(KEYS)}")
        for name in REQUIRED:
            if not isinstance(values.get(name), str):
                self._wrong(nodes[name][1] if name in nodes else root, f"{name!r} is missing, or is not text")
        if isinstance(values.get("storage"), str) and ":/" not in values["storage"]:
            self._wrong(nodes["storage"][1], "storage is an absolute URI, such as file:///var/lib/pipeline")
        self._check_configuration(nodes)
        return {name: values[name] for name in nodes if self._is_usable(name, values[name], nodes[name][1])}

    def _check_configuration(self, nodes: dict[str, tuple[yaml.Node, yaml.Node]]) -> None:
        if "configuration" not in nodes:
            return
        table = nodes["configuration"][1]
        if not isinstance(table, yaml.MappingNode):
            self._wrong(table, "configuration is a table of Spark's settings")
            return
        for key, value in table.value:
            if value.tag != "tag:yaml.org,2002:str":
                self._wrong(value, f'the value of {key.value} has to be text: write it in quotes, "{value.value}"')

    def _is_usable(self, name: str, value: Any, node: yaml.Node) -> bool:
        if name != "libraries":
            return True
        globs = [one.get("glob") if isinstance(one, dict) else None for one in value or []]
        if not isinstance(value, list) or not all(
            isinstance(one, dict) and isinstance(one.get("include"), str) for one in globs
        ):
            self._wrong(node, "libraries is a list of 'glob: {include: path}'")
            return False
        for one in globs:
            pattern = one["include"]  # type: ignore[index]
            if glob.has_magic(pattern.removesuffix("/**")):
                self._wrong(node, f"{pattern!r} cannot be included: it is the path of a file, or a folder with /**")
                return False
        return True

    def _files(self, libraries: list[dict[str, dict[str, str]]]) -> tuple[pathlib.Path, ...]:
        found: dict[pathlib.Path, None] = {}
        for one in libraries:
            pattern = one["glob"]["include"]
            some = [
                path
                for path in self._spec.parent.glob(f"{pattern}/*" if pattern.endswith("/**") else pattern)
                if path.is_file() and "__pycache__" not in path.parts
            ]
            if not some:
                self._wrong(None, f"no file is included by {pattern!r}")
            found.update(dict.fromkeys(some))
        for path in found:
            if path.suffix not in SUFFIXES:
                self._problems.append(Problem(path, 1, "Spark takes only .py and .sql files as definitions"))
        return tuple(path for path in found if path.suffix in SUFFIXES)
