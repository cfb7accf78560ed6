"""Contexts, health, bundles and definitions as a user types them; YAML."""

from __future__ import annotations

import json
import os
import stat
import tarfile
from typing import TYPE_CHECKING

import yaml

from orbitmq.cli.admin.framework.yaml_text import yaml_text

if TYPE_CHECKING:
    from pathlib import Path

    from support.cli.operator_shell import Shell

QUIET = ("--disk-warning", 0, "--disk-critical", 0)


def test_contexts_are_kept_in_a_private_file(shell: Shell, tmp_path: Path) -> None:
    address = shell.environment.pop("NAMESRV_ADDR")
    shell.environment["NAMESRV_ADDR"] = ""
    shell.ok("context", "add", "here", "-n", address)
    shell.ok("context", "add", "prod", "-n", "10.0.0.5:9876", "--access-key", "ops", stdin="hush-hush\n")
    file = tmp_path / "contexts.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    listed = shell.value("context", "list")
    assert [(one["name"], one["current"]) for one in listed] == [("here", True), ("prod", False)]
    assert shell.value("cluster", "list")[0]["name"] == "DefaultCluster"
    shell.ok("context", "use", "prod")
    assert "hush-hush" not in shell.ok("context", "show", "prod").out
    assert shell.value("cluster", "list", "--context", "here")[0]["name"] == "DefaultCluster"
    assert shell.value("cluster", "list", "-n", address)[0]["name"] == "DefaultCluster"
    file.chmod(0o644)
    refused = shell.run("cluster", "list")
    assert (refused.code, "chmod 600" in refused.err) == (1, True)
    file.chmod(0o600)
    shell.ok("context", "remove", "prod")
    assert "hush-hush" not in file.read_text()
    assert shell.run("context", "use", "prod").code == 1
    file.write_text("{")
    assert shell.run("context", "list").code == 1


def test_a_current_context_is_for_messages_as_well(shell: Shell) -> None:
    shell.ok("context", "add", "here", "-n", shell.environment["NAMESRV_ADDR"])
    os.environ["ORBITMQ_CONTEXTS"] = shell.environment["ORBITMQ_CONTEXTS"]
    try:
        shell.environment["NAMESRV_ADDR"] = ""
        shell.ok("topic", "create", "greetings", "-q", 1)
        shell.ok("send", "greetings", "hello", "--key", "k")
        assert shell.ok("find", "greetings", "k").out.endswith("hello\n")
    finally:
        del os.environ["ORBITMQ_CONTEXTS"]


def test_health_is_an_exit_code_and_reasons(shell: Shell) -> None:
    well = shell.run("check", *QUIET, "-o", "json")
    assert (well.code, well.json["health"], well.json["brokers"]) == (0, "OK", 2)
    full = shell.run("check", "--disk-warning", "0.000001", "--disk-critical", "0.000002")
    assert full.code == 2
    assert "CRITICAL" in full.out
    assert "full" in full.out
    assert shell.run("check", "--disk-warning", "0.000001", "--only", "lag").code == 0
    assert shell.run("check", "--only", "nonsense").code == 2
    gone = shell.run("check", "-n", "127.0.0.1:1")
    assert (gone.code, "UNKNOWN" in gone.err) == (3, True)


def test_a_bundle_is_one_archive(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "bundle.tar.gz"
    shell.ok("bundle", file)
    with tarfile.open(file) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"topology.json", "health.json", "brokers/broker-b-0/settings.json"} <= names
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert shell.run("bundle", file).code == 1


def test_definitions_are_exported_compared_and_imported(shell: Shell, tmp_path: Path) -> None:
    shell.ok("topic", "create", "orders", "-q", 3)
    shell.ok("group", "create", "billing", "--max-retries", 5)
    for name in ("all.json", "all.yaml"):
        file = tmp_path / name
        shell.ok("definitions", "export", file)
        assert shell.run("definitions", "diff", file).code == 0
    shell.ok("topic", "alter", "orders", "-q", 4)
    assert shell.run("definitions", "diff", file).code == 1
    planned = shell.ok("definitions", "import", file, "--dry-run")
    assert "  - writeQueueNums = 4\n  + writeQueueNums = 3\n" in planned.out
    shell.ok("definitions", "import", "-", stdin=file.read_text())
    assert shell.value("topic", "list", "orders")[0]["writeQueues"] == 6
    exported = shell.ok("definitions", "export").json
    assert {one["name"] for one in exported["topics"]} >= {"orders"}
    (tmp_path / "bad.json").write_text('{"format": "other"}')
    assert shell.run("definitions", "import", tmp_path / "bad.json").code == 2
    assert shell.run("definitions", "import", tmp_path / "absent.json").code == 1


def test_yaml_reads_back_as_it_was() -> None:
    value: dict[str, object] = {
        "name": "orders",
        "yes": "no",
        "number": "12",
        "none": None,
        "empty": {"list": [], "object": {}},
        "list": [1, 2.5, True, "a: b", "- c", "#d", "two words", "two  blanks", " e", "line\nbreak"],
        "nested": [{"a": 1, "b": [{"c": "x"}]}, []],
        "ü": "ö",
        "date": "2026-11-01",
    }
    assert yaml.safe_load(yaml_text(value)) == value
    assert json.loads(yaml_text("12")) == "12"
