"""Spark: every topic and every store directory is a DataFrame.

The data sources (formats ``orbitmq`` and ``orbitmq-store``), the sink, and the Spark jobs of ``orbitmq pipeline``.
They use ``client`` and ``store``, never ``broker``. Spark finds the formats by the names of the modules
``pyspark_orbitmq`` and ``pyspark_orbitmq_store`` beside this package.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.spark.pipelines.archive.directory import Archive
    from orbitmq.spark.pipelines.archive.job import archive
    from orbitmq.spark.pipelines.audit.job import audit
    from orbitmq.spark.pipelines.migrate.job import migrate
    from orbitmq.spark.pipelines.progress import Summary
    from orbitmq.spark.pipelines.rebuild.job import rebuild
    from orbitmq.spark.pipelines.replay.job import replay
    from orbitmq.spark.pipelines.sql.views import register_topics, topic_view
    from orbitmq.spark.sessions.session import session
    from orbitmq.spark.topic_source.dedup import deduplicated

if "PYSPARK_PYTHON" not in os.environ:
    # Spark finds formats with the interpreter of this variable, otherwise with the first python3 of the PATH. If a
    # virtual environment is not activated that one lacks this package. A running JVM does not see it.
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)

__all__ = [
    "Archive",
    "Summary",
    "archive",
    "audit",
    "deduplicated",
    "migrate",
    "rebuild",
    "register_topics",
    "replay",
    "session",
    "topic_view",
]

_MODULES = {
    "Archive": "pipelines.archive.directory",
    "Summary": "pipelines.progress",
    "archive": "pipelines.archive.job",
    "audit": "pipelines.audit.job",
    "deduplicated": "topic_source.dedup",
    "migrate": "pipelines.migrate.job",
    "rebuild": "pipelines.rebuild.job",
    "register_topics": "pipelines.sql.views",
    "replay": "pipelines.replay.job",
    "session": "sessions.session",
    "topic_view": "pipelines.sql.views",
}


def __getattr__(name: str) -> object:
    """Load a name at its first use: Spark imports this package in each of its processes."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found
