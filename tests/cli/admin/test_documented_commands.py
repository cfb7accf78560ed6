"""The commands of docs/admin-command.md run, one after the other, as a reader would type them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from support.cli.documented_commands import commands_of
from support.paths import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

    from support.cli.operator_shell import Shell

ADDRESS = "127.0.0.1:9876"
NOTHING_FOUND = 3


def test_the_commands_of_the_page_work(shell: Shell, tmp_path: Path) -> None:
    text = (PROJECT / "docs" / "admin-command.md").read_text("utf-8")
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        for line, words in commands_of(text):
            if words[0] != "orbitmq":
                continue
            typed = [word.replace(ADDRESS, shell.name_server) for word in words[1:]]
            ran = shell.run(*typed)
            may_find_nothing = typed[:2] == ["message", "query"] and ran.code == NOTHING_FOUND
            assert ran.code == 0 or may_find_nothing, f"line {line}: {' '.join(words)}: {ran.err}"
    finally:
        os.chdir(before)
