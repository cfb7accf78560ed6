"""Spark: every topic and every store directory is a DataFrame.

Here belong the data sources (formats ``orbitmq`` and ``orbitmq-store``), the sink, and what Spark jobs need around
them. They stand on ``client`` and ``store``; nothing here knows a broker from the inside. The modules
``pyspark_orbitmq`` and ``pyspark_orbitmq_store`` beside this package are what Spark finds by their names.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from orbitmq.spark.dedup import deduplicated
    from orbitmq.spark.pipelines.archive.directory import Archive
    from orbitmq.spark.pipelines.archive.job import archive
    from orbitmq.spark.pipelines.audit.job import audit
    from orbitmq.spark.pipelines.migrate.job import migrate
    from orbitmq.spark.pipelines.rebuild.job import rebuild
    from orbitmq.spark.pipelines.replay.job import replay
    from orbitmq.spark.pipelines.sql.views import register_topics, topic_view
    from orbitmq.spark.pipelines.telling import Summary
    from orbitmq.spark.spark_session import session

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
    "Summary": "pipelines.telling",
    "archive": "pipelines.archive.job",
    "audit": "pipelines.audit.job",
    "deduplicated": "dedup",
    "migrate": "pipelines.migrate.job",
    "rebuild": "pipelines.rebuild.job",
    "register_topics": "pipelines.sql.views",
    "replay": "pipelines.replay.job",
    "session": "spark_session",
    "topic_view": "pipelines.sql.views",
}


def __getattr__(name: str) -> object:
    """Load what is asked for, and only then: Spark imports this package in each of its processes."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found
