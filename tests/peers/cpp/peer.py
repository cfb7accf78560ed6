"""The RocketMQ C++ client, as the wheel ``rocketmq`` of PyPI has it, in a process that is driven by JSON lines.

Arguments: the folder of the wheel and the name server's address. A request is a line of standard input, an object
with "do" and its arguments; its answer is a line of standard output, an object with either "answer" or "error".
"""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from typing import Any

sys.path.insert(0, sys.argv[1])

from rocketmq.client import (  # type: ignore[import-not-found]
    Message,
    Producer,
    PushConsumer,
    RecvMessage,
)

CONSUMED, LATER = 0, 1
NAME_SERVER = sys.argv[2]
producers: dict[str, Any] = {}
consumers: dict[str, Consumer | Counter] = {}


class Consumer:
    """A push consumer and the messages that it received and that were not returned yet."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._failures: dict[str, int] = request["failures"]
        self._received: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self.client = PushConsumer(request["group"])
        self.client.set_namesrv_addr(NAME_SERVER)
        self.client.subscribe(request["topic"], lambda _: None, request["expression"])
        # The callback of the binding cannot refuse a message: it raises where it should return the status.
        self.client._register_callback(self._consume)
        self.client.start()

    def _consume(self, _: Any, handle: Any) -> int:
        message = RecvMessage(handle)
        with self._changed:
            self._received.append(describe(message))
            self._changed.notify_all()
            body = message.body.decode("utf-8", "replace")
            if self._failures.get(body, 0) > 0:
                self._failures[body] -= 1
                return LATER
        return CONSUMED

    def take(self, count: int, seconds: float) -> list[dict[str, Any]]:
        deadline = time.monotonic() + seconds
        with self._changed:
            while len(self._received) < count and (left := deadline - time.monotonic()) > 0:
                self._changed.wait(left)
            taken, self._received = self._received, []
        return taken


class Counter:
    """A push consumer that counts what it is given."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._lock = threading.Lock()
        self._messages = 0
        self._first = self._last = 0.0
        self.client = PushConsumer(request["group"])
        self.client.set_namesrv_addr(NAME_SERVER)
        self.client.subscribe(request["topic"], lambda _: None, "*")
        self.client._register_callback(self._consume)
        self.client.start()

    def _consume(self, _: Any, __: Any) -> int:
        now = time.monotonic()
        with self._lock:
            self._messages += 1
            self._first = self._first or now
            self._last = now
        return CONSUMED

    def counted(self, count: int, seconds: float) -> dict[str, Any]:
        """What it was given, once that is enough or the time is up; the seconds are from the first to the last."""
        deadline = time.monotonic() + seconds
        while self._messages < count and time.monotonic() < deadline:
            time.sleep(0.001)
        with self._lock:
            return {
                "messages": self._messages,
                "failures": 0,
                "failure": "",
                "seconds": self._last - self._first,
            }


def send_for(request: dict[str, Any]) -> dict[str, Any]:
    """Send messages for some seconds, with so many threads that wait for each answer."""
    producer, body = producers[request["name"]], bytes(97 + at % 26 for at in range(request["size"]))
    failures: list[str] = []
    counts = [0] * request["workers"]
    start = time.monotonic()

    def work(number: int) -> None:
        while time.monotonic() - start < request["seconds"]:
            message = Message(request["topic"])
            message.set_body(body)
            message.set_tags("TagA")
            try:
                producer.send_sync(message)
                counts[number] += 1
            except Exception as error:
                failures.append(str(error))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(request["workers"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {
        "messages": sum(counts),
        "failures": len(failures),
        "failure": failures[0] if failures else "",
        "seconds": time.monotonic() - start,
    }


def describe(message: Any) -> dict[str, Any]:
    return {
        "topic": message.topic,
        "body": base64.b64encode(message.body).decode(),
        "tag": message.tags.decode(),
        "keys": message.keys.decode(),
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "messageId": message.id,
        "offsetId": "",
        "reconsumeTimes": message.reconsume_times,
        "storeHost": "",
        "properties": {"UNIQ_KEY": (message.get_property("UNIQ_KEY") or b"").decode()},
    }


def message_of(row: dict[str, Any]) -> Any:
    message = Message(row["topic"])
    message.set_body(base64.b64decode(row["body"]))
    if row["tag"]:
        message.set_tags(row["tag"])
    if row["keys"]:
        message.set_keys(" ".join(row["keys"]))
    if row["delay"]:
        message.set_delay_time_level(row["delay"])
    for name, value in row["properties"].items():
        message.set_property(name, value)
    return message


def sent(result: Any) -> dict[str, Any]:
    return {
        "status": int(result.status),
        "messageId": result.msg_id,
        "offsetId": "",
        "broker": "",
        "queueId": -1,
        "queueOffset": result.offset,
    }


def send(request: dict[str, Any]) -> list[dict[str, Any]]:
    producer = producers[request["name"]]
    messages = [message_of(row) for row in request["messages"]]
    if request["batch"]:
        return [sent(producer.send_batch(messages))]
    if request["mode"] == "oneway":
        for message in messages:
            producer.send_oneway(message)
        return []
    return [sent(producer.send_sync(message)) for message in messages]


def serve(request: dict[str, Any]) -> Any:
    what, name = request["do"], request["name"]
    if what == "producer":
        producers[name] = producer = Producer(request["group"])
        producer.set_namesrv_addr(NAME_SERVER)
        producer.start()
    elif what == "consumer":
        consumers[name] = Consumer(request)
    elif what == "send":
        return send(request)
    elif what == "sendFor":
        return send_for(request)
    elif what == "counter":
        consumers[name] = Counter(request)
    elif what == "counted":
        counter = consumers[name]
        assert isinstance(counter, Counter)
        return counter.counted(request["count"], request["seconds"])
    elif what == "take":
        consumer = consumers[name]
        assert isinstance(consumer, Consumer)
        return consumer.take(request["count"], request["seconds"])
    elif what == "close":
        (producers.pop(name, None) or consumers.pop(name).client).shutdown()
    else:
        raise ValueError(f"unknown request {what}")
    return None


def main() -> None:
    # The library prints to the standard output, which the answers need for themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        try:
            reply = {"answer": serve(json.loads(line))}
        except Exception as error:
            reply = {"error": str(error)}
        answers.write(json.dumps(reply) + "\n")
        answers.flush()


main()
