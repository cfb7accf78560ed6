"""Transactions between Apache's Java clients and broker and ours, in all combinations."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from conformance.java.java_harness import eventually, everything_in
from conformance.sdk.sdk_harness import APACHE, OURS, create_topic, own_name, read_all
from conformance.servers.processes import CLUSTER, Serving, against_apache, serving
from orbitmq import Message, TransactionProducer, TransactionState
from peers.apache import ApacheBroker, available
from peers.java_client import BINARY_HEADERS, VERSIONS, JavaClient, unavailable
from peers.java_consumers import JavaPullConsumer, JavaPushConsumer
from peers.java_transactions import COMMIT, ROLLBACK, UNKNOWN, JavaTransactionProducer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orbitmq import ReceivedMessage
    from peers.apache import ApacheNameServer

SETTINGS = {
    # Apache's broker asks about what was ended, too, if that is not in its op queue yet.
    "transactionTimeOut": "1500",
    "transactionOpBatchInterval": "50",
    "transactionCheckInterval": "500",
    "transactionCheckMax": "1000",
    "mappedFileSizeCommitLog": str(16 << 20),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}
COMMITTED = 8
"""The bits of the sysFlag of what came out of a transaction."""

QUEUES = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    if against_apache() and (reason := available()):
        pytest.skip(reason)
    with serving(tmp_path_factory.mktemp("server"), SETTINGS) as running:
        yield running


@pytest.fixture(scope="module", params=VERSIONS)
def java(
    request: pytest.FixtureRequest, server: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaClient]:
    """A JVM with one version of the client after the other."""
    version: str = request.param
    if reason := unavailable(version):
        pytest.skip(reason)
    with JavaClient(version, home=tmp_path_factory.mktemp(version), nameserver=server.nameserver) as jvm:
        yield jvm


@pytest.fixture
def name(request: pytest.FixtureRequest, server: Serving) -> str:
    """A topic and a group that no other test has."""
    return create_topic(server, own_name(request), queues=QUEUES)


class Answers:
    """A check of the Python client that always returns the same state, and records the checked messages."""

    def __init__(self, state: TransactionState = TransactionState.UNKNOWN) -> None:
        self.state = state
        self._checked: list[ReceivedMessage] = []
        self._guard = threading.Lock()

    def __call__(self, message: ReceivedMessage) -> TransactionState:
        with self._guard:
            self._checked.append(message)
        return self.state

    @property
    def checked(self) -> list[ReceivedMessage]:
        with self._guard:
            return list(self._checked)


# Java's clients


def test_java_commits_rolls_back_and_is_checked(java: JavaClient, server: Serving, name: str) -> None:
    with (
        JavaTransactionProducer(java, name) as producer,
        JavaPullConsumer(java, f"{name}_readers") as puller,
        JavaPushConsumer(java, f"{name}_listeners", name) as consumer,
    ):
        for keys, state in (("late", COMMIT), ("never", ROLLBACK)):
            producer.answer(keys, state)
        receipt = producer.send(name, "at once", COMMIT, keys="once", tags="T", flag=7, properties={"own": "yes"})
        assert (receipt.status, receipt.state, receipt.transaction_id) == ("SEND_OK", COMMIT, receipt.message_id)
        assert producer.send(name, "taken back", ROLLBACK, keys="back").state == ROLLBACK
        late = producer.send(name, "after a question", UNKNOWN, keys="late", flag=-3)
        producer.send(name, "not even then", UNKNOWN, keys="never")
        queues = eventually(lambda: puller.queues(name), is_enough=lambda found: len(found) == QUEUES)
        found = {message.text: message for message in everything_in(puller, queues, 2)}

        assert found.keys() == {"at once", "after a question"}
        first = found["at once"]
        assert (first.message_id, first.flag, first.sys_flag) == (receipt.message_id, 7, COMMITTED)
        assert first.properties["own"] == "yes"
        assert {"TRAN_MSG", "PGROUP", "__transactionId__"} <= first.properties.keys()
        assert not {"REAL_TOPIC", "REAL_QID"} & first.properties.keys()
        assert found["after a question"].message_id == late.message_id
        checked = eventually(producer.checked, is_enough=lambda checks: len(checks) >= 2)
        assert {message.text for message in checked} == {"after a question", "not even then"}
        for message in checked:
            assert message.topic == name
            # The broker may have begun to ask before it knew the producer.
            assert message.properties["TRANSACTION_CHECK_TIMES"].isdigit()
        consumed = eventually(consumer.texts, is_enough=lambda texts: len(texts) >= 2)
        assert sorted(text or "" for text in consumed) == ["after a question", "at once"]


def test_java_with_binary_headers_is_checked_too(java: JavaClient, tmp_path: Path, name: str) -> None:
    with (
        JavaClient(java.version, home=tmp_path, nameserver=java.nameserver, headers=BINARY_HEADERS) as jvm,
        JavaTransactionProducer(jvm, name) as producer,
        JavaPullConsumer(jvm, f"{name}_readers") as puller,
    ):
        producer.answer("k", COMMIT)
        producer.send(name, "x", UNKNOWN, keys="k")
        queues = eventually(lambda: puller.queues(name), is_enough=lambda found: len(found) == QUEUES)
        (message,) = everything_in(puller, queues, 1)
        assert (message.text, message.sys_flag) == ("x", COMMITTED)


def test_java_that_does_not_know_is_checked_again(java: JavaClient, name: str) -> None:
    with JavaTransactionProducer(java, name) as producer, JavaPullConsumer(java, f"{name}_readers") as puller:
        producer.send(name, "x", UNKNOWN, keys="k")
        eventually(producer.checked, is_enough=lambda checks: len(checks) >= 2)
        producer.answer("k", COMMIT)
        queues = eventually(lambda: puller.queues(name), is_enough=lambda found: len(found) == QUEUES)
        (message,) = everything_in(puller, queues, 1)
        times = [int(one.properties["TRANSACTION_CHECK_TIMES"]) for one in producer.checked()]
        assert times == list(range(times[0], times[0] + len(times)))
        assert message.properties["TRANSACTION_CHECK_TIMES"] == str(times[-1])


def test_another_java_answers_for_one_that_was_killed(java: JavaClient, tmp_path: Path, name: str) -> None:
    with JavaClient(java.version, home=tmp_path, nameserver=java.nameserver) as dying:
        JavaTransactionProducer(dying, name).send(name, "orphan", UNKNOWN, keys="k")
        dying.kill()
    with JavaTransactionProducer(java, name) as heir, JavaPullConsumer(java, f"{name}_readers") as puller:
        heir.answer("k", COMMIT)
        heir.send(f"{name}_other", "so that brokers know it", COMMIT)
        queues = eventually(lambda: heir.queues(name))
        (message,) = everything_in(puller, queues, 1)
        assert message.text == "orphan"
        assert "orphan" in [checked.text for checked in heir.checked()]


# Java and Python in one group


def test_python_answers_for_java_that_was_killed(
    java: JavaClient, server: Serving, tmp_path: Path, name: str
) -> None:
    with JavaClient(java.version, home=tmp_path, nameserver=java.nameserver) as dying:
        receipt = JavaTransactionProducer(dying, name).send(name, "orphan", UNKNOWN, keys="k", tags="T", flag=5)
        dying.kill()
    check = Answers(TransactionState.COMMIT)
    with TransactionProducer(server.nameserver, group=name, check=check, topics=(name,)):
        (message,) = read_all(server, name, 1)
    assert (message.body, message.message_id) == (b"orphan", receipt.message_id)
    # Apache's broker forgets it when it puts a message back.
    assert message.flag == (0 if against_apache() else 5)
    checked = check.checked[0]
    assert (checked.topic, checked.body, checked.keys, checked.tags) == (name, b"orphan", ["k"], "T")
    assert (checked.message_id, checked.flag) == (receipt.message_id, 5)


def test_java_answers_for_python_that_is_gone(java: JavaClient, server: Serving, name: str) -> None:
    with TransactionProducer(server.nameserver, group=name, check=Answers()) as gone:
        gone.transaction(Message(name, b"orphan", keys="k")).__enter__()
    with JavaTransactionProducer(java, name) as heir, JavaPullConsumer(java, f"{name}_readers") as puller:
        heir.answer("k", COMMIT)
        heir.send(f"{name}_other", "so that brokers know it", COMMIT)
        queues = eventually(lambda: heir.queues(name))
        (message,) = everything_in(puller, queues, 1)
        assert (message.text, message.sys_flag) == ("orphan", COMMITTED)
        assert heir.checked()


# Python with both brokers


@pytest.mark.parametrize("whose", [OURS, APACHE])
def test_python_commits_rolls_back_and_is_checked(whose: str, tmp_path: Path) -> None:
    if whose == APACHE and (reason := available()):
        pytest.skip(reason)
    check = Answers()
    topic = "TransactionsOfPython"
    with serving(tmp_path / "server", SETTINGS, apache=whose == APACHE) as running:
        create_topic(running, topic, queues=QUEUES)
        with TransactionProducer(running.nameserver, group="shop", check=check) as producer:
            with producer.transaction(Message(topic, b"at once", keys="once")) as transaction:
                pass
            assert (transaction.state, transaction.is_settled) == (TransactionState.COMMIT, True)
            with (
                pytest.raises(ZeroDivisionError),
                producer.transaction(Message(topic, b"taken back")) as transaction,
            ):
                raise ZeroDivisionError
            assert (transaction.state, transaction.is_settled) == (TransactionState.ROLLBACK, True)
            receipt = producer.send_in_transaction(
                Message(topic, b"after questions", keys="late", flag=9), lambda _: TransactionState.UNKNOWN
            )
            eventually(lambda: check.checked, is_enough=lambda checks: len(checks) >= 2)
            check.state = TransactionState.COMMIT
            found = {message.body: message for message in read_all(running, topic, 2)}
            assert found.keys() == {b"at once", b"after questions"}
            assert found[b"after questions"].message_id == receipt.receipt.message_id
            assert {message.body for message in check.checked} == {b"after questions"}
            assert {message.message_id for message in check.checked} == {receipt.receipt.message_id}
            count = len(check.checked)
            with producer.transaction(Message(topic, b"rolled back later")) as transaction:
                transaction.unknown()
            check.state = TransactionState.ROLLBACK
            eventually(lambda: check.checked, is_enough=lambda checks: len(checks) > count)
            assert len(read_all(running, topic, 2)) == 2


# A store that changes hands


def test_apaches_broker_finishes_what_ours_began(apache_nameserver: ApacheNameServer, tmp_path: Path) -> None:
    topic = "ChangesHands"
    with serving(tmp_path / "ours", SETTINGS, apache=False) as ours:
        create_topic(ours, topic, queues=QUEUES)
        with TransactionProducer(ours.nameserver, group="shop", check=Answers()) as producer:
            with producer.transaction(Message(topic, b"committed")):
                pass
            with producer.transaction(Message(topic, b"rolled back")) as transaction:
                transaction.rollback()
            producer.transaction(Message(topic, b"pending", keys="k", flag=4)).__enter__()
        address = ours.broker_address
        ours.stop()
    (log,) = (tmp_path / "ours").rglob("commitlog")
    settings = {**SETTINGS, "brokerClusterName": CLUSTER, "listenPort": address.rpartition(":")[2]}
    check = Answers(TransactionState.COMMIT)
    nameserver = apache_nameserver.address
    with (
        ApacheBroker(log.parent, settings, home=tmp_path / "apache", nameserver=nameserver),
        TransactionProducer(nameserver, group="shop", check=check, topics=(topic,)),
    ):
        eventually(lambda: check.checked)
        assert {message.body for message in check.checked} == {b"pending"}

        class Apaches:
            nameserver = apache_nameserver.address

        found = read_all(Apaches(), topic, 2)  # type: ignore[arg-type]
    assert sorted(message.body for message in found) == [b"committed", b"pending"]
