"""Report of a run with access control and TLS: the figures, and whether the bars beside Apache RocketMQ are met."""

from __future__ import annotations

import dataclasses

from bench.catalog import Bar, Verdict
from bench.server.measures import RATE, times_better
from bench.server.report import ServerReport
from bench.server.systems import APACHE, ORBITMQ

SIGNED, ENCRYPTED = "signed", "TLS"
_TIMES = "times Apache's rate"
BARS = (
    Bar("sends with signatures", SIGNED, "8 × 64", _TIMES, limit=3, at_most=False),
    Bar("sends over TLS", ENCRYPTED, "8 × 64", _TIMES, limit=1.2, at_most=False),
)


@dataclasses.dataclass(slots=True)
class SecurityReport(ServerReport):
    """Everything one run found out, with the bars among the remarks."""

    def verdicts(self) -> list[Verdict]:
        """Each bar, where the run has figures of both systems for it."""
        found = []
        for bar in BARS:
            systems = self.samples.get(load_name(bar.subject, bar.scenario), {})
            if {ORBITMQ, APACHE} <= systems.keys():
                ours, theirs = ([one.values[RATE] for one in systems[name]] for name in (ORBITMQ, APACHE))
                figure = times_better(bar.scenario, RATE, ours, theirs)
                if figure is not None:
                    found.append(Verdict(bar, figure.median, "×", figure.median >= bar.limit))
        return found

    def remarks(self) -> list[str]:
        # Without arguments super() does not find the class that slots=True has made.
        said = [
            f"{one.bar.statement}, {one.bar.subject}: {one.value:.2f} times Apache's rate; the bar is "
            f"{one.bar.limit:g}, {'met' if one.met else 'missed'}"
            for one in self.verdicts()
        ]
        return [*said, *ServerReport.remarks(self)]


def load_name(shape: str, protection: str) -> str:
    """The name of a load: connections × requests in flight, and what protects them."""
    return f"send 128 B, {shape}, {protection}"
