"""The examples of docs/grpc.md run as they are, but for the address and the names of topic and group."""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.grpc.grpc_servers import grpc_servers, unavailable
from peers.grpc import clients
from peers.grpc.clients import GO, JAVA, LANGUAGES, NODE, PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.grpc.grpc_servers import Servers

PAGE = Path(__file__).parents[3] / "docs" / "grpc.md"
FENCES = {PYTHON: "python", JAVA: "java", NODE: "js", GO: "go"}
FILES = {PYTHON: "example.py", JAVA: "Example.java", NODE: "example.js", GO: "main.go"}
SECONDS = 150


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    if reason := unavailable():
        pytest.skip(reason)
    with grpc_servers(tmp_path_factory.mktemp("grpc-examples")) as running:
        yield running


def example(language: str, servers: Servers, folder: Path) -> Path:
    found = re.findall(rf"```{FENCES[language]}\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert len(found) == 1, f"{len(found)} examples in {language}"
    text = found[0].replace("127.0.0.1:8081", servers.endpoints)
    text = text.replace('orders"', f'orders-{language}"').replace("orders'", f"orders-{language}'")
    text = text.replace('billing"', f'billing-{language}"').replace("billing'", f"billing-{language}'")
    folder.mkdir(parents=True)
    file = folder / FILES[language]
    file.write_text(text, "utf-8")
    return file


def run(language: str, servers: Servers, home: Path) -> str:
    """The output of the example."""
    servers.create_topic(f"orders-{language}")
    servers.create_group(f"billing-{language}")
    file = example(language, servers, home / "example")
    command, environment = clients.program(language, file)
    done = subprocess.run(
        command, cwd=file.parent, env={**environment, "HOME": str(home)}, capture_output=True, text=True,
        timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"{language}: {done.stdout[-500:]} {done.stderr[-1500:]}"
    return done.stdout


def test_every_example_sends_a_message_and_receives_it(servers: Servers, tmp_path: Path) -> None:
    languages = [language for language in LANGUAGES if clients.unavailable(language) is None]
    if not languages:
        pytest.skip("no client can be run here")
    with ThreadPoolExecutor(len(languages)) as pool:
        outputs = dict(
            zip(languages, pool.map(lambda one: run(one, servers, tmp_path / one), languages), strict=True)
        )
    for language, output in outputs.items():
        assert re.search(r"received .*42", output), f"{language}: {output}"
    shutil.rmtree(tmp_path, ignore_errors=True)
