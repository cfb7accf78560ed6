"""``orbitmq top``: a live view of brokers, topics and groups, sorted by a column."""

import asyncio
import dataclasses
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orbitmq.cli.admin.framework.operator import Operator, command_of
from orbitmq.cli.admin.framework.view import Output, Table, View
from orbitmq.cli.admin.verbs.cluster import broker_table
from orbitmq.cli.admin.watch.keyboard import Keyboard
from orbitmq.cli.output import complain, print_json_line, printable, time_text

if TYPE_CHECKING:
    from orbitmq.admin.health.activity import Snapshot

VIEWS = ("groups", "topics", "brokers")
HELP = "q quit  g groups  t topics  b brokers  s next column  r reverse  p pause"
ENTER, LEAVE = "\033[?1049h\033[?25l", "\033[?25h\033[?1049l"
"""The alternate screen without a cursor, and back."""


@dataclasses.dataclass(slots=True)
class Screen:
    """The state of the view, which keys change."""

    view: str = "groups"
    column: int = 1
    is_descending: bool = True
    is_paused: bool = False
    is_over: bool = False

    def press(self, key: str) -> None:
        """Change the state by a key; unknown ones change nothing."""
        chosen = next((view for view in VIEWS if view[0] == key), None)
        if chosen is not None:
            self.view, self.column, self.is_descending = chosen, DEFAULT_COLUMNS[chosen], True
        elif key in {"q", "\x03", "\x1b"}:
            self.is_over = True
        elif key == "s":
            self.column += 1
        elif key == "r":
            self.is_descending = not self.is_descending
        elif key in {"p", " "}:
            self.is_paused = not self.is_paused


DEFAULT_COLUMNS = {"groups": 1, "topics": 1, "brokers": 5}
"""The column that a view is sorted by at first: lag, messages per second, puts per second."""


async def _top(
    operator: Operator,
    view: Annotated[str, typer.Argument(metavar="[groups|topics|brokers]", help="The first view.")] = "groups",
    interval: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Time between two readings.")] = 2.0,
    sort: Annotated[str, typer.Option(metavar="COLUMN", help="Column to sort by.")] = "",
    count: Annotated[int | None, typer.Option(min=1, help="End after so many readings.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one table, of two readings, and end.")] = False,
) -> View | None:
    """Watch lag and rates of groups, topics and brokers, sorted. Without a terminal it prints tables.

    Keys: q quit, g groups, t topics, b brokers, s next column, r reverse, p pause.
    """
    from orbitmq.admin.health.activity import snapshot  # noqa: PLC0415 - not imported for help texts

    if view not in VIEWS:
        raise typer.BadParameter(f"the view is {', '.join(VIEWS)}, not {view!r}")
    screen = Screen(view, DEFAULT_COLUMNS[view])
    cluster = operator.admin.config.cluster
    before = await snapshot(operator.admin, cluster=cluster)
    table = table_of(view, None, before)
    if sort:
        keys = [column.key for column in table.columns]
        if sort not in keys:
            raise typer.BadParameter(f"--sort is one of {', '.join(keys)}, not {sort!r}")
        screen.column = keys.index(sort)
        screen.is_descending = table.columns[screen.column].is_right
    if once:
        await asyncio.sleep(interval)
        return View.of(sorted_table(screen, before, await snapshot(operator.admin, cluster=cluster)))
    await _watch(operator, screen, before, interval, count)
    return None


async def _watch(operator: Operator, screen: Screen, first: "Snapshot", interval: float, count: int | None) -> None:
    """Read and draw until q, Ctrl-C, or the last reading."""
    from orbitmq.admin.errors import AdminError  # noqa: PLC0415
    from orbitmq.admin.health.activity import snapshot  # noqa: PLC0415

    is_live = operator.output is Output.TABLE and sys.stdout.isatty()
    before: Snapshot | None = None
    now, problem, number = first, "", 1
    with Keyboard(enabled=is_live) as keyboard:
        if is_live:
            sys.stdout.write(ENTER)
        try:
            while not screen.is_over:
                _draw(operator.output, screen, before, now, problem, is_live=is_live)
                if count is not None and number >= count:
                    return
                key = await keyboard.wait(interval)
                if key:
                    screen.press(key)
                    continue
                if screen.is_paused:
                    continue
                try:
                    read = await snapshot(operator.admin, cluster=operator.admin.config.cluster)
                    before, now, problem, number = now, read, "", number + 1
                except AdminError as error:
                    # A watch goes on: what cannot be read now may be readable later.
                    problem = str(error)
                    if not is_live:
                        complain(problem)
        finally:
            if is_live:
                sys.stdout.write(LEAVE)
                sys.stdout.flush()


def _draw(
    output: Output, screen: Screen, before: "Snapshot | None", now: "Snapshot", problem: str, *, is_live: bool
) -> None:
    table = sorted_table(screen, before, now)
    if not is_live:
        if output is Output.TABLE:
            print("\n".join([time_text(now.time_ms), *table.lines(), ""]), flush=True)
        else:
            print_json_line({"timeMs": now.time_ms, screen.view: table.value()})
            sys.stdout.flush()
        return
    width, height = shutil.get_terminal_size()
    puts = sum(one.runtime.put_tps for one in now.brokers if one.runtime and one.broker.is_master)
    gets = sum(one.runtime.get_tps for one in now.brokers if one.runtime)
    lag = sum(one.lag for one in now.groups.values())
    down = sum(one.runtime is None for one in now.brokers)
    head = f"{time_text(now.time_ms)[11:19]}  in {puts:,.0f}/s  out {gets:,.0f}/s  lag {lag:,}  "
    head += f"{len(now.brokers)} brokers, {down} down" + ("  paused" if screen.is_paused else "")
    notes = [printable(problem)] if problem else []
    if now.skipped_topics and screen.view == "topics":
        notes.append(f"{now.skipped_topics} more topics are not read")
    title = f"{screen.view}, by {table.columns[screen.column % len(table.columns)].title.lower()}"
    rows = [head, title, *notes, *(table.lines() or ["(none)"])]
    shown = [row if "\033" in row else row[:width] for row in rows[: height - 1]]
    sys.stdout.write("\033[H" + "".join(f"{row}\033[K\r\n" for row in shown) + f"\033[J{HELP[:width]}")
    sys.stdout.flush()


def sorted_table(screen: Screen, before: "Snapshot | None", now: "Snapshot") -> Table:
    """The table of the chosen view, sorted by the chosen column."""
    table = table_of(screen.view, before, now)
    at = screen.column % len(table.columns)
    rows = sorted(table.rows, key=lambda row: _order(row[at]), reverse=screen.is_descending)
    return dataclasses.replace(table, rows=rows)


def _order(value: Any) -> tuple[int, Any]:
    """Values of one column in order: what is unknown first."""
    if value is None:
        return (0, 0)
    return (1, value) if isinstance(value, int | float) else (2, str(value))


def table_of(view: str, before: "Snapshot | None", now: "Snapshot") -> Table:
    from orbitmq.admin.health.activity import group_activity, topic_activity  # noqa: PLC0415

    if view == "brokers":
        return broker_table(now.brokers)
    if view == "topics":
        topics = topic_activity(before, now)
        return Table(
            "topic putRate> messages> groups>", [(o.name, o.put_rate, o.messages, o.groups) for o in topics]
        )
    groups = group_activity(before, now)
    return Table(
        "group lag> consumeRate> lagChange> topics",
        [(o.name, o.lag, o.consume_rate, o.lag_change, o.topics) for o in groups],
    )


top = command_of(_top)
