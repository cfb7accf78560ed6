"""Settings of a session from the caller, from Spark's own configuration, and our defaults."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from orbitmq.spark import session
from orbitmq.spark.errors import OptionError, SparkSourceError
from orbitmq.spark.sessions import environment as spark_environment
from orbitmq.spark.sessions import java
from orbitmq.spark.sessions import session as spark_session
from orbitmq.spark.sessions.environment import HERE, SCRIPT, configured_master, prepare_jvm, worker_python
from orbitmq.spark.sessions.session import NOT_INSTALLED, unavailable

if TYPE_CHECKING:
    from pathlib import Path

VARIABLES = (
    *("MASTER", "PYSPARK_DRIVER_PYTHON", "PYSPARK_GATEWAY_PORT", "PYSPARK_PYTHON", "PYSPARK_SUBMIT_ARGS"),
    *("SPARK_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_IP", "SPARK_REMOTE", "SPARK_SUBMIT_OPTS"),
)


@pytest.fixture(autouse=True)
def no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORBITMQ_SPARK_PYTHON", *VARIABLES):
        monkeypatch.setenv(name, "")  # so that it is put back as it was
        monkeypatch.delenv(name)
    home = tmp_path / "java"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").touch(0o755)
    (home / "release").write_text('JAVA_VERSION="17.0.1"\n')
    monkeypatch.setenv("JAVA_HOME", str(home))


def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(java, "FOLDERS", ())


def without_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str) -> object:
        return None if name == "pyspark" else there(name)

    there = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", find_spec)


# What is missing


def test_it_is_reported_that_pyspark_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pyspark(monkeypatch)
    assert unavailable() == NOT_INSTALLED
    with pytest.raises(SparkSourceError, match="pip install"):
        session()


def test_it_is_reported_that_java_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    without_java(monkeypatch)
    reason = unavailable()
    assert reason is not None
    assert reason.startswith("Spark needs Java 17 or newer and there is none: ")


def test_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unavailable() is None


@pytest.mark.skipif(importlib.util.find_spec("grpc") is not None, reason="Spark Connect is installed here")
def test_it_is_reported_that_spark_connect_is_missing() -> None:
    with pytest.raises(SparkSourceError, match=r"pyspark\[connect\]"):
        session(remote="sc://127.0.0.1:1")


# What cannot be meant


def test_a_setting_has_a_name_of_spark() -> None:
    with pytest.raises(OptionError, match=r"'memory' is not a setting of Spark"):
        session(memory="4g")


def test_a_remote_session_has_no_master() -> None:
    with pytest.raises(OptionError, match="not both"):
        session(master="local[2]", remote="sc://127.0.0.1:15002")


# Defaults


@pytest.mark.parametrize(
    ("master", "partitions"), [("local", 2), ("local[3]", 3), ("local[5,4]", 5), ("local[99]", 32)]
)
def test_a_local_session_has_a_partition_for_each_core(master: str, partitions: int) -> None:
    assert spark_session._defaults(master)["spark.sql.shuffle.partitions"] == str(partitions)


def test_a_local_session_counts_the_cores_that_it_may_use() -> None:
    cores = len(os.sched_getaffinity(0))
    assert spark_session._defaults("local[*]")["spark.sql.shuffle.partitions"] == str(min(max(cores, 2), 32))


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host", "local-cluster[2,1,1024]"])
def test_a_cluster_keeps_its_own_ways(master: str) -> None:
    assert spark_session._defaults(master) == {"spark.master": master, **spark_session.EVERYWHERE}
    assert "PYSPARK_PYTHON" not in os.environ


# The master that others name


def test_without_a_master_there_is_none() -> None:
    assert configured_master() is None


def test_a_variable_names_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--name x --master spark://submitted:7077 pyspark-shell")
    assert configured_master() == "spark://submitted:7077"
    monkeypatch.setenv("MASTER", "spark://variable:7077")
    assert configured_master() == "spark://variable:7077"


@pytest.mark.parametrize("line", ["spark.master spark://file:7077", "  spark.master=spark://file:7077"])
def test_a_file_names_the_master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(f"# spark.master local\nspark.master.rest 1\n{line}\n")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    assert configured_master() == "spark://file:7077"
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "elsewhere"))
    assert configured_master() is None


# The environment of a JVM


def test_a_jvm_on_this_machine_keeps_to_it_and_uses_this_interpreter() -> None:
    prepare_jvm(is_local=True)
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == worker_python()
    assert os.environ["ORBITMQ_SPARK_PYTHON"] == sys.executable


def test_a_jvm_of_a_cluster_is_reachable() -> None:
    prepare_jvm(is_local=False)
    assert "SPARK_LOCAL_IP" not in os.environ


def test_what_was_chosen_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    message = {
        "PYSPARK_PYTHON": "/python",
        "SPARK_LOCAL_IP": "10.0.0.1",
        "SPARK_SUBMIT_OPTS": "-Dlog4j2.configurationFile=mine",
    }
    for name, value in message.items():
        monkeypatch.setenv(name, value)
    prepare_jvm(is_local=True)
    assert {name: os.environ[name] for name in message} == message
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ


def test_a_jvm_that_runs_already_is_reported_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    without_java(monkeypatch)
    prepare_jvm(is_local=True)
    assert "SPARK_LOCAL_IP" not in os.environ


def test_a_jvm_logs_little_unless_there_is_a_profile_of_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = f"-Dlog4j2.configurationFile=file://{HERE}/log4j2.properties"
    assert spark_environment._quietly("") == ours
    assert spark_environment._quietly("-Xss4m") == f"-Xss4m {ours}"
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "log4j2.properties.template").touch()
    assert spark_environment._quietly("") == ours
    (tmp_path / "log4j2.properties").touch()
    assert spark_environment._quietly("") == ""


def test_the_interpreter_of_workers_leaves_out_what_is_zipped() -> None:
    prepare_jvm(is_local=True)
    zipped = ["/s/python/lib/pyspark.zip", "/s/python/lib/py4j-0.10-src.zip", "/s/jars/spark-core.jar"]
    done = subprocess.run(
        [
            worker_python(),
            "-c",
            "import os, sys; print(os.environ['PYTHONPATH'], sys.argv[1:], sep='|')",
            "a b",
            "*",
        ],
        env={**os.environ, "PYTHONPATH": ":".join([*zipped, "/mine with blanks", "", "/x*"])},
        capture_output=True,
        check=True,
        text=True,
    )
    assert worker_python() == SCRIPT
    assert done.stdout == "/mine with blanks:/x*|['a b', '*']\n"


def test_workers_of_a_jvm_that_others_started_have_the_plain_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker_python() == sys.executable
    monkeypatch.setenv("ORBITMQ_SPARK_PYTHON", "/another/python")
    assert worker_python() == sys.executable


def test_without_the_script_workers_have_the_plain_interpreter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_jvm(is_local=True)
    monkeypatch.setattr(spark_environment, "SCRIPT", str(tmp_path / "gone"))
    assert worker_python() == sys.executable
