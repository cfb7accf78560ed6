"""Every Python example of the documents about Spark runs, one after the other, in the session of the ring."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from orbitmq import Message, Producer
from support.cli.documentation import ADDRESS, about_spark, examples_of
from support.spark.spark_harness import server

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

DOCUMENTS = about_spark()

PATIENCE = 240

_RELATIVE = re.compile(r'"((?:archive|checkpoints)\b)')


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "server"


@pytest.fixture
def address(home: Path) -> Iterator[str]:
    """A server of its own, so that the documents may call their topics as they like."""
    home.mkdir()
    with server(home) as found:
        yield found


def send_orders(address: str) -> None:
    with Producer(address, group="harness") as producer:
        for number in range(20):
            body = json.dumps({"id": number, "amount": number})
            producer.send(Message("orders", body, tags="paid" if number % 2 else "refunded", keys=str(number)))


@pytest.mark.timeout(PATIENCE)
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_the_examples_of_a_document_run(
    document: Path,
    spark: SparkSession,
    address: str,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    send_orders(address)
    names: dict[str, object] = {"__name__": "__main__", "spark": spark, "store": str(store_of(home))}
    try:
        for example in examples_of(document):
            if not example.skipped:
                code = example.code.replace(ADDRESS, address)
                # A path without a folder is where Spark was started, which is not here.
                code = _RELATIVE.sub(rf'"{tmp_path}/\1', code)
                exec(compile(code, str(example), "exec", dont_inherit=True), names)
    finally:
        for query in spark.streams.active:
            query.stop()


def store_of(home: Path) -> Path:
    """The directory that holds the commit log of the server at home there."""
    return next(home.glob("**/commitlog")).parent
