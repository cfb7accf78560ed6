"""Text of the progress of all groups (317): the bytes of ``ConsumeStatsList.encode`` without its values.

With tens of thousands of queues, a value for each and its way through the codec would cost most of the request.
"""

from __future__ import annotations

from orbitmq.protocol.fastjson import dumps, java_double


class ProgressText:
    """Collects the text, group by group and topic by topic."""

    def __init__(self, broker_name: str, broker_address: str) -> None:
        self._broker_name = _json(broker_name)
        self._broker_address = _json(broker_address)
        self._groups: list[bytes] = []
        self._topics: list[str] = []
        self._queues: list[str] = []
        self._topic = ""
        self._diff = self._inflight_diff = 0

    def begin_group(self) -> None:
        self._topics = []

    def begin_topic(self, topic: str) -> None:
        self._topic = _json(topic)
        self._queues = []

    def add_queue(self, queue_id: int, end: int, offset: int, time_ms: int) -> None:
        """A queue of the topic: its end, the committed offset, and the store time of the message before that."""
        self._diff += end - offset
        self._inflight_diff -= offset
        self._queues.append(
            f'{{"brokerName":{self._broker_name},"queueId":{queue_id},"topic":{self._topic}}}:'
            f'{{"brokerOffset":{end},"consumerOffset":{offset},"lastTimestamp":{time_ms},"pullOffset":0}}'
        )

    def end_topic(self, consume_tps: float) -> None:
        self._topics.append(
            f'{{"consumeTps":{java_double(consume_tps)},"offsetTable":{{{",".join(self._queues)}}}}}'
        )

    def end_group(self, group: str) -> None:
        text = f"{{{_json(group)}:[{','.join(self._topics)}]}}"
        self._groups.append(text.encode("utf-8", "replace"))

    def whole(self) -> bytes:
        """The body of the answer."""
        head = f'{{"brokerAddr":{self._broker_address},"consumeStatsList":['.encode("utf-8", "replace")
        tail = f'],"totalDiff":{self._diff},"totalInflightDiff":{self._inflight_diff}}}'.encode()
        return b"".join((head, b",".join(self._groups), tail))


def _json(text: str) -> str:
    return dumps(text).decode()
