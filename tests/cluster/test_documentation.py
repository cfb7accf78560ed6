"""Every Python example of the README and of docs/ runs, against a cluster of its own."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest

from orbitmq import LitePullConsumer, Message
from support.cli.documentation import ROOT, Example, examples, examples_of

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.testing import ThreadCluster

PATIENCE = 60.0
"""Seconds for an example, on a machine with other things to do."""

STATES = ("paid", "refunded", "shipped", "cancelled")


def order(topic: str, number: int) -> Message:
    """A message as the documents know them."""
    return Message(
        topic,
        json.dumps({"id": number, "amount": number + 5}),
        tags=STATES[number % len(STATES)],
        keys=[str(number)],
        properties={"amount": str(number + 5)},
    )


def prepare(cluster: ThreadCluster, example: Example) -> None:
    """Send messages to the topics of an example, and let its groups be as if they had begun and were behind."""
    if example.is_test:
        return
    producer = cluster.producer(group="harness")
    for topic in example.topics:
        for number in range(8):
            producer.send(order(topic, number))
        for group in example.groups:
            with LitePullConsumer(cluster.name_server, group=group) as reader:
                reader.commit(dict.fromkeys(reader.fetch_message_queues(topic), 0))


@pytest.mark.parametrize("example", examples(), ids=str)
def test_an_example_runs(example: Example, orbitmq: ThreadCluster, tmp_path: Path) -> None:
    if example.skipped:
        pytest.skip(example.skipped)
    prepare(orbitmq, example)
    process = example.start(tmp_path, orbitmq.name_server)
    ends = {0}
    try:
        if example.is_endless:
            for group in example.groups:
                orbitmq.wait_until_consumed(group, PATIENCE)
            process.send_signal(signal.SIGINT)
            ends |= {-signal.SIGINT, 128 + signal.SIGINT}
        said, _ = process.communicate(timeout=PATIENCE)
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        process.kill()
        pytest.fail(f"{example} does not end: {error}\n{process.communicate()[0]}")
    finally:
        process.kill()
        process.wait()
    assert process.returncode in ends, said
    assert "Exception ignored" not in said, said


def test_examples_are_found_with_their_notes(tmp_path: Path) -> None:
    document = tmp_path / "a.md"
    document.write_text(
        "text\n\n```python\none\n```\n\n<!-- example: given producer -->\n\n```python\ntwo\nthree\n```\n"
        "<!-- example: skip, it shows a signature -->\n```python\nfour\n```\n```sh\nfive\n```\n"
    )
    found = examples_of(document)
    assert [(one.line, one.code, one.note) for one in found] == [
        (4, "one\n", ""),
        (10, "two\nthree\n", "given producer"),
        (15, "four\n", "skip, it shows a signature"),
    ]
    assert [one.skipped for one in found] == ["", "", "it shows a signature"]
    assert str(found[1]) == "a.md:10"


def test_a_note_leads_to_a_block() -> None:
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        notes = re.findall(r"<!-- example: (.*?) -->", document.read_text("utf-8"))
        assert notes == [one.note for one in examples_of(document) if one.note], document.name


def test_links_between_documents_lead_somewhere() -> None:
    for document in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", document.read_text("utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
