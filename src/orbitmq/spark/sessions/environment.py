"""Environment variables for the JVM of Spark and the Python processes that it starts."""

from __future__ import annotations

import os
import pathlib
import re
import sys

from orbitmq.spark.sessions import java

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "worker-python")
INTERPRETER = "ORBITMQ_SPARK_PYTHON"
LOG_PROFILES = ("log4j2.properties", "log4j2.xml", "log4j2.yaml", "log4j2.json")


def prepare_jvm(is_local: bool) -> None:
    """Set the variables that are not set yet, before the JVM starts. Raises JavaMissingError."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return  # spark-submit has started it, and this program after it.
    os.environ["JAVA_HOME"] = java.find().home
    os.environ["SPARK_SUBMIT_OPTS"] = _quietly(os.environ.get("SPARK_SUBMIT_OPTS", ""))
    os.environ[INTERPRETER] = sys.executable
    is_own = os.environ.get("PYSPARK_DRIVER_PYTHON", sys.executable) == sys.executable
    if "PYSPARK_PYTHON" not in os.environ and is_own:
        # Data sources are planned by the interpreter that has this package.
        os.environ["PYSPARK_DRIVER_PYTHON"] = worker_python()
    if is_local:
        # Spark then does not resolve the host name of this machine, which may fail.
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")


def prepare_connect() -> None:
    """Set the variables for a Spark Connect server in this process. Raises JavaMissingError."""
    prepare_jvm(is_local=True)
    os.environ.setdefault("PYSPARK_PYTHON", worker_python())


def worker_python() -> str:
    """The interpreter of Spark's Python processes on this machine: this one, with a faster start."""
    # A JVM that was started elsewhere lacks the variable that the script needs.
    is_known = os.environ.get(INTERPRETER) == sys.executable
    return SCRIPT if is_known and os.access(SCRIPT, os.X_OK) else sys.executable


def configured_master() -> str | None:
    """The master in Spark's own configuration, as far as that is known before it runs."""
    if configured := os.environ.get("MASTER"):
        return configured
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
    """The options of Java with our log profile, unless the user configured one."""
    theirs = (f"{folder}/{name}" for folder in _configuration_folders() for name in LOG_PROFILES)
    if "log4j" in options or any(map(os.path.exists, theirs)):
        return options
    profile = pathlib.Path(HERE, LOG_PROFILES[0]).as_uri()
    return f"{options} -Dlog4j2.configurationFile={profile}".strip()


def _configuration_folders() -> list[str]:
    """The configuration folder of Spark."""
    if folder := os.environ.get("SPARK_CONF_DIR"):
        return [folder]
    home = os.environ.get("SPARK_HOME")
    return [os.path.join(home, "conf")] if home else []
