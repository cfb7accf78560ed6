"""The loads of the two Sparks, and their sizes."""

from __future__ import annotations

import dataclasses
from typing import Any

from bench.figures import Size
from bench.machine import GIB


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """One thing to measure; ``size`` is that of a body."""

    name: str
    verb: str
    """The request to the driver."""
    size: int
    pruned: bool = False
    columns: str = ""
    """Of a store directory; all without it."""

    def topic(self) -> str:
        return f"bench-{self.size}"


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """The amount of work of each part of a run."""

    rows: dict[int, int]
    """By the size of bodies."""
    sink_rows: int
    rows_a_trigger: int
    rounds: int
    space: int


LOADS = (
    # First, while there is nothing else in the store.
    Load("store directory, 1 KiB, all columns", "scan", 1024),
    Load(
        "store directory, 1 KiB, topic, queue, offset and body",
        "scan",
        1024,
        columns="topic,queue_id,queue_offset,body",
    ),
    Load("source, batch, 128 B, all columns", "batch", 128),
    Load("source, batch, 128 B, queue and offset only", "batch", 128, pruned=True),
    Load("source, batch, 1 KiB, all columns", "batch", 1024),
    Load("source, batch, 1 KiB, queue and offset only", "batch", 1024, pruned=True),
    Load("source, streaming, 128 B, all columns", "stream", 128),
    Load("source, streaming, 128 B, queue and offset only", "stream", 128, pruned=True),
    Load("source, streaming, 1 KiB, all columns", "stream", 1024),
    Load("sink, 128 B", "sink", 128),
)

PLANS = {
    Size.QUICK: Plan({128: 40_000, 1024: 10_000}, 20_000, 20_000, 1, GIB),
    Size.USUAL: Plan({128: 2_000_000, 1024: 600_000}, 500_000, 500_000, 5, 8 * GIB),
    Size.FULL: Plan({128: 5_000_000, 1024: 2_000_000}, 1_000_000, 500_000, 7, 24 * GIB),
}


def request_of(load: Load, plan: Plan, *, number: int, is_kafka: bool, store: str) -> dict[str, Any]:
    """The request to the driver of a system for one round of a load."""
    if load.verb == "sink":
        # A new topic for each round, without the messages of earlier rounds.
        return {"do": "sink", "topic": f"bench-sink-{number + 1}", "rows": plan.sink_rows, "size": load.size}
    if load.verb == "scan":
        chosen = {"columns": load.columns} if load.columns else {}
        return {"do": "scan", "path": store, "options": {"topics": load.topic()} | chosen}
    # Kafka's source makes whole rows always, and leaves it to Spark to drop what is not selected.
    columns = ["partition", "offset"] if load.pruned and is_kafka else []
    options = {"columns": "queue_id,queue_offset"} if load.pruned and not is_kafka else {}
    request = {"do": load.verb, "topic": load.topic(), "columns": columns, "options": options}
    return request | ({"rows_a_trigger": plan.rows_a_trigger} if load.verb == "stream" else {})
