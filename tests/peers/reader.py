"""What Apache's own client reads from a cluster, whoever's servers it consists of."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any, Self

from peers.apache import java_command
from peers.process import PeerError, PeerProcess

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

KEY = "K"
UNIQUE_KEY = "U"
TAG = "T"
"""The kinds of index entries a message can be found by."""

COMPRESSED = 0x1
"""The bit of the stored sysFlag that the client clears."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServedMessage:
    """A message as a consumer gets it.

    The client decompresses a stored body and then clears that bit of ``sys_flag``; ``body_crc`` stays that of the
    stored body. ``message_id`` is the unique key, or the offset id where there is none.
    """

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_size: int
    message_id: str
    offset_id: str
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: str
    store_timestamp: int
    store_host: str
    reconsume_times: int
    prepared_transaction_offset: int
    body_crc: int
    body_sha256: str
    properties: dict[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class QueueRange:
    """The offset of a queue's first message, and the one after its last."""

    queue_id: int
    min_offset: int
    max_offset: int


class ApacheReader:
    """A JVM with Apache's client that answers questions until it is closed."""

    def __init__(self, *, home: Path, nameserver: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._process = PeerProcess(
            "Apache client",
            java_command("StoreReader", nameserver, home=home),
            home=home,
            environment={},
            conversation=True,
        )

    def queues(self, topic: str) -> list[QueueRange]:
        """Where each queue of the topic begins and ends, by queue id."""
        return [
            QueueRange(row["queueId"], row["minOffset"], row["maxOffset"]) for row in self._ask("queues", topic)
        ]

    def messages(self, topic: str) -> list[ServedMessage]:
        """Every message of the topic, queue by queue, from the first offset to the last."""
        return [_message(row) for row in self._ask("messages", topic)]

    def view(self, topic: str, offset_id: str, *, broker: str) -> ServedMessage:
        """The message with this id, from the broker at this address."""
        return _message(self._ask("view", topic, offset_id, broker))

    def query(self, topic: str, key: str, *, kind: str = KEY, limit: int = 64) -> list[ServedMessage]:
        """The messages that the index finds under a key, unique key or tag."""
        return [_message(row) for row in self._ask("query", topic, kind, key, limit)]

    def search_offset(self, topic: str, queue_id: int, timestamp: int) -> int:
        """The offset in a queue that a store timestamp leads to."""
        return int(self._ask("search", topic, queue_id, timestamp))

    def close(self) -> None:
        # It only ever reads, so there is nothing to shut down in order.
        self._process.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _ask(self, *question: str | int) -> Any:
        questions, answers = self._process.pipes
        try:
            questions.write(json.dumps(question).encode() + b"\n")
            questions.flush()
            line = answers.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise PeerError(f"Apache client ended on {question}\n{self._process.quote()}")
        reply = json.loads(line)
        if "error" in reply:
            raise PeerError(f"Apache client failed on {question}: {reply['error']}")
        return reply["answer"]


def _message(row: dict[str, Any]) -> ServedMessage:
    return ServedMessage(
        topic=row["topic"],
        queue_id=row["queueId"],
        queue_offset=row["queueOffset"],
        physical_offset=row["physicalOffset"],
        store_size=row["storeSize"],
        message_id=row["messageId"],
        offset_id=row["offsetId"],
        flag=row["flag"],
        sys_flag=row["sysFlag"],
        born_timestamp=row["bornTimestamp"],
        born_host=row["bornHost"],
        store_timestamp=row["storeTimestamp"],
        store_host=row["storeHost"],
        reconsume_times=row["reconsumeTimes"],
        prepared_transaction_offset=row["preparedTransactionOffset"],
        body_crc=row["bodyCrc"],
        body_sha256=row["bodySha256"],
        properties=row["properties"],
    )
