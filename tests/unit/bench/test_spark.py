"""The benchmark of Spark asks for what its driver can do, and counts what everything took. Spark is not started."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys

import pytest

from support.paths import PROJECT

# The benchmarks are no part of what is installed.
sys.path.append(str(PROJECT))

from bench.figures import Size
from bench.spark.command import BODIES, CPU, LOG, ROWS, _sample
from bench.spark.driver import Driver
from bench.spark.loads import LOADS, PLANS, Load, request_of
from bench.spark.systems import Answer
from bench.spark.usage import session_seconds


@pytest.mark.parametrize("is_kafka", [False, True])
@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_a_driver_accepts_its_requests(load: Load, is_kafka: bool) -> None:
    request = request_of(load, PLANS[Size.QUICK], number=0, is_kafka=is_kafka, store="/store")
    verb = getattr(Driver, request.pop("do"))
    assert set(inspect.signature(verb).bind(None, **request).arguments) >= request.keys()


def test_sources_are_measured_as_batch_and_as_stream_with_all_columns_and_with_few() -> None:
    found = {(load.verb, load.size, load.pruned) for load in LOADS}
    assert found >= {("batch", size, pruned) for size in (128, 1024) for pruned in (False, True)}
    assert found >= {("stream", 128, False), ("stream", 128, True), ("scan", 1024, False), ("sink", 128, False)}


def test_a_sample_is_of_rows_bodies_and_processor_time() -> None:
    values = _sample(Load("store", "scan", 1024), Answer(1000, 0.5, 0.004)).values
    assert values[ROWS] == 2000
    assert values[BODIES] == pytest.approx(2.048)
    assert values[LOG] > values[BODIES]
    assert values[CPU] == pytest.approx(4)


def test_processor_time_is_that_of_a_session_with_groups_of_its_own() -> None:
    # As Spark does it: a child that leads a group of its own does the work.
    child = "import os; os.setpgid(0, 0); sum(range(3_000_000))"
    script = (
        f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}]); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert session_seconds(process.pid) > 0
        assert session_seconds(process.pid) != session_seconds(os.getsid(0))
        process.communicate(b"\n")
