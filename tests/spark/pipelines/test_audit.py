"""The audit finds what is planted, with its offsets, and nothing where nothing is."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from orbitmq import Consumer, Message, Producer, TransactionProducer
from orbitmq.client.trace.encoding import ConsumeBegun, ConsumeEnded, ConsumeOutcome, MessageKind, Published
from orbitmq.spark.pipelines.audit.job import audit
from support.spark.archive_harness import PATIENCE, PipelineProcess
from support.spark.audit_harness import BROWSER, HOUR_MS, Planter, archive_of, browse, damaged_copy, now_ms, rows_of
from support.spark.spark_harness import run_program, server, standalone_cluster
from support.spark.stream_faults import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from orbitmq.client.message import ReceivedMessage
    from orbitmq.spark.pipelines.progress import Summary
    from support.cli.command import Ran

GROUP = "lazy"
DEAD_GROUP = "clumsy"
NEVER_SENT = "7F00000100000000000000000000DEAD"
FAULTS = ("lost", "duplicated", "out_of_order", "undecided_transactions")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audited")


@pytest.fixture(scope="module")
def address(home: Path) -> Iterator[str]:
    """A server of its own: half messages and traces of others would be in the way."""
    with server(home, transactionOpBatchInterval="50", transactionCheckInterval="3600000") as found:
        yield found


@pytest.fixture(scope="module")
def planted(address: str) -> Planter:
    """A topic with one of everything that can be wrong."""
    planter = Planter(address, "planted")
    began = now_ms()
    for number in range(6):
        assert (
            planter.send(f"ID{number}", born_ms=began + number, KEYS=f"order-{number}", __SHARDINGKEY="k") == number
        )
    assert planter.send("ID6", born_ms=began - HOUR_MS, __SHARDINGKEY="k") == 6
    assert planter.send("ID2", born_ms=began + 7) == 7
    planter.tell(_published(planter.topic, NEVER_SENT, began), _published(planter.topic, "ID1", began))
    planter.tell(*_consumed("ID1", GROUP, began, cost_ms=5000), *_consumed("ID3", GROUP, began, cost_ms=2))
    planter.commit(GROUP, 2)
    _transact(planter)
    _bury(address, planter.topic)
    return planter


def _published(topic: str, message_id: str, at_ms: int) -> Published:
    return Published(
        timestamp=at_ms,
        region="DefaultRegion",
        group="shop",
        topic=topic,
        message_id=message_id,
        tags=None,
        keys="order-x",
        store_host="127.0.0.1:10911",
        body_length=4,
        cost_ms=1,
        kind=MessageKind.NORMAL,
        offset_message_id="7F00000100002A9F0000000000ABCDEF",
        succeeded=True,
    )


def _consumed(message_id: str, group: str, at_ms: int, cost_ms: int) -> tuple[ConsumeBegun, ConsumeEnded]:
    call = f"CALL-{message_id}"
    return (
        ConsumeBegun(at_ms, "DefaultRegion", group, call, message_id, 0, None),
        ConsumeEnded(call, message_id, cost_ms, True, None, ConsumeOutcome.SUCCESS, at_ms + cost_ms, group),
    )


def _transact(planter: Planter) -> None:
    """One of each: committed, rolled back, and left open."""
    halves = []
    with TransactionProducer(planter.nameserver, group="payers", check=lambda _: None) as producer:
        for how in ("commit", "rollback", "unknown"):
            with producer.transaction(Message(planter.topic, how)) as transaction:
                getattr(transaction, how)()
            assert transaction.receipt is not None
            halves.append(transaction.receipt.queue_offset)
    planter.wait_until_noted(halves[:2])


def _bury(address: str, topic: str) -> None:
    """A message that its consumer cannot bear becomes a dead letter at once."""
    consumer = Consumer(
        address,
        group=DEAD_GROUP,
        enable_trace=True,
        max_reconsume_times=0,
        consume_from_where="CONSUME_FROM_FIRST_OFFSET",
    )
    tried = []

    @consumer.on(topic, tags="deadly")
    def handle(message: ReceivedMessage) -> None:
        tried.append(message.message_id)
        raise ValueError("no")

    with Producer(address, group="shop") as producer, consumer:
        producer.send(Message(topic, "dies", tags="deadly"))
        wait_for(lambda: tried, "a message tried")


def audited(spark: SparkSession, planted: Planter, report: Path) -> Summary:
    return audit(
        spark,
        nameserver=planted.nameserver,
        topics=[planted.topic],
        stuck_seconds=0,
        lag_threshold=5,
        report=str(report),
    )


@pytest.fixture(scope="module")
def found(spark: SparkSession, planted: Planter, home: Path) -> Summary:
    return audited(spark, planted, home / "report")


def test_a_traced_message_that_is_stored_nowhere_is_lost(found: Summary, spark: SparkSession, home: Path) -> None:
    (row,) = rows_of(spark, home / "report", "lost")
    assert (row["topic"], row["message_id"], row["keys"]) == ("planted", NEVER_SENT, "order-x")
    assert row["msg_id"] == "7F00000100002A9F0000000000ABCDEF"
    assert not found.is_good
    assert found.facts["lost"] == 1


def test_an_id_in_two_places_is_duplicated(found: Summary, spark: SparkSession, home: Path) -> None:
    (row,) = rows_of(spark, home / "report", "duplicated")
    assert (row["topic"], row["message_id"], row["copies"]) == ("planted", "ID2", 2)
    assert [(place["queue_id"], place["queue_offset"]) for place in row["places"]] == [(0, 2), (0, 7)]


def test_a_message_that_is_older_than_one_before_it_is_out_of_order(
    found: Summary, spark: SparkSession, home: Path
) -> None:
    (row,) = rows_of(spark, home / "report", "out_of_order")
    assert (row["queue_id"], row["queue_offset"], row["after_offset"], row["sharding_key"]) == (0, 6, 5, "k")
    assert row["behind_ms"] == HOUR_MS + 5


def test_transactions_come_out_and_one_is_stuck(found: Summary, spark: SparkSession, home: Path) -> None:
    (row,) = rows_of(spark, home / "report", "undecided_transactions")
    assert (row["outcome"], row["topic"], row["producer_group"]) == ("stuck", "planted", "payers")
    assert row["offsets"] == [2]
    outcomes = {row["outcome"]: row["transactions"] for row in rows_of(spark, home / "report", "transactions")}
    assert outcomes == {"committed": 1, "rolled back": 1, "stuck": 1}


def test_slow_consumers_are_named_with_what_waits_for_them(found: Summary, spark: SparkSession, home: Path) -> None:
    rows = {row["kind"]: row for row in rows_of(spark, home / "report", "slow_consumers") if row["group"] == GROUP}
    assert (rows["behind"]["queue_id"], rows["behind"]["first_offset"]) == (0, 2)
    assert rows["behind"]["messages"] == rows["behind"]["last_offset"] - 1 >= 6
    assert rows["behind"]["waiting_since"] is not None
    slow = rows["slow handler"]
    assert (slow["first_offset"], slow["cost_ms"], slow["message_id"]) == (1, 5000, "ID1")


def test_dead_letters_have_the_reason_that_the_trace_tells(found: Summary, spark: SparkSession, home: Path) -> None:
    (row,) = rows_of(spark, home / "report", "dead_letters")
    assert (row["group"], row["origin_topic"], row["queue_offset"]) == (DEAD_GROUP, "planted", 0)
    assert row["reason"] == "the handler raised an exception"


def test_latency_is_reported_by_topic_and_group(found: Summary, spark: SparkSession, home: Path) -> None:
    rows = rows_of(spark, home / "report", "latency")
    named = {(row["what"], row["group"]): row for row in rows}
    assert named["born to stored", None]["max_ms"] >= HOUR_MS
    assert named["born to consumed", GROUP]["messages"] == 2
    assert named["born to consumed", GROUP]["max_ms"] == 4999
    assert named["stored to consumed", GROUP]["messages"] == 2


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_the_report_is_readable_in_a_browser(found: Summary, home: Path, tmp_path: Path) -> None:
    page = home / "report" / "report.html"
    assert found.facts["report"] == str(page)
    rendered = browse(page, tmp_path, "--dump-dom")
    assert "Something is wrong: lost, duplicated, out of order, stuck transactions" in rendered
    for text in (NEVER_SENT, " queue 0 offset 7", "ID6", "stuck", GROUP, "the handler raised an exception"):
        assert text in rendered
    assert rendered.count("<svg") == 5
    assert "http" not in rendered.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )
    picture = tmp_path / "page.png"
    browse(page, tmp_path, f"--screenshot={picture}", "--window-size=1200,3000")
    assert len(colours_of(picture)) > 100


def colours_of(picture: Path) -> set[tuple[int, ...]]:
    from matplotlib.image import imread

    pixels = imread(picture)
    return {tuple(pixel) for row in pixels[::5, ::5] for pixel in row.tolist()}


def test_nothing_is_found_in_a_clean_topic(spark: SparkSession, address: str, tmp_path: Path) -> None:
    got = []
    consumer = Consumer(
        address, group="diligent", enable_trace=True, consume_from_where="CONSUME_FROM_FIRST_OFFSET"
    )
    consumer.on("clean")(lambda message: got.append(message.message_id))
    with Producer(address, group="shop", enable_trace=True) as producer, consumer:
        for number in range(20):
            producer.send(Message("clean", f"{number}", keys=f"{number}", sharding_key=f"{number % 3}"))
        wait_for(lambda: len(got) == 20, "all consumed")
    summary = audit(spark, nameserver=address, topics=["clean"], stuck_seconds=0, report=str(tmp_path / "report"))
    assert summary.is_good
    assert {name: summary.facts[name] for name in (*FAULTS, "slow_consumers", "dead_letters")} == dict.fromkeys(
        (*FAULTS, "slow_consumers", "dead_letters"), 0
    )
    assert summary.facts["messages_in_logs"] == 20
    assert summary.facts["lag"] == {"diligent on clean": 0}
    assert "Nothing is wrong" in (tmp_path / "report" / "report.html").read_text()
    assert [row["messages"] for row in rows_of(spark, tmp_path / "report", "latency")] == [20, 20, 20]


def live(spark: SparkSession, address: str, topic: str) -> DataFrame:
    return spark.read.format("orbitmq").options(nameserver=address, subscribe=topic).load()


def test_an_archive_with_a_hole_and_a_copy_is_distinguished_from_the_log(
    spark: SparkSession, address: str, tmp_path: Path
) -> None:
    planter = Planter(address, "archived")
    for number in range(10):
        planter.send(f"A{number}")
    copies = {3: 0, 4: 0, 7: 2}
    archive_of(live(spark, address, "archived"), tmp_path / "archive", lambda offset: copies.get(offset, 1))
    audit(
        spark,
        nameserver=address,
        topics=["archived"],
        archive=str(tmp_path / "archive"),
        report=str(tmp_path / "report"),
    )
    (row,) = rows_of(spark, tmp_path / "report", "lost")
    assert (row["kind"], row["first_offset"], row["last_offset"]) == ("not in the archive", 3, 4)
    assert (row["elsewhere"], row["message_id"]) == (2, "A3")
    (copy,) = rows_of(spark, tmp_path / "report", "duplicated")
    assert (copy["kind"], copy["copies"], copy["places"][0]["queue_offset"]) == ("same offset in the archive", 2, 7)


def test_damaged_records_of_a_store_are_holes_which_an_archive_may_fill(
    spark: SparkSession, address: str, home: Path, tmp_path: Path
) -> None:
    planter = Planter(address, "damaged")
    for number in range(6):
        planter.send(f"D{number}", body=f"the body number {number}")
    archive_of(live(spark, address, "damaged"), tmp_path / "archive", lambda offset: int(offset != 1))
    store = next(home.glob("data/**/commitlog")).parent
    copy = damaged_copy(store, tmp_path / "store", "the body number 1", "the body number 4")
    summary = audit(spark, stores=[str(copy)], archive=str(tmp_path / "archive"), topics=["damaged"])
    assert not summary.is_good
    queue = f"damaged, {planter.queue.broker_name} queue 0"
    assert sorted(summary.facts["findings"]) == [
        f"lost: {queue}, offset 1: 1 message not in the archive, in neither",
        f"lost: {queue}, offset 1: 1 message not in the log, in neither",
        f"lost: {queue}, offset 4: 1 message not in the log, 1 in the archive",
    ]


def command(home: Path, planted: Planter, *options: object) -> Ran:
    home.mkdir()
    what = ("--nameserver", planted.nameserver, "--topics", planted.topic, *options)
    return run_program(Path("-m"), home, "orbitmq", "pipeline", "audit", *what, PYSPARK_PYTHON=sys.executable)


def test_the_command_says_what_is_wrong_and_exits_with_1(planted: Planter, tmp_path: Path) -> None:
    ran = command(tmp_path / "driver", planted, "--master", "local[2]", "--report", tmp_path / "report", "--json")
    assert ran.code == 1, ran.err
    assert ran.json["good"] is False
    assert ran.json["duplicated"] == 1
    assert (tmp_path / "report" / "report.html").exists()
    assert "Traceback" not in ran.err


def interrupted(home: Path, planted: Planter, moment: str, *options: object) -> list[str]:
    """The lines of an audit that is ended by Ctrl-C after a certain line."""
    what = ("--nameserver", planted.nameserver, "--topics", planted.topic, "--master", "local[2]", *options)
    job = PipelineProcess(home, "audit", *what)
    reported = home / "console.log"
    job.wait_until(lambda: moment in reported.read_text(), what=moment, seconds=PATIENCE)
    assert job.interrupt() == 130, reported.read_text()
    return reported.read_text().splitlines()


@pytest.mark.timeout(300)
def test_an_audit_that_is_interrupted_is_complete_when_it_is_run_again(
    found: Summary, spark: SparkSession, planted: Planter, home: Path, tmp_path: Path
) -> None:
    report = tmp_path / "report"
    for moment in ("Spark starts", "Traces are read") if os.environ.get("ORBITMQ_LONG") else ("Traces are read",):
        printed = interrupted(tmp_path / moment, planted, moment, "--report", report)
        assert printed[-1] == "orbitmq: interrupted: it has changed nothing; run the same command again"
        assert not re.search("Traceback|Exception|ERROR", "\n".join(printed)), printed
        assert not (report / "report.html").exists()
    again = audited(spark, planted, report)
    reported = ("topics", "queues", "messages_in_logs", *FAULTS, "dead_letters")
    assert {name: again.facts[name] for name in reported} == {name: found.facts[name] for name in reported}
    assert rows_of(spark, report, "queues") == rows_of(spark, home / "report", "queues")
    assert (report / "report.html").exists()


def test_a_dry_run_says_what_would_be_read_and_starts_no_spark(planted: Planter, tmp_path: Path) -> None:
    ran = command(tmp_path / "driver", planted, "--report", tmp_path / "report", "--dry-run", "--json")
    assert ran.code == 0, ran.err
    assert ran.json["topics"] == [planted.topic]
    assert ran.json["messages"] >= 8
    assert ran.json["half_messages"] == 3
    assert set(ran.json["groups"]) >= {GROUP, DEAD_GROUP}
    assert not (tmp_path / "report").exists()
    assert "Spark starts" not in ran.err


def test_a_topic_that_is_not_there_is_one_sentence(planted: Planter, tmp_path: Path) -> None:
    ran = command(tmp_path / "driver", planted, "--topics", "nowhere")
    assert ran.code == 1
    assert ran.err.strip().splitlines() == [
        "orbitmq: the topic 'nowhere' does not exist: no broker and no archive that is read has it"
    ]


@pytest.mark.skipif(not os.environ.get("ORBITMQ_LONG"), reason="a long test: set ORBITMQ_LONG=1")
@pytest.mark.timeout(400)
def test_a_standalone_cluster_audits(planted: Planter, tmp_path: Path) -> None:
    small = ["--conf", "spark.executor.memory=512m", "--conf", "spark.executor.cores=1"]
    with standalone_cluster(tmp_path) as master:
        ran = command(
            tmp_path / "driver", planted, "--master", master, *small, "--report", tmp_path / "report", "--json"
        )
    assert ran.code == 1, ran.err
    assert (ran.json["lost"], ran.json["duplicated"], ran.json["out_of_order"]) == (1, 1, 1)
