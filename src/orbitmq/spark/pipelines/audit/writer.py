"""The directory of a report: the page and each table as Parquet. Existing files are replaced."""

from __future__ import annotations

import os
import posixpath
from typing import TYPE_CHECKING

import pyarrow.compute as pc
import pyarrow.dataset as pds
import pyarrow.fs as pafs

from orbitmq.spark.errors import OptionError
from orbitmq.spark.pipelines.audit.report import page
from orbitmq.spark.pipelines.audit.tables import Table, plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from orbitmq.spark.pipelines.audit.report import Report
    from orbitmq.spark.pipelines.audit.tables import Check

PAGE = "report.html"


class ReportDirectory:
    """A directory at any address that Spark and pyarrow support: a path, ``s3://…``, ``hdfs://…``."""

    def __init__(self, path: str) -> None:
        """Raises OptionError for a path that nothing can be written to."""
        is_address = "://" in path
        self._path = path.rstrip("/") if is_address else os.path.abspath(os.path.expanduser(path))
        try:
            self._files: pafs.FileSystem
            self._root: str
            self._files, self._root = (
                pafs.FileSystem.from_uri(path) if is_address else (pafs.LocalFileSystem(), self._path)
            )
            self._files.create_dir(self._root, recursive=True)
        except (OSError, ValueError) as error:
            raise OptionError(f"no report can be written to {path}: {error}") from None

    @property
    def page(self) -> str:
        """The path of the page."""
        return f"{self._path}/{PAGE}"

    def table(self, check: Check, frame: DataFrame, order: list[str], most: int | None) -> Table:
        """Write a table as one file, in its order. What is needed of it here is read from that file."""
        frame.repartition(1).sortWithinPartitions(*order).write.mode("overwrite").parquet(
            f"{self._path}/{check.name}"
        )
        where = posixpath.join(self._root, check.name)
        written = pds.dataset(where, format="parquet", filesystem=self._files)
        count = written.count_rows()
        total = count
        if check.sums is not None:
            total = pc.sum(written.to_table(columns=[check.sums]).column(0)).as_py() or 0
        rows = written.to_table() if most is None else written.head(most)
        return Table(check, count, total, [plain(row) for row in rows.to_pylist()])

    def write(self, report: Report) -> None:
        """Write the page, at once or not at all."""
        temporary = posixpath.join(self._root, f"{PAGE}.writing")
        with self._files.open_output_stream(temporary) as out:
            out.write(page(report).encode())
        self._files.move(temporary, posixpath.join(self._root, PAGE))
