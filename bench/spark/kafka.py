"""The Spark that can talk to Apache Kafka, in an environment of its own.

Spark's Kafka connector has to be of Spark's version, and 4.0.0 is the newest of which Maven Central has every part.
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path

from peers import kafka
from peers.cache import filled
from peers.jdk import Jars, first_error
from peers.process import PeerError, run

SPARK_VERSION = "4.0.0"

_CONNECTOR_JARS = Jars("spark-kafka", Path(__file__).with_name("connector.pom.xml"))
_ENVIRONMENT = f"spark-{SPARK_VERSION}-{sys.implementation.cache_tag}"
_INSTALL_SECONDS = 900


@functools.cache
def unavailable() -> str | None:
    """None if Kafka and its Spark can be run here, otherwise the reason in one sentence. It fetches them."""
    if reason := kafka.unavailable() or _CONNECTOR_JARS.unavailable("Kafka"):
        return reason
    try:
        interpreter()
    except PeerError as error:
        return f"pyspark {SPARK_VERSION} could not be installed: {first_error(str(error))}"
    return None


def interpreter() -> Path:
    """A Python with the pyspark that the connector is for, made once."""

    def install(folder: Path) -> None:
        run([sys.executable, "-m", "venv", str(folder / "venv")], environment={}, seconds=_INSTALL_SECONDS)
        pip = [str(folder / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        run([*pip, f"pyspark=={SPARK_VERSION}"], environment={}, seconds=_INSTALL_SECONDS)

    return filled(_ENVIRONMENT, install) / "venv" / "bin" / "python"


def connector_jars() -> str:
    """The connector and what it needs, as Spark's ``spark.jars`` takes them."""
    return ",".join(str(jar) for jar in sorted(_CONNECTOR_JARS.folder().glob("*.jar")))
