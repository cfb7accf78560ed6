"""A run of special messages and its results: those of servers, and how many messages there were of what."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from bench.figures import Size
from bench.messaging.plan import PLANS
from bench.server.report import ServerReport

if TYPE_CHECKING:
    from bench.messaging.plan import Plan


@dataclasses.dataclass(slots=True)
class MessagesReport(ServerReport):
    """Everything one run found out."""

    plan: Plan = PLANS[Size.USUAL]

    def remarks(self) -> list[str]:
        """Notes that a reader of the figures needs."""
        plan = self.plan
        return [
            f"timers: {plan.pending:,} waited all the time; {plan.timers:,} were entered or fired in a round",
            f"delay level: a backlog of {plan.pending:,} in level {plan.level} ({plan.level_ms // 1000} s); "
            f"steady: {plan.steady_rate:,} a second",
            f"transactions and pops: {plan.seconds:g} s a round; {plan.popped:,} messages to pop",
            *ServerReport.remarks(self),
        ]

    def as_json(self) -> dict[str, Any]:
        return {**ServerReport.as_json(self), "plan": dataclasses.asdict(self.plan)}
