"""Python gRPC client as a peer: producers and consumers in one process that does what a line of JSON says.

Runs in an environment of its own with PyPI's rocketmq-python-client. Argument: the endpoints. A request is a line
of standard input, an object with "do" and its arguments; its answer is a line of standard output.
"""

import base64
import json
import sys
import threading
import time

answers = sys.stdout
sys.stdout = sys.stderr

from rocketmq import (  # noqa: E402
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)

CONFIGURATION = ClientConfiguration(sys.argv[1], Credentials())
RESOLUTIONS = {"commit": TransactionResolution.COMMIT, "rollback": TransactionResolution.ROLLBACK}


class Checker(TransactionChecker):
    def __init__(self, resolution):
        self.resolution = resolution

    def check(self, message):
        return self.resolution


class Listener(MessageListener):
    def __init__(self, failures):
        self.failures = dict(failures)
        self.received = []
        self.changed = threading.Condition()

    def consume(self, message):
        with self.changed:
            self.received.append(described(message))
            self.changed.notify_all()
            body = message.body.decode()
            if self.failures.get(body, 0) > 0:
                self.failures[body] -= 1
                return ConsumeResult.FAILURE
            return ConsumeResult.SUCCESS

    def take(self, count, seconds):
        deadline = time.monotonic() + seconds
        with self.changed:
            while len(self.received) < count and time.monotonic() < deadline:
                self.changed.wait(max(deadline - time.monotonic(), 0.01))
            found, self.received = self.received, []
            return found


def described(message):
    return {
        "topic": message.topic,
        "body": base64.b64encode(message.body).decode(),
        "tag": message.tag,
        "keys": sorted(message.keys or ()),
        "properties": dict(message.properties or {}),
        "messageId": message.message_id,
        "attempt": message.delivery_attempt,
        "group": message.message_group,
    }


def made(wanted):
    message = Message()
    message.topic = wanted["topic"]
    message.body = base64.b64decode(wanted["body"])
    if wanted.get("tag"):
        message.tag = wanted["tag"]
    if wanted.get("keys"):
        message.keys = wanted["keys"][0]
    if wanted.get("group"):
        message.message_group = wanted["group"]
    if wanted.get("delayMs"):
        message.delivery_timestamp = int(time.time() + wanted["delayMs"] / 1000)
    for key, value in (wanted.get("properties") or {}).items():
        message.add_property(key, value)
    return message


class Agent:
    def __init__(self):
        self.clients = {}
        self.listeners = {}
        self.messages = {}

    def producer(self, name, topics, check="commit"):
        self.clients[name] = Producer(CONFIGURATION, tuple(topics), checker=Checker(RESOLUTIONS[check]))
        self.clients[name].startup()

    def send(self, name, messages):
        found = []
        for wanted in messages:
            sent = self.clients[name].send(made(wanted))
            found.append(
                {"messageId": sent.message_id, "recallHandle": sent.recall_handle or "", "offset": sent.offset}
            )
        return found

    def recall(self, name, topic, handle):
        return self.clients[name].recall_message(topic, handle)

    def transaction(self, name, message, action):
        transaction = self.clients[name].begin_transaction()
        sent = self.clients[name].send(made(message), transaction)
        if action == "commit":
            transaction.commit()
        elif action == "rollback":
            transaction.rollback()
        return sent.message_id

    def simple(self, name, group, topics, seconds=5):
        self.clients[name] = SimpleConsumer(CONFIGURATION, group, filters(topics), await_duration=seconds)
        self.clients[name].startup()

    def receive(self, name, count, invisible):
        try:
            found = self.clients[name].receive(count, invisible)
        except Exception:
            # A receive right after the start may overtake the settings, which Apache's proxy refuses.
            time.sleep(1)
            found = self.clients[name].receive(count, invisible)
        self.messages.update({(name, message.message_id): message for message in found})
        return [described(message) for message in found]

    def ack(self, name, ids):
        for one in ids:
            self.clients[name].ack(self.messages[name, one])

    def hide(self, name, message, seconds):
        self.clients[name].change_invisible_duration(self.messages[name, message], seconds)

    def push(self, name, group, topics, failures):
        self.listeners[name] = Listener(failures)
        self.clients[name] = PushConsumer(CONFIGURATION, group, self.listeners[name], filters(topics))
        self.clients[name].startup()

    def take(self, name, count, seconds):
        return self.listeners[name].take(count, seconds)

    def close(self, name):
        self.clients.pop(name).shutdown()


def filters(topics):
    return {topic: FilterExpression(one["expression"], 2 if one["sql"] else 1) for topic, one in topics.items()}


agent = Agent()
for line in sys.stdin:
    request = json.loads(line)
    try:
        answer = {"answer": getattr(agent, request.pop("do"))(**request)}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
