"""What a JVM of Spark, and the Python processes that it starts, are told by variables of the environment."""

from __future__ import annotations

import os
import pathlib
import re
import sys

from orbitmq.spark import java

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "worker-python")
INTERPRETER = "ORBITMQ_SPARK_PYTHON"
LOG_PROFILES = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.json")


def prepare_jvm(is_local: bool) -> None:
    """Set what is not set yet, for a JVM that is about to start. Raises JavaMissingError."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return  # spark-submit has started it, and this program after it.
    os.environ["JAVA_HOME"] = java.find().home
    os.environ["SPARK_SUBMIT_OPTS"] = _quietly(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    os.environ[INTERPRETER] = sys.executable
    if "PYSPARK_PYTHON" not in os.environ:
        # Data sources are planned by the interpreter that has this package.
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", worker_python())
    if is_local:
        # Then it does not matter what the machine calls itself, and whether that can be found.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def prepare_connect() -> None:
    """The same for a Spark Connect server inside this process. Raises JavaMissingError."""
    prepare_jvm(is_local=True)
    os.environ.setdefault("PYSPARK_PYTHON", worker_python())


def worker_python() -> str:
    """The interpreter for Spark's processes on this machine: this one, started without what slows it down."""
    # A JVM that others started does not know for which interpreter the script is to stand.
    is_known = os.environ.get(INTERPRETER) == sys.executable
    return SCRIPT if is_known and os.access(SCRIPT, os.X_OK) else sys.executable


def master_said() -> str | None:
    """The master that Spark's own configuration names, as far as that can be known before it runs."""
    if said := os.environ.get("MASTER"):
        return said
    if found := re.search(r"--master[ =](\S+)", os.environ.get("PYSPARK_SUBMIT_ARGS", "")):
        return found[1]
    for folder in _configuration_folders():
        try:
            with open(os.path.join(folder, "spark-defaults.conf"), encoding="utf-8", errors="replace") as file:
                found = re.search(r"^[ \t]*spark\.master[ \t=:]+(\S+)", file.read(), re.MULTILINE)
        except OSError:
            continue
        if found:
            return found[1]
    return None


def _quietly(options: str) -> str:
    """Java's options with one more for logs, unless somebody has said what these are to be like."""
    theirs = (f"{folder}/{name}" for folder in _configuration_folders() for name in LOG_PROFILES)
    if "log4j" in options or any(map(os.path.exists, theirs)):
        return options
    profile = pathlib.Path(HERE, LOG_PROFILES[0]).as_uri()
    return f"{options} -Dlog4j2.configurationFile={profile}".strip()


def _configuration_folders() -> list[str]:
    """Where Spark looks: one place, which can be named."""
    if folder := os.environ.get("SPARK_CONF_DIR"):
        return [folder]
    home = os.environ.get("SPARK_HOME")
    return [os.path.join(home, "conf")] if home else []
