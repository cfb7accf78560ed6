"""A load by the gRPC client of PyPI, in a process of its own: ``python -m bench.client.grpc_load TASK``.

It runs in an environment with that client and nothing of OrbitMQ.
"""

from __future__ import annotations

import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import rocketmq as peer  # type: ignore[import-not-found]

from bench.client.window import Window, in_threads, read_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.client.window import Task

WARM_UP = 50


def main() -> None:
    task = read_task(sys.argv[1])
    MODES[task.mode](task)


def _configuration(task: Task) -> Any:
    return peer.ClientConfiguration(task.address, peer.Credentials(), request_timeout=10)


def _producer(task: Task) -> Any:
    producer = peer.Producer(_configuration(task), (task.topic,))
    producer.startup()
    for _ in range(WARM_UP):
        producer.send(_message(task))
    return producer


def _message(task: Task) -> Any:
    message = peer.Message()
    message.topic = task.topic
    message.body = b"x" * task.body
    return message


def _send_async(task: Task) -> None:
    window = Window(task)
    free = threading.Semaphore(task.in_flight)

    def done(future: Any) -> None:
        free.release()
        error = future.exception()
        if error is None:
            window.add()
        else:
            window.fail(error)

    producer = _producer(task)
    window.open()
    while window.is_open():
        free.acquire()
        producer.send_async(_message(task)).add_done_callback(done)
    for _ in range(task.in_flight):
        free.acquire()
    window.close()
    producer.shutdown()


def _send_sync(task: Task) -> None:
    window = Window(task)
    producer = _producer(task)

    def send() -> None:
        while window.is_open():
            began = time.perf_counter_ns()
            try:
                producer.send(_message(task))
            except Exception as error:
                window.fail(error)
                continue
            window.latencies.append(time.perf_counter_ns() - began)
            window.add()

    window.open()
    in_threads(task.threads, send)
    window.close()
    producer.shutdown()


def _consume(task: Task) -> None:
    window = Window(task)

    class Listener(peer.MessageListener):  # type: ignore[misc]
        begun = False

        def consume(self, message: Any) -> Any:
            if not self.begun:
                self.begun = True
                window.begin_with_first()
            assert len(message.body) == task.body
            window.add()
            return peer.ConsumeResult.SUCCESS

    consumer = peer.PushConsumer(
        _configuration(task), task.group, Listener(), {task.topic: peer.FilterExpression()}
    )
    window.open()
    window.end += 30  # for the first message to come
    consumer.startup()
    window.wait()
    window.close()
    consumer.shutdown()


MODES: dict[str, Callable[[Task], None]] = {
    "send-async": _send_async,
    "send-sync": _send_sync,
    "consume": _consume,
}

if __name__ == "__main__":
    main()
