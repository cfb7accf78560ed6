"""Users and rules on a cluster that authenticates; replication, and slaves that are gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq.testing import LocalCluster
from support.cli.operator_shell import Shell

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq.testing import ThreadCluster

SETTINGS = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"roots-secret"}',
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inners-secret"}',
}
QUIET = ("--disk-warning", 0, "--disk-critical", 0)


@pytest.fixture(scope="module")
def guarded() -> Iterator[ThreadCluster]:
    with LocalCluster(settings=SETTINGS) as running:
        yield running


@pytest.fixture
def root(guarded: ThreadCluster, tmp_path: Path) -> Shell:
    """A shell with the keys of a super user."""
    shell = Shell(guarded.name_server, tmp_path / "contexts.json")
    shell.environment |= {"ORBITMQ_ACCESS_KEY": "root", "ORBITMQ_SECRET_KEY": "roots-secret"}
    return shell


def test_requests_are_signed_by_keys_of_the_environment_or_a_context(root: Shell, tmp_path: Path) -> None:
    root.ok("topic", "create", "orders", "-q", 1)
    stranger = Shell(root.name_server, tmp_path / "others.json")
    refused = stranger.run("topic", "create", "invoices", "-q", 1)
    assert (refused.code, refused.out) == (1, "")
    given = ("--access-key", "root")
    stranger.ok("context", "add", "here", "-n", root.name_server, *given, stdin="roots-secret\n")
    stranger.ok("topic", "create", "invoices", "-q", 1, "--context", "here")


def test_users_and_rules_are_created_altered_and_deleted(root: Shell) -> None:
    planned = root.ok("user", "create", "alice", "--dry-run", stdin="alices-secret\n")
    assert "  + type = Normal" in planned.out
    assert "alices-secret" not in planned.out
    assert "alice" not in root.ok("user", "list").out
    root.ok("user", "create", "alice", stdin="alices-secret\n")
    assert {one["name"]: one["type"] for one in root.value("user", "list")}["alice"] == "Normal"
    altered = root.ok("user", "alter", "alice", "--super")
    assert "  - type = Normal\n  + type = Super\n" in altered.out
    rule = ("User:alice", "-r", "Topic:orders", "-a", "Pub", "-a", "Sub")
    assert "  + Topic:orders = Allow Pub,Sub" in root.ok("rule", "create", *rule, "--dry-run").out
    assert root.value("rule", "list") == []
    root.ok("rule", "create", *rule)
    (found,) = root.value("rule", "list")
    assert (found["subject"], found["resource"], found["decision"]) == ("User:alice", "Topic:orders", "Allow")
    changed = root.ok("rule", "alter", *rule, "--deny")
    assert "  - Topic:orders = Allow Pub,Sub\n  + Topic:orders = Deny Pub,Sub\n" in changed.out
    assert root.run("rule", "delete", "User:alice").code == 2
    root.ok("rule", "delete", "User:alice", "--yes")
    root.ok("user", "delete", "alice", "--yes")
    assert root.run("user", "delete", "alice", "--yes").code == 3


def test_a_slave_is_listed_and_missed(tmp_path: Path) -> None:
    with LocalCluster(replicas=2) as cluster:
        shell = Shell(cluster.name_server, tmp_path / "contexts.json")
        _wait(shell, "check", *QUIET, "--only", "slave", code=0)
        master = shell.value("broker", "replication", "broker-a")
        assert (master["role"], len(master["slaves"])) == ("master", 1)
        slave = next(one for one in shell.value("brokers") if one["role"] == "slave")
        assert shell.value("broker", "replication", slave["address"])["role"] == "slave"
        status = shell.ok("mqadmin", "haStatus", "-n", cluster.name_server, "-c", "DefaultCluster").out
        assert "#MasterCommitLogMaxOffset" in status
        cluster.kill("broker-a-1")
        gone = _wait(shell, "check", *QUIET, "--only", "slave", code=(1, 2))
        assert "broker-a" in gone


def _wait(shell: Shell, *words: object, code: int | tuple[int, ...]) -> str:
    """Run a command until it ends with a code; the test's own limit ends it otherwise."""
    wanted = code if isinstance(code, tuple) else (code,)
    while (ran := shell.run(*words)).code not in wanted:
        pass
    return ran.out


def test_mqadmin_takes_keys_from_tools_yml(
    guarded: ThreadCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "tools.yml").write_text('accessKey: "root"\nsecretKey: "roots-secret"  # ours\n')
    shell = Shell(guarded.name_server, tmp_path / "contexts.json")
    here = ("-n", shell.name_server, "-b", guarded.address("broker-a"))
    assert shell.run("mqadmin", "createUser", *here, "-u", "bob", "-p", "secret").code == 1
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert shell.ok("mqadmin", "createUser", *here, "-u", "bob", "-p", "secret").out.endswith("success.\n")
    assert "bob" in shell.ok("mqadmin", "listUser", *here).out
    shell.ok("mqadmin", "updateUser", *here, "-u", "bob", "-s", "disable")
    assert "disable" in shell.ok("mqadmin", "getUser", *here, "-u", "bob").out
    rule = ("-s", "User:bob", "-r", "Topic:a,Topic:b", "-a", "Pub,Sub", "-d", "Allow")
    shell.ok("mqadmin", "createAcl", *here, *rule)
    shell.ok("mqadmin", "updateAcl", *here, *rule[:-1], "Deny")
    assert "Deny" in shell.ok("mqadmin", "getAcl", *here, "-s", "User:bob").out
    assert shell.ok("mqadmin", "listAcl", *here).out.count("User:bob") == 2
    shell.ok("mqadmin", "deleteAcl", *here, "-s", "User:bob")
    shell.ok("mqadmin", "deleteUser", *here, "-u", "bob")
    assert "No user with name bob" in shell.ok("mqadmin", "getUser", *here, "-u", "bob").out
