"""The files in ``deploy`` are accepted by the programs that read them."""

from __future__ import annotations

import shutil
import subprocess
from typing import Any

import pytest
import yaml

from support.paths import PROJECT

DEPLOY = PROJECT / "deploy"


def test_systemd_accepts_the_unit() -> None:
    verifier = shutil.which("systemd-analyze")
    if verifier is None:
        pytest.skip("there is no systemd-analyze here")
    command = [verifier, "verify", "--man=no", str(DEPLOY / "orbitmq.service")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    # The program that the unit starts is not installed here.
    complaints = [line for line in done.stderr.splitlines() if "orbitmq.service" in line and "/bin/sh" not in line]
    assert complaints == []


def test_the_compose_file_builds_the_container_with_its_ports_and_data() -> None:
    compose: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    service = compose["services"]["orbitmq"]
    container = (DEPLOY / "Containerfile").read_text("utf-8")
    context = (DEPLOY / service["build"]["context"]).resolve()
    assert (context / service["build"]["dockerfile"]).samefile(DEPLOY / "Containerfile")
    exposed = next(line for line in container.splitlines() if line.startswith("EXPOSE")).split()[1:]
    assert {port.rpartition(":")[2] for port in service["ports"]} == set(exposed)
    assert [volume.partition(":")[2] for volume in service["volumes"]] == ["/data"]
    assert "VOLUME /data" in container
    assert set(service["environment"]) <= {word.strip("$\"'\\") for word in container.replace("=", " ").split()}
