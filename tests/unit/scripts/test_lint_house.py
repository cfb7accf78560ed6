"""The house lint, on a small repository in a temporary folder."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from types import ModuleType

SCRIPT = Path(__file__).parents[3] / "scripts/lint_house.py"


@pytest.fixture(scope="module")
def lint() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lint_house", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class House:
    """A repository with one source file, and its limits."""

    def __init__(self, lint: ModuleType, folder: Path) -> None:
        self._lint = lint
        self.root = folder / "house"
        self.limits = folder / "limits.json"
        self.root.joinpath("src").mkdir(parents=True)
        self.root.joinpath("docs").mkdir()

    def write(self, text: str) -> None:
        self.root.joinpath("src/room.py").write_text(text)

    def document(self, text: str, name: str = "page.md") -> None:
        self.root.joinpath("docs", name).write_text(text)

    def check(self, *arguments: str) -> int:
        result: int = self._lint.main(["--root", str(self.root), "--limits", str(self.limits), *arguments])
        return result

    def limit(self, *keys: str) -> Any:
        value = json.loads(self.limits.read_text())
        for key in keys:
            value = value[key]
        return value


@pytest.fixture
def house(lint: ModuleType, tmp_path: Path) -> House:
    house = House(lint, tmp_path)
    house.write('"""A room."""\n\n\ndef enter(door: int) -> None:\n    del door\n')
    assert house.check("--tighten") == 0
    return house


def test_an_unchanged_repository_passes(house: House) -> None:
    assert house.check() == 0


@pytest.mark.parametrize(
    "text",
    [
        "said = 1\n",
        "class KernelLanes: ...\n",
        "MOST_BYTES = 4096\n",
        "def open_lanes() -> None: ...\n",
        "# sent on its\tway to a broker\n",
    ],
)
def test_a_word_to_avoid_fails_in_prose_and_identifiers(
    house: House, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    house.write(text)
    assert house.check() == 1
    assert "docs/glossary.md" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["almost = 1\n", "# the Linux kernel\n", "plane = 1\n", "MOSTLY = 1\n"])
def test_words_that_only_contain_one_pass(house: House, text: str) -> None:
    house.write(text)
    assert house.check() == 0


def test_words_of_documents_are_counted_apart_and_those_of_the_glossary_not(house: House) -> None:
    house.document("nobody\n", "glossary.md")
    assert house.check() == 0
    house.document("nobody\n")
    assert house.check() == 1


def test_a_log_message_is_found_in_its_call(lint: ModuleType) -> None:
    import ast

    tree = ast.parse('log.warning("%s is told", name)\nlog.info(f"lost {name} anew")\nprint("told")\n')
    assert list(lint.log_messages(tree)) == ["%s is told", "lost ", " anew"]


def test_a_longer_function_and_more_parameters_fail_by_name(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    house.write("def enter(door: int, key: int) -> None:\n    del door\n    del key\n")
    assert house.check() == 1
    errors = capsys.readouterr().err
    assert "parameters of a function: 2 > 1: src/room.py:1 enter" in errors
    assert "lines of a function: 3 > 2: src/room.py:1 enter" in errors


def test_tightening_lowers_limits_and_never_raises_them(house: House) -> None:
    house.write("def enter() -> None: ...\n")
    assert house.check("--tighten") == 0
    assert house.limit("sizes", "src: parameters of a function") == 0
    house.write("def enter(told: int) -> None: ...\n")
    assert house.check("--tighten") == 1
    assert house.limit("sizes", "src: parameters of a function") == 0
    assert house.limit("words", "told", "src") == 0
