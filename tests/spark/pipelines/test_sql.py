"""SQL over topics, over archives, and over both as one; once, as a running query, at a prompt, and on a cluster."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from orbitmq import Message, Producer
from orbitmq.spark.pipelines.archive.job import archive
from orbitmq.spark.pipelines.sql.errors import QueryError
from orbitmq.spark.pipelines.sql.query import Queries
from orbitmq.spark.pipelines.sql.stream import RunningQuery, StreamOptions
from orbitmq.spark.pipelines.sql.topics import TopicPlaces
from orbitmq.spark.pipelines.sql.views import quoted, register_topics, topic_view
from peers.process import tethered
from support.cli.command import WIDTH
from support.spark.spark_harness import spark_environment, standalone_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

SUMS = "select tags, count(*) n, sum(value.amount) amount from `{}` group by tags order by tags"
SCHEMA = "amount int, city string"
ARCHIVED, LIVE = 60, 40
SECONDS = 240


def send(nameserver: str, topic: str, numbers: range) -> None:
    with Producer(nameserver, group="harness") as producer:
        for number in numbers:
            body = json.dumps({"amount": number, "city": "Bern"})
            producer.send(Message(topic, body, tags="even" if number % 2 == 0 else "odd", keys=str(number)))


def sums(numbers: range) -> list[tuple[str, int, int]]:
    return [
        (tag, len(of), sum(of))
        for tag, of in (("even", [n for n in numbers if n % 2 == 0]), ("odd", [n for n in numbers if n % 2]))
    ]


def rows(queries: Queries, text: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in queries.answer(text).collect()]


@contextlib.contextmanager
def asking(spark: SparkSession, *places: Any, **more: Any) -> Iterator[Queries]:
    with Queries(spark, TopicPlaces(*places, **more), schema=SCHEMA) as queries:
        yield queries


@pytest.fixture(scope="module")
def half_archived(
    spark: SparkSession, nameserver: str, tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, str]:
    """A topic whose older messages are archived, and the archive."""
    topic, to = "half-archived", str(tmp_path_factory.mktemp("archive") / "here")
    send(nameserver, topic, range(ARCHIVED))
    archive(spark, to=to, topics=[topic], nameserver=nameserver)
    send(nameserver, topic, range(ARCHIVED, ARCHIVED + LIVE))
    return topic, to


def test_live_archive_and_both_joined_have_each_row_once(
    spark: SparkSession, nameserver: str, half_archived: tuple[str, str]
) -> None:
    topic, to = half_archived
    query, everything = SUMS.format(topic), range(ARCHIVED + LIVE)
    with asking(spark, nameserver) as queries:
        assert rows(queries, query) == sums(everything)
    with asking(spark, archive=to, archive_only=True) as queries:
        assert rows(queries, query) == sums(range(ARCHIVED))
    with asking(spark, nameserver, to) as queries:
        assert rows(queries, query) == sums(everything)
        places = f"select count(distinct broker, queue_id, queue_offset), count(*), count(body) from `{topic}`"
        assert rows(queries, places) == [(100, 100, 100)]
        (use,), is_query = queries.uses(query)
        # Of brokers only what the archive has not.
        assert (use.seam.live_messages, use.columns, is_query) == (LIVE, ["tags", "body"], True)


def test_only_the_columns_and_rows_that_a_query_needs_are_read(
    spark: SparkSession, nameserver: str, half_archived: tuple[str, str]
) -> None:
    topic, to = half_archived
    with asking(spark, nameserver, to) as queries:
        for query, columns in (
            ("select count(*) from {}", ["queue_offset"]),
            ("select tags from (select * from {}) where keys[0] = '1' order by store_timestamp", None),
            ("select * from {}", None),
        ):
            (use,), _ = queries.uses(query.format(quoted(topic)))
            if "keys" in query:
                assert use.columns == ["tags", "keys", "store_timestamp"]
            else:
                assert len(use.columns) == (16 if columns is None else 1)
            assert use.is_once
        filtered = queries.answer(f"select count(*) from `{topic}` where tags = 'odd' and queue_id >= 0")
        assert "EqualTo(tags,odd)" in filtered._jdf.queryExecution().toString()
        assert filtered.collect()[0][0] == 50
        # What is read in several places is filtered in each by itself.
        several = (
            "select (select count(*) from {0} where tags = 'odd'), (select count(*) from {0} where tags = 'even'), "
            "count(*) from {0}"
        ).format(quoted(topic))
        assert rows(queries, several) == [(50, 50, 100)]
        twice = f"with o as (select * from `{topic}`) select count(*) from o a join o b on a.keys = b.keys " + (
            "where a.tags = 'odd' and b.queue_id >= 0"
        )
        assert rows(queries, twice) == [(50,)]


def test_nothing_is_lost_or_doubled_while_the_archive_grows(
    spark: SparkSession, nameserver: str, topic: str, tmp_path: Path
) -> None:
    send(nameserver, topic, range(80))
    to = str(tmp_path / "archive")
    first = threading.Event()

    def grow() -> None:
        archive(spark, to=to, topics=[topic], nameserver=nameserver, max_messages=10)
        first.set()

    thread = threading.Thread(target=grow)
    thread.start()
    try:
        while not os.path.isdir(f"{to}/_orbitmq/segments"):
            assert thread.is_alive() or first.is_set()
        with asking(spark, nameserver, to) as queries:
            while True:
                is_last = not thread.is_alive()
                assert rows(queries, SUMS.format(topic)) == sums(range(80))
                if is_last:
                    break
            assert queries.uses(f"select 1 from `{topic}`")[0][0].seam.live_messages == 0
    finally:
        thread.join()


def test_views_are_dataframes_for_programs(
    spark: SparkSession, nameserver: str, half_archived: tuple[str, str]
) -> None:
    topic, to = half_archived
    view = topic_view(spark, topic, nameserver=nameserver, archive=to, columns=["tags"])
    assert len(view.columns) == 16
    assert view.where("tags = 'odd'").count() == 50
    assert view.where("body is not null").count() == 0
    assert register_topics(spark, topic, nameserver=nameserver, archive=to, schema=SCHEMA) == [topic]
    try:
        assert spark.sql(f"select sum(value.amount) from `{topic}`").collect()[0][0] == sum(range(100))
    finally:
        spark.catalog.dropTempView(topic)
    assert topic in register_topics(spark, archive=to, archive_only=True)
    spark.catalog.dropTempView(topic)


def test_a_wrong_query_is_one_sentence_with_the_place(
    spark: SparkSession, nameserver: str, half_archived: tuple[str, str]
) -> None:
    topic, _ = half_archived
    with asking(spark, nameserver) as queries:
        for query, place, message in (
            (f"select *\nform `{topic}`", (2, 6), "Syntax error at or near"),
            (f"select tag from `{topic}`", (1, 8), "Did you mean one of the following? [`tags`"),
            (
                "select * from half_archived",
                (1, 15),
                f"there is no topic 'half_archived' at {nameserver}: did you mean",
            ),
            (f"select tags, queue_id from `{topic}` group by tags", (1, 14), "GROUP BY"),
            (f"select nothing(tags) from `{topic}`", (1, 8), "nothing"),
        ):
            with pytest.raises(QueryError) as wrong:
                queries.answer(query)
            assert wrong.value.place == place
            assert message in str(wrong.value)
            assert "\n" not in str(wrong.value)
            assert wrong.value.pointed.splitlines()[-1].index("^") == place[1] + 1


def test_statements_that_are_no_queries_work_over_topics(
    spark: SparkSession, nameserver: str, half_archived: tuple[str, str]
) -> None:
    topic, to = half_archived
    with asking(spark, nameserver, to) as queries:
        assert rows(queries, f"describe `{topic}`")[0][:2] == ("topic", "string")
        queries.answer(f"create temporary view odd_ones as select * from `{topic}` where tags = 'odd'")
        try:
            assert rows(queries, "select count(*) from odd_ones") == [(50,)]
        finally:
            spark.catalog.dropTempView("odd_ones")
        assert rows(queries, "select 1 + 1") == [(2,)]


def test_a_running_query_begins_with_the_archive(
    spark: SparkSession, nameserver: str, half_archived: tuple[str, str]
) -> None:
    topic, to = half_archived
    places = TopicPlaces(nameserver, to)
    with Queries(spark, places, schema=SCHEMA) as queries:
        counts = RunningQuery(spark, queries, places, SUMS.format(topic), StreamOptions(once=True))
        *_, last = list(counts)
        assert last.is_all
        assert [tuple(row) for row in last.rows] == sums(range(100))
        assert counts.read() == 100
        plain = f"select topic, keys[0] as key, store_timestamp from `{topic}` where tags = 'odd'"
        found = RunningQuery(spark, queries, places, plain, StreamOptions(once=True))
        keys = [row for batch in found for row in batch.rows]
        assert sorted(int(row.key) for row in keys) == list(range(1, 100, 2))
        assert {row.topic for row in keys} == {topic}
        times = {tuple(row) for row in queries.answer(plain).select("key", "store_timestamp").collect()}
        assert {(row.key, row.store_timestamp) for row in keys} == times
        with pytest.raises(QueryError, match="Sorting is not supported"):
            RunningQuery(spark, queries, places, f"select * from `{topic}` order by keys", StreamOptions(once=True))
        with pytest.raises(QueryError, match="is a SELECT over topics"):
            RunningQuery(spark, queries, places, "select 1", StreamOptions(once=True))


# The command


def command(home: Path, *arguments: object, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        tethered([sys.executable, "-m", "orbitmq", "sql", *map(str, arguments)]),
        cwd=home,
        env={**os.environ, **spark_environment(home), **WIDTH, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.timeout(SECONDS)
def test_a_script_is_answered_up_to_its_first_mistake(
    nameserver: str, half_archived: tuple[str, str], tmp_path: Path
) -> None:
    topic, to = half_archived
    process = command(
        tmp_path, "--nameserver", nameserver, "--archive", to, "--schema", SCHEMA, "--master", "local[2]"
    )
    script = (
        f"\\d\nselect count(*) as n\nfrom `{topic}`;\nselect * from `{topic}`;\n"
        f"select tag from `{topic}`;\nselect 'never';\n"
    )
    out, err = process.communicate(script, timeout=SECONDS)
    assert process.returncode == 1, err
    assert any([cell.strip() for cell in line.split("│")[1:-1]] == [topic, "60", "40"] for line in out.splitlines())
    assert "100 rows in" in out
    assert "never" not in out
    assert err.splitlines()[-3].startswith("orbitmq: line 1, column 8: A column")
    assert err.splitlines()[-2:] == [f"  select tag from `{topic}`", "         ^"]
    assert all(line.startswith(("Spark starts", "the query runs")) for line in err.splitlines()[:-3])


@pytest.mark.timeout(SECONDS)
def test_a_running_query_shows_counts_until_it_is_stopped(nameserver: str, topic: str, tmp_path: Path) -> None:
    send(nameserver, topic, range(10))
    query = f"select count(*) as n from `{topic}`"
    process = command(
        tmp_path, query, "--stream", "--format", "json", "--nameserver", nameserver, "--master", "local[2]"
    )
    try:
        assert process.stdout is not None
        seen = [json.loads(process.stdout.readline())["rows"][0]["n"]]
        assert seen == [10]
        send(nameserver, topic, range(5))
        while seen[-1] < 15:
            seen.append(json.loads(process.stdout.readline())["rows"][0]["n"])
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=SECONDS)
    finally:
        process.kill()
        process.communicate()
    assert seen == sorted(seen)
    assert process.returncode == 0, err
    # The last batch was printed before Spark had recorded its end.
    assert err.splitlines()[-2] == "stopped"
    assert err.splitlines()[-1] in {f"{count} messages in batches that were finished" for count in seen}


@pytest.mark.skipif(not os.environ.get("ORBITMQ_LONG"), reason="one cluster is enough without ORBITMQ_LONG=1")
@pytest.mark.timeout(400)
def test_a_standalone_cluster_answers(nameserver: str, half_archived: tuple[str, str], tmp_path: Path) -> None:
    topic, to = half_archived
    home = tmp_path / "driver"
    home.mkdir()
    small = ["--conf", "spark.executor.memory=512m", "--conf", "spark.sql.shuffle.partitions=2"]
    with standalone_cluster(tmp_path, workers=1) as master:
        process = command(
            *(home, SUMS.format(topic), "--format", "csv", "--archive", to, "--schema", SCHEMA),
            *("--nameserver", nameserver, "--master", master, *small),
            PYSPARK_PYTHON=sys.executable,
        )
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert out.splitlines() == ["tags,n,amount", *(",".join(map(str, row)) for row in sums(range(100)))]
