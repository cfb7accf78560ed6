"""Topics in the definition files of declarative pipelines: as streams, as tables, and as sinks.

    from orbitmq.spark.declarative import topic, topic_sink

In a definition file the session exists already and cannot be changed; these functions only use it. The name server
is given once, by ``orbitmq pipeline run --nameserver`` or NAMESRV_ADDR, and written into the options of each topic,
so that tasks on other machines have it too.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from orbitmq.spark.errors import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_NAME_SERVER = "127.0.0.1:9876"


def topic(name: str, *, nameserver: str | None = None, schema: str | None = None, **options: object) -> DataFrame:
    """A topic as a stream, from its oldest message on, with the options of ``format("orbitmq")``.

    With ``schema`` (``"user string, at timestamp"``) the columns are the fields of JSON bodies. Raises OptionError.
    """
    return _read(name, nameserver, schema, {"startingOffsets": "earliest", **options}, is_stream=True)


def topic_now(
    name: str, *, nameserver: str | None = None, schema: str | None = None, **options: object
) -> DataFrame:
    """All messages that a topic has now, for materialized views."""
    return _read(name, nameserver, schema, options, is_stream=False)


def topic_sink(name: str, topic: str | None = None, *, nameserver: str | None = None, **options: object) -> None:
    """Make a sink that writes to a topic, for ``@dp.append_flow(target=name)``.

    Rows have the columns of the sink: ``body`` at least, and ``tags``, ``keys``, ``properties`` and others.
    """
    from pyspark import pipelines  # noqa: PLC0415 - only where pipelines are defined

    given = {"nameserver": _name_server(nameserver), "topic": topic or name, **_texts(options)}
    pipelines.create_sink(name, "orbitmq", given)


def _read(
    name: str, nameserver: str | None, schema: str | None, options: dict[str, object], *, is_stream: bool
) -> DataFrame:
    from pyspark.sql import SparkSession  # noqa: PLC0415

    spark = SparkSession.active()
    reader = spark.readStream if is_stream else spark.read
    given = {"nameserver": _name_server(nameserver), "subscribe": name, **_texts(options)}
    if schema is not None:
        reader = reader.schema(schema)
        given.setdefault("bodyFormat", "json")
    return reader.format("orbitmq").options(**given).load()


def _name_server(given: str | None) -> str:
    return given or os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER


def _texts(options: dict[str, object]) -> dict[str, str]:
    for name, value in options.items():
        if not isinstance(value, str | int | float):
            raise OptionError(f"the option {name} is text, a number, true or false, not {type(value).__name__}")
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
