"""The part of the quickstart's tour that is Spark's: SQL over the topic that the tour has filled.

Spark runs as a process of its own (``quickstart_query``): a JVM prints what it likes, and this loop has a broker.
"""

import asyncio
import contextlib
import os
import re
import signal
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import orjson
from rich.table import Table

from orbitmq.cli.output import many, safe
from orbitmq.platform.settings import ConfigError
from orbitmq.spark.sessions.session import unavailable

if TYPE_CHECKING:
    from rich.console import Console

SQL = """\
SELECT tags, count(*) AS orders, sum(int(properties['amount'])) AS amount
FROM {topic} WHERE properties['tour'] = '{mark}'
GROUP BY tags ORDER BY tags"""

PATIENCE = 120.0
"""Seconds; Spark needs some ten for its first query."""
STOP_SECONDS = 10.0
MAX_REASON = 300


class SparkFailedError(Exception):
    """The process that runs Spark did not come to its end. The message is one sentence."""


async def ask_spark(console: "Console", nameserver: str, topic: str, mark: str, expected: dict[str, int]) -> None:
    """Query and print the number of orders of this tour by tag, and compare it with ``expected``.

    More orders are valid: one whose receipt was late is sent twice. A missing Spark or an error in it is printed
    and does not end the tour. Raises ConfigError.
    """
    if reason := unavailable():
        console.print(f"[yellow]–[/] {safe(reason)}", soft_wrap=True)
        return
    sql = SQL.format(topic=topic, mark=mark)
    try:
        with console.status("Spark starts, and reads the topic"):
            answer = await _run({"nameserver": nameserver, "topic": topic, "sql": sql})
    except SparkFailedError as error:
        console.print(f"[yellow]–[/] {safe(str(error))}", soft_wrap=True)
        return
    found = {tags: count for tags, count, *_ in answer["rows"]}
    if found.keys() != expected.keys() or any(found[tags] < expected[tags] for tags in expected):
        raise ConfigError(f"the tour found a fault, please report it: Spark counts {found}, not {expected}")
    _show(console, sql, answer, sum(found.values()))


def _show(console: "Console", sql: str, answer: dict[str, Any], count: int) -> None:
    times = f"up in {answer['start_seconds']:.1f} s, answer in {answer['query_seconds']:.1f} s"
    read = f"{many(count, 'order')} read by Spark"
    console.print(f"[green]✓[/] {read:<44} [cyan]{times}[/]\n", soft_wrap=True)
    for line in sql.splitlines():
        console.print(f"  [bold]{safe(line)}[/]", soft_wrap=True)
    table = Table()
    for name in answer["columns"]:
        table.add_column(name, justify="left" if name == "tags" else "right")
    for tags, *numbers in answer["rows"]:
        table.add_row(safe(tags), *(f"{number:,}" for number in numbers))
    console.print(table)


async def _run(question: dict[str, str]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="orbitmq-spark-", ignore_cleanup_errors=True) as home:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "orbitmq.cli.quickstart.query", orjson.dumps(question).decode()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=home,
            env={**os.environ, "SPARK_LOCAL_DIRS": home},
            # Ctrl-C is for this process, which then stops Spark.
            start_new_session=True,
        )
        # Spark's own processes hold the pipes as well: when both end, all of them have ended.
        output = asyncio.create_task(process.communicate())
        try:
            async with asyncio.timeout(PATIENCE):
                out, errors = await asyncio.shield(output)
        except TimeoutError:
            raise SparkFailedError(f"Spark has not answered in {PATIENCE:.0f} s") from None
        finally:
            await _end(process, output)
    if process.returncode:
        raise SparkFailedError(f"the query in Spark failed: {_reason(errors.decode(errors='replace'))}")
    answer: dict[str, Any] = orjson.loads(out)
    return answer


async def _end(process: asyncio.subprocess.Process, output: "asyncio.Task[tuple[bytes, bytes]]") -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if output.done():
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        await asyncio.wait([output], timeout=STOP_SECONDS)
    output.cancel()


def _reason(errors: str) -> str:
    """The error message: the last line outside the stack trace, without the name of the exception."""
    lines = [line for line in errors.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    last = (lines or ["it gave no reason"])[-1]
    return re.sub(r"^[\w.]+(Error|Exception): ", "", last)[:MAX_REASON]
