#!/usr/bin/env python3
"""House lint: sizes of folders, files, functions and constructors, and words that the glossary advises against.

Prints a table of each and compares it with the limits in ``scripts/house_limits.json``. The limits are the maxima
of the day they were written, so the lint fails only where something got worse; ``--tighten`` lowers them to what is
measured now and never raises one. A limit that has to grow is changed by hand, with the reason in the commit.
"""

from __future__ import annotations

import argparse
import ast
import collections
import functools
import heapq
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LIMITS = Path(__file__).with_name("house_limits.json")

SOURCES = ("src", "bench", "scripts")
DOCUMENTS = ("docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md")
SUFFIXES = (".py", ".pyi", ".c", ".h", ".go", ".java", ".md")
GLOSSARY = "docs/glossary.md"
LOG_METHODS = frozenset({"debug", "info", "warning", "error", "exception", "critical"})

WORDS = (
    "anew", "asked", "hasty", "heard", "kernel", "lane", "mend", "mended", "nobody", "owe", "owed", "parked",
    "piece", "pile", "said", "shown", "signpost", "somebody", "taker", "taking", "told", "whoever", "wish",
)  # fmt: skip
"""Single words; ``lanes``, ``KernelLanes``, ``open_lane`` and ``LANES`` count as ``lane``."""

PREFIXES = ("FARTHEST_", "LEAST_", "LONGEST_", "MOST_")
"""Of constants, which begin with ``MAX_`` and ``MIN_`` instead."""

PHRASES = ("general path", "held against", "in step", "is no", "on its way", "on their way", "turn of the loop")

OPENINGS = "docstrings that begin with What, Who, Whether or How"

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
CONSTANT = re.compile(rf"(?<![A-Za-z])({'|'.join(PREFIXES)})(?=[A-Z])")
PHRASE = re.compile(rf"\b({'|'.join(PHRASES)})\b".replace(" ", r"\s+"), re.IGNORECASE)
LINUX = re.compile(r"\bLinux(?:'s)? kernel\b")
OPENING = re.compile(r"(What|Who|Whether|How)\b")

PRINTED = 3
"""Of each kind, the largest few."""


class Measured(NamedTuple):
    """A size, and where it is."""

    value: int
    where: str


Sizes = dict[str, list[Measured]]
"""By kind, the largest ones first."""

Counts = dict[str, dict[str, int]]
"""By word, by area: src, docs, tests, logs."""


def files_of(root: Path, folders: Iterable[str]) -> Iterator[Path]:
    for name in folders:
        path = root / name
        found = sorted(path.rglob("*")) if path.is_dir() else [path]
        yield from (file for file in found if file.suffix in SUFFIXES and file.is_file())


def sizes(root: Path) -> Sizes:
    found: dict[str, list[Measured]] = collections.defaultdict(list)

    def measure(kind: str, value: int, where: str) -> None:
        found[kind].append(Measured(value, where))

    for area in ("src", "tests"):
        in_folder: collections.Counter[Path] = collections.Counter()
        for path in files_of(root, (area,)):
            where = str(path.relative_to(root))
            text = path.read_text(encoding="utf-8")
            in_folder[path.parent] += path.name != "__init__.py"
            measure(f"{area}: lines of a file", text.count("\n"), where)
            if path.suffix == ".py":
                _measure_functions(area, ast.parse(text), where, measure)
        for folder, count in in_folder.items():
            measure(f"{area}: files in a folder", count, str(folder.relative_to(root)))
    return {kind: heapq.nlargest(PRINTED, values) for kind, values in sorted(found.items())}


def _measure_functions(area: str, tree: ast.Module, where: str, measure: Callable[[str, int, str], None]) -> None:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            place = f"{where}:{node.lineno} {node.name}"
            arguments = node.args
            names = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
            count = len([name for name in names if name.arg not in {"self", "cls"}])
            measure(f"{area}: lines of a function", (node.end_lineno or node.lineno) - node.lineno + 1, place)
            if area == "src":
                kind = "constructor" if node.name == "__init__" else "function"
                measure(f"{area}: parameters of a {kind}", count, place)


def words_of(text: str) -> collections.Counter[str]:
    """Words, prefixes and phrases to avoid in a text, in identifiers too."""
    text = LINUX.sub("", text)
    counts: collections.Counter[str] = collections.Counter()
    for identifier, number in collections.Counter(re.findall("[A-Za-z]+", text)).items():
        for word in _words_to_avoid(identifier):
            counts[word] += number
    counts.update(CONSTANT.findall(text))
    counts.update(re.sub(r"\s+", " ", phrase).lower() for phrase in PHRASE.findall(text))
    return counts


@functools.cache
def _words_to_avoid(identifier: str) -> tuple[str, ...]:
    words = (word.lower() for word in WORD.findall(identifier))
    return tuple(word.removesuffix("s") for word in words if word.removesuffix("s") in WORDS)


def counts(root: Path) -> Counts:
    areas: dict[str, collections.Counter[str]] = {}
    areas["src"] = _count(files_of(root, SOURCES), root)
    areas["docs"] = _count(files_of(root, DOCUMENTS), root)
    areas["tests"] = _count(files_of(root, ("tests",)), root)
    areas["logs"] = collections.Counter()
    for path in files_of(root, ("src",)):
        if path.suffix != ".py":
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for message in log_messages(tree):
            areas["logs"] += words_of(message)
        areas["src"][OPENINGS] += sum(bool(OPENING.match(text)) for text in docstrings(tree))
    words = (*WORDS, *PREFIXES, *PHRASES, OPENINGS)
    return {word: {area: found[word] for area, found in areas.items()} for word in words}


def _count(files: Iterable[Path], root: Path) -> collections.Counter[str]:
    counts: collections.Counter[str] = collections.Counter()
    for path in files:
        if str(path.relative_to(root)) != GLOSSARY and path != Path(__file__):
            counts += words_of(path.read_text(encoding="utf-8"))
    return counts


def log_messages(tree: ast.Module) -> Iterator[str]:
    """The string constants in the first argument of calls such as ``_log.warning("...")``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in LOG_METHODS:
            for argument in node.args[:1]:
                parts = (part for part in ast.walk(argument) if isinstance(part, ast.Constant))
                yield from (part.value for part in parts if isinstance(part.value, str))


def docstrings(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).parent.parent, help="the repository")
    parser.add_argument("--limits", type=Path, default=LIMITS, help="JSON file of the limits")
    parser.add_argument("--tighten", action="store_true", help="lower the limits to what is measured now")
    options = parser.parse_args(arguments)
    root = options.root.resolve()
    limits = json.loads(options.limits.read_text(encoding="utf-8")) if options.limits.exists() else {}
    measured, found = sizes(root), counts(root)
    worse = [*_print_sizes(measured, limits.get("sizes", {})), *_print_words(found, limits.get("words", {}))]
    if options.tighten:
        options.limits.write_text(_tightened(measured, found, limits), encoding="utf-8")
    for line in worse:
        print(f"house: {line}", file=sys.stderr)
    return 1 if worse else 0


def _print_sizes(measured: Sizes, limits: dict[str, int]) -> Iterator[str]:
    print(f"{'largest':30} {'now':>5} {'limit':>6}")
    for kind, largest in measured.items():
        limit = limits.get(kind, largest[0].value)
        for value, where in largest:
            print(f"{kind:30} {value:5} {limit:6}  {where}")
            if value > limit:
                yield f"{kind}: {value} > {limit}: {where}"


def _print_words(found: Counts, limits: dict[str, dict[str, int]]) -> Iterator[str]:
    areas = list(next(iter(found.values())))
    print(f"\n{'words to avoid (now/limit)':58}" + "".join(f"{area:>12}" for area in areas))
    for word, by_area in found.items():
        allowed = {area: limits.get(word, {}).get(area, count) for area, count in by_area.items()}
        if any(by_area.values()) or any(allowed.values()):
            print(f"{word:58}" + "".join(f"{f'{by_area[area]}/{allowed[area]}':>12}" for area in areas))
        for area, count in by_area.items():
            if count > allowed[area]:
                yield f'"{word}" in {area}: {count} > {allowed[area]} (see {GLOSSARY})'
    totals = {area: sum(by_area[area] for by_area in found.values()) for area in areas}
    print(f"{'all':58}" + "".join(f"{totals[area]:>12}" for area in areas))


def _tightened(measured: Sizes, found: Counts, limits: dict[str, Any]) -> str:
    old_sizes, old_words = limits.get("sizes", {}), limits.get("words", {})
    new_sizes = {kind: _lower(old_sizes.get(kind), largest[0].value) for kind, largest in measured.items()}
    new_words = {
        word: {area: _lower(old_words.get(word, {}).get(area), count) for area, count in by_area.items()}
        for word, by_area in found.items()
    }
    return json.dumps({"sizes": new_sizes, "words": new_words}, indent=2) + "\n"


def _lower(old: int | None, now: int) -> int:
    return now if old is None else min(old, now)


if __name__ == "__main__":
    sys.exit(main())
