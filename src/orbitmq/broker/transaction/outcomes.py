"""Outcomes of transactions since the start: commits and rollbacks by topic, and the age of half messages."""

from __future__ import annotations

from orbitmq.metrics.instrument import Histogram

AGE_BOUNDS = (5.0, 60.0, 600.0, 3600.0, 43200.0, 86400.0)
"""Seconds, as RocketMQ's metric has them."""

MAX_TOPICS = 10_000
"""Transactions of further topics are not counted here."""


class TransactionOutcomes:
    """Counters of one broker."""

    def __init__(self) -> None:
        self.commits: dict[str, int] = {}
        self.rollbacks: dict[str, int] = {}
        self.ages: dict[str, Histogram] = {}
        """Of committed messages, in seconds."""

    def committed(self, topic: str, age_ms: int) -> None:
        if len(self.commits) >= MAX_TOPICS and topic not in self.commits:
            return
        self.commits[topic] = self.commits.get(topic, 0) + 1
        ages = self.ages.get(topic)
        if ages is None:
            ages = self.ages[topic] = Histogram(AGE_BOUNDS)
        ages.observe(max(age_ms, 0) // 1000)

    def rolled_back(self, topic: str) -> None:
        if len(self.rollbacks) < MAX_TOPICS or topic in self.rollbacks:
            self.rollbacks[topic] = self.rollbacks.get(topic, 0) + 1
