"""``orbitmq find`` prints the messages that have a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq import Message
from support.cli.command import run

if TYPE_CHECKING:
    from pathlib import Path

    from orbitmq.testing import ThreadCluster


def test_people_get_a_line_a_message(orbitmq: ThreadCluster) -> None:
    producer = orbitmq.producer()
    receipt = producer.send(Message("orders", "hello", keys=["42"], tags="paid"))
    producer.send(Message("orders", "other", keys=["43"]))
    for key in ("42", receipt.message_id):
        ran = run("find", "orders", key, "-n", orbitmq.name_server)
        assert (ran.code, ran.err) == (0, "")
        assert ran.out.endswith("paid  #42  hello\n")
        assert ran.out.count("\n") == 1


def test_machines_get_what_can_be_sent_again(orbitmq: ThreadCluster, tmp_path: Path) -> None:
    producer = orbitmq.producer()
    for number in range(3):
        producer.send(Message("orders", str(number), keys=["k"], properties={"amount": "9"}))
    ran = run("find", "orders", "k", "-n", orbitmq.name_server, "--json")
    assert [(line["body"], line["keys"], line["topic"]) for line in ran.lines] == [
        (str(number), ["k"], "orders") for number in range(3)
    ]
    lines = tmp_path / "lines.jsonl"
    lines.write_text(ran.out)
    sent = run("send", "copies", "--file", lines, "-n", orbitmq.name_server)
    assert sent.code == 0, sent.err
    copies = {(message.text(), message.properties["amount"]) for message in orbitmq.messages("copies")}
    assert copies == {(str(number), "9") for number in range(3)}


def test_an_unknown_key_is_an_error(orbitmq: ThreadCluster) -> None:
    orbitmq.producer().send(Message("orders", "hello", keys=["42"]))
    ran = run("find", "orders", "43", "-n", orbitmq.name_server)
    assert (ran.code, ran.out) == (1, "")
    assert "no message of the topic 'orders' has the key '43'" in ran.err
    assert run("find", "orders", "42", "-n", orbitmq.name_server, "--from", "2999-01-01").code == 1
    assert run("find", "nowhere", "42", "-n", orbitmq.name_server).code == 1
