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
    from orbitmq.spark.spark_session import session

__all__ = ["deduplicated", "session"]

_MODULES = {
    "deduplicated": "dedup",
    "session": "spark_session",
}


def __getattr__(name: str) -> object:
    """Load what is asked for, and only then: Spark imports this package in each of its processes."""
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = found
    return found
