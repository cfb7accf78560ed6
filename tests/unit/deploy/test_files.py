"""The files in ``deploy`` are accepted by the programs that read them."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from orbitmq.cli.server import broker, nameserver
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


CHART = DEPLOY / "helm" / "orbitmq"


@pytest.mark.parametrize("program", [broker, nameserver], ids=["broker", "nameserver"])
def test_the_chart_starts_programs_with_options_that_they_have(program: Any) -> None:
    template = (CHART / "templates" / f"{program.__name__.rpartition('.')[2]}.yaml").read_text("utf-8")
    options = re.findall(r"^ +- (--[^ {]+?=.*)$", template, re.MULTILINE)
    assert len(options) >= 3
    # What is known only in the cluster is replaced by something of the same form.
    given = [re.sub(r"\{\{.*?\}\}|\$\(\w+\)", "10.0.0.1", option) for option in options]
    parsed = program.parser().parse_args(given)
    assert parsed.host == "0.0.0.0"
    assert ("adminNetworks", "10.0.0.1") in parsed.set


def test_the_chart_has_the_ports_and_the_user_of_the_container() -> None:
    container = (DEPLOY / "Containerfile").read_text("utf-8")
    templates = "".join(path.read_text("utf-8") for path in (CHART / "templates").iterdir())
    exposed = next(line for line in container.splitlines() if line.startswith("EXPOSE")).split()[1:]
    assert set(re.findall(r"containerPort: (\d+)", templates)) == set(exposed)
    assert "--uid 999 " in container
    assert set(re.findall(r"runAs(?:User|Group): (\d+)|fsGroup: (\d+)", templates)) == {("999", ""), ("", "999")}


def test_helm_accepts_the_chart() -> None:
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("there is no helm here")
    lint = subprocess.run([helm, "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False)
    assert lint.returncode == 0, lint.stdout + lint.stderr
    render = [helm, "template", "mq", str(CHART), "--set", "broker.settings.flushDiskType=SYNC_FLUSH"]
    done = subprocess.run(render, capture_output=True, text=True, check=True)
    made = [one for one in yaml.safe_load_all(done.stdout) if one]
    assert sorted(one["kind"] for one in made) == ["Service", "Service", "StatefulSet", "StatefulSet"]
    assert "--set=flushDiskType=SYNC_FLUSH" in done.stdout
