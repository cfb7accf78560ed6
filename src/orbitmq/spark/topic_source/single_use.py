"""The guard of ``pushFilters=once``: a DataFrame that was read with filters is refused in a second query.

Spark plans the reads of a DataFrame once, with the filters of its first use. A second query would get the rows that
those filters left, and planning it calls no Python. So its tasks check: each task knows the number of its query,
and a file per plan on each machine has the number of the query that the plan was made for.
"""

from __future__ import annotations

import os
import secrets
import tempfile
import time

from pyspark import TaskContext

from orbitmq.spark.errors import SparkSourceError

EXECUTION = "spark.sql.execution.id"
FOLDER = f"orbitmq-spark-{os.getuid()}"
MAX_AGE_SECONDS = 7 * 86400.0
"""A file that is older belongs to an application that has ended."""


def new_plan_id() -> str:
    """A random name for one plan of a DataFrame."""
    return secrets.token_hex(16)


def check_single_use(plan_id: str) -> None:
    """Called by each task of a plan. Raises SparkSourceError in a second query."""
    context = TaskContext.get()
    execution = None if context is None else context.getLocalProperty(EXECUTION)
    if execution is None:
        return  # Not a query of Spark SQL: the reader is used without Spark, or by DataFrame.rdd.
    first = _first_execution(plan_id, execution)
    if first != execution:
        raise SparkSourceError(
            "this DataFrame was read with pushFilters=once and is used a second time, where rows would be missing: "
            "load it again for each query, or leave pushFilters out"
        )


def _first_execution(plan_id: str, execution: str) -> str:
    """The query that used a plan first on this machine, which may be this one."""
    folder = os.path.join(tempfile.gettempdir(), FOLDER)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    path = os.path.join(folder, plan_id)
    if not os.path.exists(path):
        _remove_old(folder)
        own = f"{path}.{secrets.token_hex(4)}"
        with open(own, "w", encoding="ascii") as file:
            file.write(execution)
        try:
            os.link(own, path)
        except FileExistsError:
            pass  # Another task of this query, or of the first one, was faster.
        finally:
            os.unlink(own)
    with open(path, encoding="ascii") as file:
        return file.read()


def _remove_old(folder: str) -> None:
    limit = time.time() - MAX_AGE_SECONDS
    for entry in os.scandir(folder):
        try:
            if entry.stat().st_mtime < limit:
                os.unlink(entry.path)
        except FileNotFoundError:
            continue  # Another task has removed it.
