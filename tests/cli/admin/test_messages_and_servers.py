"""``orbitmq message``, ``dlq``, ``broker``, ``config``, ``nameserver`` and ``event`` as a user types them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from orbitmq.cli.app import is_operated
from orbitmq.protocol.names import DLQ_PREFIX

if TYPE_CHECKING:
    from pathlib import Path

    from support.cli.operator_shell import Shell


@pytest.fixture(scope="module")
def sent(module_shell: Shell) -> list[str]:
    """Ids of six messages of the topic ``parcels``, which has two queues per broker."""
    module_shell.ok("topic", "create", "parcels", "-q", 2)
    return module_shell.send("parcels", 6)


def test_messages_are_queried_by_key_time_tag_and_offset(shell: Shell, sent: list[str]) -> None:
    assert shell.ok("message", "query", "parcels", "-k", "key-3", "-f", r"%k %b %g\n").out == "key-3 body 3 B\n"
    assert shell.ok("message", "query", "parcels", "-k", "key-3", "-f", "{body}").out == "body 3\n"
    everything = shell.ok("message", "query", "parcels", "-f", r"%i\n").out.split()
    assert sorted(everything) == sorted(sent)
    assert len(shell.ok("message", "query", "parcels", "--from", "-1h", "--count", 2, "-o", "json").lines) == 2
    only_a = shell.ok("message", "query", "parcels", "--tag", "A", "-f", "%g").out
    assert only_a == "AAA"
    one = shell.ok("message", "query", "parcels", "-k", "key-1", "-o", "json").lines[0]
    place = ("-b", one["brokerName"], "-q", one["queueId"], "--offset", one["queueOffset"])
    assert shell.ok("message", "query", "parcels", *place, "-f", "%i").out == one["msgId"]
    assert shell.run("message", "query", "parcels", "--from", "+1h").code == 3
    assert shell.run("message", "query", "parcels", "-f", "%Z").code == 2
    assert shell.run("message", "query", "parcels", "--offset", 3).code == 2


def test_a_message_is_shown_with_its_groups(shell: Shell, sent: list[str]) -> None:
    shell.ok("group", "create", "packers")
    shell.ok("reset", "packers", "-t", "parcels", "--to", "earliest", "--yes")
    shown = shell.value("message", "show", "parcels", sent[2])
    assert (shown["body"], shown["keys"]) == ("body 2", ["key-2"])
    assert [one["track"] for one in shown["groups"] if one["group"] == "packers"] == ["NOT_ONLINE"]
    assert "body 2" in shell.ok("message", "show", "parcels", shown["offsetMsgId"]).out
    assert shell.value("message", "track", "parcels", sent[2])[0]["track"] == "NOT_ONLINE"
    assert shell.run("message", "show", "parcels", "nonsense").code == 3


def test_a_message_is_sent_again(shell: Shell, sent: list[str]) -> None:
    shell.ok("topic", "create", "copies", "-q", 1)
    again = ("message", "resend", "parcels", sent[0], "--to", "copies", "--body", "changed")
    assert "copies" in shell.ok(*again, "--dry-run").out
    assert shell.run(*again).code == 2
    shell.ok(*again, "--yes")
    assert shell.ok("message", "query", "copies", "-f", r"%k %b\n").out == "key-0 changed\n"


def test_dead_letters_are_listed_shown_and_sent_again(shell: Shell, sent: list[str]) -> None:
    assert "no group has dead letters" in shell.ok("dlq", "list").err
    shell.ok("topic", "create", f"{DLQ_PREFIX}packers", "-q", 1)
    shell.send(f"{DLQ_PREFIX}packers", 2)
    assert [(one["group"], one["messages"]) for one in shell.value("dlq", "list")] == [("packers", 2)]
    bodies = shell.ok("dlq", "show", "packers", "-f", r"%b\n").out.splitlines()
    assert sorted(bodies) == ["body 0", "body 1"]
    shell.ok("topic", "create", "second", "-q", 1)
    kinds = shell.value("dlq", "kinds", "packers")
    assert [(one["tag"], one["messages"]) for one in kinds] == [("A", 1), ("B", 1)]
    assert len(shell.value("dlq", "resend", "packers", "--to", "second", "--dry-run")) == 2
    assert shell.run("dlq", "resend", "packers").code == 2
    (one,) = shell.value("dlq", "resend", "packers", "--to", "second", "--count", 1, "--yes")
    assert shell.ok("message", "query", "second", "-f", "%i").out == one["newMessage"]
    assert shell.run("dlq", "show", "absent").code == 3


def test_deferred_messages_and_open_transactions_are_listed(shell: Shell) -> None:
    shell.ok("topic", "create", "later", "-q", 1)
    shell.ok("send", "later", "tomorrow", "--delay", "1h", "--key", "due")
    (one,) = shell.value("message", "deferred")
    assert (one["topic"], one["keys"]) == ("later", "due")
    assert "no transaction is open" in shell.ok("message", "transactions").err


def test_avro_bodies_are_decoded(shell: Shell, tmp_path: Path) -> None:
    schema = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}]}
    (tmp_path / "point.avsc").write_text(json.dumps(schema))
    rules = tmp_path / "decoders.toml"
    rules.write_text('[[decoder]]\ntopics = ["points"]\nformat = "avro"\nschema = "point.avsc"\n')
    shell.ok("topic", "create", "points", "-q", 1)
    shell.ok("send", "points", "\x02", "--key", "point")
    message_id = shell.ok("message", "query", "points", "--key", "point", "-f", "%i").out
    shown = shell.value("message", "show", "points", message_id, "--decoders", rules)
    assert json.loads(shown["bodyDecoded"]) == {"x": 1}


def test_brokers_and_clusters_are_listed(shell: Shell) -> None:
    rows = shell.value("brokers")
    assert [(one["broker"], one["role"], one["state"]) for one in rows] == [
        ("broker-a", "master", "up"),
        ("broker-b", "master", "up"),
    ]
    (cluster,) = shell.value("cluster", "list")
    assert (cluster["name"], cluster["masters"]) == ("DefaultCluster", 2)
    assert len(shell.value("cluster", "describe")["brokers"]) == 2
    status = shell.value("broker", "status", "broker-a", "--match", "putTps")
    assert list(status) == ["putTps"]
    assert [one["state"] for one in shell.value("nameserver", "list")] == ["up"]
    assert len(shell.value("broker", "clean", "expired-queues")) == 2
    assert shell.run("broker", "clean", "expired-log").code == 2


def test_only_options_start_a_server() -> None:
    assert is_operated("broker", ["status", "broker-a"])
    assert not is_operated("broker", ["-n", "127.0.0.1:9876"])
    assert not is_operated("broker", [])
    assert not is_operated("serve", ["status"])


def test_settings_are_read_changed_and_compared(shell: Shell) -> None:
    planned = shell.ok("config", "set", "flushDelayOffsetInterval=7000", "-b", "broker-a", "--dry-run")
    assert "  - flushDelayOffsetInterval = 10000\n  + flushDelayOffsetInterval = 7000\n" in planned.out
    shell.ok("config", "set", "flushDelayOffsetInterval=7000", "-b", "broker-a")
    found = shell.value("broker", "config", "get", "^flushDelay")
    assert [(one["broker"], one["value"]) for one in found] == [("broker-a", "7000"), ("broker-b", "10000")]
    assert {one["key"] for one in shell.value("config", "diff")} == {"flushDelayOffsetInterval"}
    assert shell.run("config", "get", "(").code == 2
    assert shell.value("nameserver", "config", "get", "listenPort")


def test_tables_of_name_servers_are_changed(shell: Shell) -> None:
    shell.ok("nameserver", "put", "space", "key", "value")
    assert shell.value("nameserver", "table", "space") == [{"key": "key", "value": "value"}]
    assert shell.run("nameserver", "remove", "space", "key").code == 2
    shell.ok("nameserver", "remove", "space", "key", "--yes")
    assert shell.value("nameserver", "table", "space") == []


def test_events_are_listed_by_kind(shell: Shell) -> None:
    shell.ok("topic", "create", "eventful", "-b", "broker-a")
    found = shell.value("event", "list", "--kind", "topic-create", "--since", "-1h")
    assert ("broker-a", "eventful") in [(one["broker"], one["subject"]) for one in found]
    assert shell.run("events", "--kind", "nonsense").code == 2


def test_the_write_permission_of_a_broker_is_withdrawn(shell: Shell, sent: list[str]) -> None:
    assert shell.run("broker", "wipe-write", "broker-a").code == 2
    (row,) = shell.value("broker", "wipe-write", "broker-a", "--yes")
    assert row["topics"] > 0
    assert {one["perm"] for one in shell.value("topic", "route", "parcels") if one["broker"] == "broker-a"} == {
        "R--"
    }
    shell.ok("broker", "add-write", "broker-a")
    assert {one["perm"] for one in shell.value("topic", "route", "parcels")} == {"RW-"}


def test_json_of_messages_is_what_send_reads(shell: Shell, sent: list[str]) -> None:
    lines = shell.ok("message", "query", "parcels", "-o", "json").out.splitlines()
    assert {json.loads(line)["body"] for line in lines} == {f"body {number}" for number in range(6)}
