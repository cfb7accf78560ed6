"""Commands whose extra is missing, and Ctrl-C while modules load: one sentence, no traceback."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

BLOCKED = """
import sys
for name in ("pyspark", "pyarrow", "sqlalchemy", "yaml", "pandas"):
    sys.modules[name] = None
sys.argv = ["orbitmq", *sys.argv[1:]]
from orbitmq.cli import main
main()
"""

SLOW = """
import importlib.abc, os, signal, sys
awaited = sys.argv[1]
class Interrupting(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == awaited:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.argv[1:] = ["send", "orders", "hello", "-n", "127.0.0.1:1"]
from orbitmq.cli import main
main()
"""


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["sql", "select 1"], "pipelines"),
        (["outbox", "status", "--url", "sqlite://"], "sql"),
        (["pipeline", "init", "p"], "cli"),
        (["pipeline", "validate"], "pipelines"),
        (["pipeline", "run"], "cli"),
        (["pipeline", "archive", "--topics", "t", "--to", "x"], "pipelines"),
    ],
)
def test_a_missing_extra_is_one_sentence_with_the_way_to_install_it(
    arguments: list[str], extra: str, tmp_path: object
) -> None:
    command = [sys.executable, "-c", BLOCKED, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, cwd=str(tmp_path))
    assert done.returncode in {1, 2}
    assert "Traceback" not in done.stderr
    assert "pip install" in done.stderr, done.stderr
    assert f"orbitmq[{extra}]" in done.stderr or "orbitmq[spark]" in done.stderr, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize("module", ["typer", "orbitmq.client.producer.producer"])
def test_ctrl_c_while_modules_load_is_one_sentence(module: str) -> None:
    """Also in the middle of extension modules, which turn a KeyboardInterrupt into an ImportError."""
    command = [sys.executable, "-c", SLOW, module]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (128 + signal.SIGINT, "orbitmq: interrupted\n")
