"""The monitoring service of ``mqadmin``: a report on all consumer groups every minute."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING

from orbitmq.admin.errors import AdminError
from orbitmq.admin.health.monitor import GroupReport, StuckQueue, Trouble, monitored_groups, report_on
from orbitmq.cli.admin.mqadmin.java import queue_text

if TYPE_CHECKING:
    from orbitmq.cli.admin.mqadmin.call import Call

ROUND_SECONDS = 60.0
_LINE = "=" * 41
_TEXTS = {
    Trouble.NOT_LOCKED: "can't lock for a while, {}ms",
    Trouble.NOT_UNLOCKED: "unlock {} times, still failed",
    Trouble.BLOCKED: "can't consume for a while, maybe blocked, {}ms",
}


async def start_monitoring(call: Call) -> None:
    """Rounds until Ctrl-C. The first one fails if no name server responds; a later one is left out."""
    await _round(call)
    while True:
        await asyncio.sleep(ROUND_SECONDS)
        try:
            await _round(call)
        except AdminError as error:
            print(f"orbitmq: this round was left out: {error}", file=sys.stderr, flush=True)


async def _round(call: Call) -> None:
    groups = await monitored_groups(call.admin)
    call.print(f"[MONITOR] {_LINE}beginRound")
    for group in groups:
        try:
            report = await report_on(call.admin, group)
        except AdminError as error:
            print(f"orbitmq: group {group} was left out: {error}", file=sys.stderr)
        else:
            if report is not None:
                _print_report(call, report)
    call.print(f"[MONITOR] {_LINE}endRound")
    sys.stdout.flush()


def _print_report(call: Call, report: GroupReport) -> None:
    for one in report.backlogs:
        call.print(
            f"[MONITOR] reportUndoneMsgs: UndoneMsgs [consumerGroup={one.group}, topic={one.topic}, "
            f"undoneMsgsTotal={one.total}, undoneMsgsSingleMQ={one.largest}, "
            f"undoneMsgsDelayTimeMills={one.delay_ms}]"
        )
    notice = f"[MONITOR]  [NOTIFY] reportConsumerRunningInfo: ConsumerGroup: {report.group}, "
    if not report.subscriptions_agree:
        call.print(f"{notice}Subscription different")
    for stuck in report.stuck:
        call.print(f"{notice}ClientId: {stuck.client_id}, {_stuck_text(stuck)}")


def _stuck_text(stuck: StuckQueue) -> str:
    what = _TEXTS[stuck.trouble].format(stuck.amount)
    return f"{stuck.client_id} {queue_text(stuck.queue)} {what}"
