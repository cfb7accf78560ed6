"""``orbitmq check``: the health of a cluster, with an exit code for scripts and the reasons for people."""

import dataclasses
from typing import Annotated

import typer

from orbitmq.cli.admin.framework.operator import Operator, command_of
from orbitmq.cli.admin.framework.view import Pairs, Table, View


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Thresholds of the checks. 0 switches one off."""

    disk_warning: Annotated[float, typer.Option(min=0, max=1, help="Used share of a disk, 0 to 1.")] = 0.75
    disk_critical: Annotated[float, typer.Option(min=0, max=1, help="Used share of a disk, 0 to 1.")] = 0.85
    lag_warning: Annotated[int, typer.Option(min=0, help="Messages that a group has not consumed.")] = 100_000
    lag_critical: Annotated[int, typer.Option(min=0, help="Messages that a group has not consumed.")] = 10_000_000
    replication_warning: Annotated[int, typer.Option(min=0, help="Bytes that a slave is behind.")] = 256 << 20
    dead_letters: Annotated[int, typer.Option(min=0, help="Warn from so many dead letters of a group on.")] = 0


async def _check(
    operator: Operator,
    limits: Limits,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="CHECK", help="Only this check; may be repeated.")
    ] = None,
) -> View:
    """Check the health of a cluster. Exit code 0: well, 1: warnings, 2: critical, 3: could not be checked.

    Checks: nameserver, master, broker, disk, dispatch, send-queue, slave, replication, lag, subscription, topic,
    dead-letters.
    """
    from orbitmq.admin import AdminError  # noqa: PLC0415 - not imported for help texts
    from orbitmq.admin.health.health import CHECKS  # noqa: PLC0415
    from orbitmq.admin.health.model import Thresholds  # noqa: PLC0415
    from orbitmq.cli.output import complain  # noqa: PLC0415

    if unknown := sorted(set(only or ()) - set(CHECKS)):
        raise typer.BadParameter(f"unknown check {unknown[0]!r}: there are {', '.join(CHECKS)}")
    thresholds = Thresholds(
        disk_warning=limits.disk_warning,
        disk_critical=limits.disk_critical,
        lag_warning=limits.lag_warning,
        lag_critical=limits.lag_critical,
        replication_warning=limits.replication_warning,
        dead_letters_warning=limits.dead_letters,
    )
    try:
        report = await operator.admin.health.check(thresholds=thresholds, only=only or ())
    except AdminError as error:
        complain(f"UNKNOWN: {error}")
        raise typer.Exit(UNKNOWN) from None
    rows = [(one.severity.name, one.check, one.subject, one.text) for one in report.findings]
    summary = {"health": report.severity.name, "brokers": report.brokers, "groups": report.groups}
    if report.skipped:
        summary["skipped"] = "; ".join(report.skipped)
    findings = Table("severity check subject reason", rows)
    return View({"": Pairs(summary), "findings": findings}, exit_code=int(report.severity))


UNKNOWN = 3
"""The exit code of Nagios for a check that could not be made."""

check = command_of(_check)
