"""The session that is made for people: it suits topics and streams, is quiet, and theirs to change."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from orbitmq.spark import session
from orbitmq.spark.sessions.session import EVERYWHERE, ON_ONE_MACHINE
from support.spark.spark_harness import run_program, submit_program

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = Path(__file__).with_name("session_program.py")
NOISE = "WARNING: Using incubator modules: jdk.incubator.vector\n"
"""What every JVM of Spark says, before anything could tell it not to."""


def test_a_session_on_one_machine_suits_topics_and_streams(spark: SparkSession) -> None:
    expected = {**EVERYWHERE, **ON_ONE_MACHINE, "spark.sql.shuffle.partitions": "2"}
    assert {name: spark.sparkContext.getConf().get(name) for name in expected} == expected


def test_a_running_session_is_returned_with_the_requested_settings(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    other = "false" if before == "true" else "true"
    try:
        assert session("another", **{"spark.sql.ansi.enabled": other}) is spark
        assert spark.conf.get("spark.sql.ansi.enabled") == other
        assert spark.sparkContext.appName == "orbitmq-tests"
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before or "true")


def test_a_program_gets_its_session_quietly(java_and_pyspark: None, tmp_path: Path) -> None:
    ran = run_program(PROGRAM, tmp_path)
    assert ran.code == 0, ran.err
    assert ran.err.replace(NOISE, "") == ""
    assert ran.json["name"] == "a user's"
    assert ran.json["master"] == "local[*]"
    assert ran.json["settings"]["spark.sql.ansi.enabled"] == "false"
    assert ran.json["settings"]["spark.ui.enabled"] == "false"
    # Not the zipped sources, which each process would have to compile.
    assert ran.json["worker"] == [sys.executable, pyspark.__file__]
    assert not (tmp_path / "spark-warehouse").exists()


def test_sparks_own_configuration_wins(java_and_pyspark: None, tmp_path: Path) -> None:
    lines = ("spark.master local[1]", "spark.sql.shuffle.partitions 7", "spark.sql.ansi.enabled true")
    (tmp_path / "spark-defaults.conf").write_text("\n".join(lines))
    ran = run_program(PROGRAM, tmp_path, SPARK_CONF_DIR=str(tmp_path), PYSPARK_PYTHON=sys.executable)
    assert ran.code == 0, ran.err
    assert ran.json["master"] == "local[1]"
    assert ran.json["settings"] == {
        "spark.sql.shuffle.partitions": "7",
        "spark.ui.enabled": "false",
        "spark.sql.python.filterPushdown.enabled": "true",
        # The program itself has the last word.
        "spark.sql.ansi.enabled": "false",
    }
    # A configured interpreter is used unchanged.
    assert ran.json["worker"][0] == sys.executable
    assert "pyspark.zip" in ran.json["worker"][1]


def test_a_submitted_program_has_the_settings_of_spark_submit(java_and_pyspark: None, tmp_path: Path) -> None:
    ran = submit_program(PROGRAM, tmp_path, "--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=9")
    assert ran.code == 0, ran.err
    assert ran.json["master"] == "local[1]"
    assert ran.json["settings"]["spark.sql.shuffle.partitions"] == "9"
    assert ran.json["settings"]["spark.sql.python.filterPushdown.enabled"] == "true"
    # Spark was started first, so that only a few settings reach its workers.
    assert ran.json["worker"][0] == sys.executable
