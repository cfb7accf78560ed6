"""Queries over topics: detection of the topics and columns that a query needs, and a DataFrame of only these.

Spark does not tell a Python data source which columns are used. So a query is planned twice: first over stand-ins,
files of no rows with the columns of a topic, for whose scans Spark says what it needs of them; then over views that
read just that. Nothing runs before the second time, whatever the statement does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Self

from orbitmq.spark.pipelines.spark_job import PipelineError, sentence_of
from orbitmq.spark.pipelines.sql.errors import QueryError, errors_of, missing_table, place_of, query_error
from orbitmq.spark.pipelines.sql.plan import columns_read
from orbitmq.spark.pipelines.sql.topics import UnknownTopicError
from orbitmq.spark.pipelines.sql.views import quoted, view_of, wanted_columns, with_value
from orbitmq.spark.schema.columns import COLUMNS, ddl_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.spark.pipelines.sql.archive_live_boundary import ArchiveMoment, Seam
    from orbitmq.spark.pipelines.sql.topics import TopicPlaces

COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
WHOLE_LINES = ("spark.sql.maxMetadataStringLength", "100000")
"""Otherwise a plan shows only the beginning of a list of columns."""


@dataclasses.dataclass(frozen=True, slots=True)
class Use:
    """The use of a topic in a query."""

    name: str
    """As the query has it."""
    seam: Seam
    moment: ArchiveMoment | None
    columns: list[str]
    is_once: bool
    """Whether it is read in one place of the query only, so that filters there hold for all of it."""


class Queries:
    """The queries of one session. Each reads the messages that exist when it is planned.

    Needs a session with its own JVM, not one of Spark Connect.
    """

    def __init__(
        self,
        spark: SparkSession,
        places: TopicPlaces,
        *,
        schema: str | None = None,
        warn: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Raises PipelineError where the session is one of Spark Connect, and QueryError for a bad schema."""
        if not hasattr(spark, "_jsparkSession"):
            raise PipelineError(
                "SQL over topics takes a session of its own, not one of Spark Connect: register_topics"
            )
        if schema is not None:
            _check_schema(schema)
        self._spark: Any = spark
        self._places = places
        self._schema = schema
        self._warn = warn
        self._folder = tempfile.mkdtemp(prefix="orbitmq-sql-")
        self._named: dict[str, str] = {}
        """Topics by the names of views that stand for them now."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Forget the views."""
        with contextlib.suppress(Exception):
            self._forget()
        shutil.rmtree(self._folder, ignore_errors=True)

    # Planning

    def uses(self, text: str) -> tuple[list[Use], bool]:
        """The topics and columns of a statement, and True if it is a query and not a command.

        Raises QueryError, and OrbitMQError.
        """
        self._forget()
        planned = self._planned(text)
        is_query = not self._is_command(planned)
        read = columns_read(self._explained(planned)) if is_query else None
        understood = str(planned.analyzed().toString())
        found = []
        for number, (name, topic) in enumerate(self._named.items()):
            seam, moment = self._places.look(topic)
            for warning in seam.warnings():
                self._warn(warning)
            scans = None if read is None else read.get(f"file:{self._stand_in(number)}")
            columns = None if not scans else {column for scan in scans for column in scan}
            found.append(Use(name, seam, moment, wanted_columns(columns), _is_once(understood, name, scans)))
        return found, is_query

    def _planned(self, text: str) -> Any:
        """The query as Spark understands it, with a stand-in for each topic. Nothing is run."""
        from pyspark.errors import AnalysisException  # noqa: PLC0415 - Spark may not be installed
        from pyspark.errors import ParseException as NoSentence  # noqa: PLC0415

        state = self._spark._jsparkSession.sessionState()
        nothing_runs = self._spark._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        while True:
            try:
                planned = state.executePlan(state.sqlParser().parsePlan(text), nothing_runs)
                planned.assertAnalyzed()
            except NoSentence as error:
                raise query_error(error, text) from None
            except AnalysisException as error:
                name = missing_table(error)
                if name is None or name in self._named:
                    raise query_error(error, text) from None
                self._stand_in_for(name, text, place_of(error, text))
            else:
                return planned

    def _stand_in_for(self, name: str, text: str, place: tuple[int, int] | None) -> None:
        try:
            topic = self._places.topic_of(name)
        except UnknownTopicError as error:
            raise QueryError(str(error), text, place) from None
        folder = self._stand_in(len(self._named))
        os.makedirs(folder, exist_ok=True)
        empty = self._spark.read.schema(ddl_of(COLUMNS)).parquet(f"file://{folder}")
        with_value(empty, self._schema).createOrReplaceTempView(quoted(name))
        self._named[name] = topic

    def _stand_in(self, number: int) -> str:
        return os.path.join(self._folder, str(number))

    def _is_command(self, planned: Any) -> bool:
        from py4j.java_gateway import is_instance_of  # noqa: PLC0415

        return bool(is_instance_of(self._spark.sparkContext._gateway, planned.analyzed(), COMMAND))

    def _explained(self, planned: Any) -> str:
        mode = self._spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString("formatted")
        with self._setting(*WHOLE_LINES):
            return str(planned.explainString(mode))

    @contextlib.contextmanager
    def _setting(self, name: str, value: str) -> Iterator[None]:
        before = self._spark.conf.get(name)
        self._spark.conf.set(name, value)
        try:
            yield
        finally:
            self._spark.conf.set(name, before)

    # QueryOutput

    def answer(self, text: str) -> DataFrame:
        """The DataFrame of a query, of which nothing has run yet. A statement that is none has been done.

        Raises QueryError, and OrbitMQError.
        """
        uses, is_query = self.uses(text)
        for use in uses:
            view = view_of(
                self._spark,
                self._places,
                use.seam,
                use.moment,
                columns=use.columns,
                push_filters=is_query and use.is_once,
            )
            self.register(use, view)
        return self.run(text)

    def run(self, text: str) -> DataFrame:
        """Run a statement over the current views. Raises QueryError."""
        with errors_of(text):
            made: DataFrame = self._spark.sql(text)
            return made

    def register(self, use: Use, view: DataFrame) -> None:
        """Let a name of a query be this view of its topic."""
        with_value(view, self._schema).createOrReplaceTempView(quoted(use.name))

    def _forget(self) -> None:
        for name in self._named:
            self._spark.catalog.dropTempView(name)
        self._named.clear()


def _is_once(understood: str, name: str, scans: list[frozenset[str]] | None) -> bool:
    """True if a plan reads a view exactly once. Spark merges scans where it can, which is not so for all kinds of
    sources: so there has to be one scan from the start, and no view that is named once and used more often."""
    views = understood.count(f"View ({quoted(name)}")
    return scans is not None and len(scans) == 1 and views == 1 and "WithCTE" not in understood


def _check_schema(schema: str) -> None:
    from pyspark.errors import PySparkException  # noqa: PLC0415
    from pyspark.sql.types import StructType  # noqa: PLC0415

    try:
        StructType.fromDDL(schema)
    except PySparkException as error:
        raise QueryError(f"the schema of bodies cannot be read: {sentence_of(error)}") from None
