"""``orbitmq topic``, ``group`` and ``offset`` as a user types them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from orbitmq import Consumer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orbitmq.testing import ThreadCluster
    from support.cli.operator_shell import Shell


@pytest.fixture
def orders(shell: Shell) -> Iterator[str]:
    """A topic with two queues per broker and six messages."""
    shell.ok("topic", "create", "orders", "-q", 2)
    shell.send("orders", 6)
    yield "orders"
    shell.ok("topic", "delete", "orders", "--yes")


def test_a_topic_is_created_described_altered_and_deleted(shell: Shell) -> None:
    planned = shell.ok("topic", "create", "invoices", "-q", 4, "--type", "fifo", "--dry-run")
    assert "+ write queues = 4" in planned.out
    assert "dry run" in planned.err
    assert shell.value("topic", "list") == []
    shell.ok("topic", "create", "invoices", "-q", 4, "--type", "fifo")
    (row,) = shell.value("topic", "list")
    assert (row["name"], row["writeQueues"], row["type"], row["brokers"]) == (
        "invoices",
        8,
        "FIFO",
        ["broker-a", "broker-b"],
    )
    assert shell.value("topic", "describe", "invoices")["brokers"][0]["attributes"] == {"message.type": "FIFO"}
    changed = shell.ok("topic", "alter", "invoices", "--perm", "R", "-b", "broker-b")
    assert changed.out.splitlines() == ["topic invoices at broker-b", "  - perm = RW-", "  + perm = R--"]
    assert shell.value("topic", "list")[0]["perm"] == "R--/RW-"
    refused = shell.run("topic", "delete", "invoices")
    assert (refused.code, refused.out) == (2, "")
    assert "--yes" in refused.err
    shell.ok("topic", "delete", "invoices", "--yes")
    assert shell.run("topic", "describe", "invoices").code == 3


def test_output_is_a_table_json_or_yaml(shell: Shell, orders: str) -> None:
    table = shell.ok("topics").out
    assert [line.split()[:4] for line in table.splitlines()] == [
        ["NAME", "KIND", "TYPE", "WRITE"],
        ["orders", "normal", "NORMAL", "4"],
    ]
    assert "\033" not in table
    assert "- name: orders\n  kind: normal\n" in shell.ok("topics", "-o", "yaml").out
    assert shell.ok("topic", "list", "nothing").out == ""
    assert shell.ok("admin", "topic", "list").out == table


def test_routes_queues_and_traffic_of_a_topic(shell: Shell, cluster: ThreadCluster, orders: str) -> None:
    route = shell.value("topic", "route", orders)
    assert {(one["broker"], one["address"]) for one in route} == {
        (name, cluster.address(name)) for name in ("broker-a", "broker-b")
    }
    described = shell.value("topic", "describe", orders)
    assert described["messages"] == 6 == sum(one["messages"] for one in described["queues"])
    assert shell.run("topic", "traffic", orders).code == 0


def test_a_group_is_created_lags_and_is_reset(shell: Shell, orders: str) -> None:
    shell.ok("group", "create", "billing", "--max-retries", 3)
    missing = shell.run("group", "lag", "billing")
    assert (missing.code, "consumed nothing" in missing.err) == (3, True)
    shell.ok("group", "reset", "billing", "-t", orders, "--to", "earliest", "--yes")
    assert [row["lag"] for row in shell.value("lag") if row["group"] == "billing"] == [6]
    lag = shell.value("group", "lag", "billing")
    assert (lag["lag"], sum(one["brokerOffset"] for one in lag["queues"])) == (6, 6)
    planned = shell.ok("group", "reset", "billing", "--to", "now", "--dry-run")
    assert "offset" in planned.out
    assert shell.value("lag", "billing")["lag"] == 6
    assert shell.run("group", "reset", "billing", "--to", "now").code == 2
    shell.ok("reset", "billing", "--to", "now", "--yes")
    assert shell.value("lag", "billing")["lag"] == 0
    assert shell.ok("group", "skip", "billing", "--yes").err == "orbitmq: nothing to change\n"
    shell.ok("group", "reset", "billing", "--to", "-1h", "--yes")
    assert shell.value("lag", "billing")["lag"] == 6
    shell.ok("offset", "reset", "billing", orders, "--to", "offset:1", "-b", "broker-a", "-q", 0, "--yes")
    offsets = shell.value("offset", "list", "billing", orders)
    assert {(one["broker"], one["queue"]): one["offset"] for one in offsets}["broker-a", 0] == 1
    shell.ok("group", "create", "audit")
    shell.ok("offset", "clone", "billing", "audit", orders, "--yes")
    assert shell.value("offset", "list", "audit", orders) == offsets
    assert shell.value("group", "describe", "billing")["settings"][0]["maxRetries"] == 3
    for group in ("billing", "audit"):
        shell.ok("group", "delete", group, "--yes")


def test_members_of_a_group_are_listed(shell: Shell, cluster: ThreadCluster, orders: str) -> None:
    consumer = Consumer(shell.name_server, group="readers", consume_from_where="CONSUME_FROM_FIRST_OFFSET")
    consumer.on(orders)(lambda message: None)
    consumer.start()
    cluster.wait_until_consumed("readers")
    (member,) = shell.value("group", "members", "readers")
    assert member["language"] == "PYTHON"
    assert member["client"] in {one["client"] for one in shell.value("client", "list", "-g", "readers")}
    described = shell.value("group", "describe", "readers")
    assert (described["online"], described["subscriptionsAgree"]) == (True, True)
    info = shell.value("client", "describe", "readers", member["client"])
    assert len([one for one in info["queues"] if one["topic"] == orders]) == 4
    consumer.close()


def test_wrong_arguments_are_one_sentence(shell: Shell) -> None:
    for words, code, reason in (
        (("topic", "describe", "absent"), 3, "does not exist"),
        (("topic", "create", "bad topic!"), 2, "bad topic!"),
        (("topic", "create", "x", "--perm", "Q"), 2, "permission"),
        (("topic", "create", "x", "--attribute", "novalue"), 2, "KEY=VALUE"),
        (("group", "reset", "g", "--to", "whenever"), 2, "not a time"),
        (("group", "reset", "g", "--to", "offset:x"), 2, "not an offset"),
        (("group", "list", "--sort", "size"), 2, "name, lag or tps"),
        (("topic", "list", "-c", "NoCluster"), 3, "NoCluster"),
        (("topic", "list", "-n", "127.0.0.1:1"), 4, "127.0.0.1:1"),
        (("topic", "list", "--context", "absent"), 1, "context"),
    ):
        ran = shell.run(*words)
        assert (ran.code, ran.out) == (code, ""), (words, ran.err)
        assert reason in ran.err.replace("\n", " "), words
        assert "Traceback" not in ran.err
