"""Values of a health check: thresholds, findings, and the report."""

from __future__ import annotations

import dataclasses
import enum

from orbitmq.admin.errors import InvalidRequestError


class Severity(enum.IntEnum):
    """The severity of a finding, and of a whole report: its worst. The numbers are those of Nagios."""

    OK = 0
    WARNING = 1
    CRITICAL = 2


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """Values from which on a check warns, or is critical. 0 or less switches a threshold off."""

    disk_warning: float = 0.75
    """Used share of a broker's disk; brokers delete early from 0.75 on by default, and refuse sends at 0.90."""
    disk_critical: float = 0.85
    lag_warning: int = 100_000
    """Messages that a group has not consumed."""
    lag_critical: int = 10_000_000
    replication_warning: int = 256 << 20
    """Bytes of the log that a slave does not have."""
    dispatch_warning: int = 64 << 20
    """Bytes of the log that the consume queues do not have."""
    waiting_sends_warning: int = 1000
    dead_letters_warning: int = 0
    """Dead letters of a group."""
    max_groups: int = 500
    """The subscriptions of so many groups are compared: it takes one request per member."""

    def __post_init__(self) -> None:
        for low, high, name in (
            (self.disk_warning, self.disk_critical, "disk"),
            (self.lag_warning, self.lag_critical, "lag"),
        ):
            if 0 < high < low:
                raise InvalidRequestError(f"the critical {name} threshold {high} is below the warning at {low}")


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong."""

    severity: Severity
    check: str
    """The name of the check, for scripts: ``master``, ``disk``, ``lag``…"""
    subject: str
    """The broker, group, topic or name server."""
    text: str

    def __str__(self) -> str:
        return f"{self.severity.name} {self.check} {self.subject}: {self.text}"


@dataclasses.dataclass(frozen=True, slots=True)
class HealthReport:
    """The findings, worst first, and what could not be checked."""

    findings: tuple[Finding, ...]
    brokers: int
    groups: int
    skipped: tuple[str, ...] = ()
    """Checks that the servers do not support, or that were cut short, each as one sentence."""

    @property
    def severity(self) -> Severity:
        return max((one.severity for one in self.findings), default=Severity.OK)
