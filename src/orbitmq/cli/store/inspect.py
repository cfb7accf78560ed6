"""``orbitmq store inspect``: prints an overview of a store."""

import dataclasses
import os
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from orbitmq.cli.output import for_people, many, plain_errors, print_json, safe, size_text, time_text
from orbitmq.cli.store.options import AsJson, Conf, Directory, holder_of, open_layout
from orbitmq.store.tools.detect_layout import Layout
from orbitmq.store.tools.inspect import Overview, QueueOverview, inspect

ROWS = 30
"""Maximum number of rows per table, without ``--all``."""


def inspect_command(
    directory: Directory,
    conf: Conf = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Show all files and queues.")] = False,
    json: AsJson = False,
) -> None:
    """Show state, files, offsets, topics and queues of a store. Reads only."""
    with plain_errors():
        disk, layout = open_layout(directory, conf)
        holder = holder_of(layout.config.store_path_root_dir)
        overview = inspect(disk, layout)
        sizes = {path: _sizes(path) for path in _files_below(layout)}
        if json:
            print_json(_as_json(overview, layout, holder, sizes))
        else:
            _show(for_people(), overview, layout, holder, sizes, None if everything else ROWS)


def _files_below(layout: Layout) -> list[str]:
    paths = []
    roots = {layout.config.store_path_root_dir, *layout.config.commit_log_dirs}
    for root in roots:
        for directory, _, names in os.walk(root):
            paths += [os.path.join(directory, name) for name in names]
    return sorted(set(paths))


def _sizes(path: str) -> tuple[int, int]:
    """Apparent size and size on disk; 0 for a file deleted meanwhile."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return 0, 0
    return found.st_size, found.st_blocks * 512


def _sum(sizes: dict[str, tuple[int, int]], folders: tuple[str, ...] = ()) -> tuple[int, int]:
    chosen = [size for path, size in sizes.items() if not folders or path.startswith(folders)]
    return sum(size for size, _ in chosen), sum(size for _, size in chosen)


def _state(overview: Overview, holder: int | None) -> tuple[str, str]:
    if holder is not None:
        return "open", f"open in process {holder}" if holder else "open on another machine"
    if overview.has_abort:
        return "crashed", "not closed properly: the next start will recover it"
    return "closed", "closed properly"


# Text


def _show(
    console: Console,
    overview: Overview,
    layout: Layout,
    holder: int | None,
    sizes: dict[str, tuple[int, int]],
    rows: int | None,
) -> None:
    config = layout.config
    state, sentence = _state(overview, holder)
    colour = {"closed": "green", "crashed": "yellow", "open": "cyan"}[state]
    apparent, on_disk = _sum(sizes)
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row("store", safe(overview.root))
    table.add_row("state", f"[{colour}]{sentence}[/]")
    table.add_row("size", f"{size_text(apparent)}, {size_text(on_disk)} on disk")
    table.add_row(
        "log",
        f"offsets {overview.log_start} to {overview.log_end}, {many(len(overview.log_files), 'file')} of "
        f"{size_text(config.mapped_file_size_commit_log)}",
    )
    table.add_row("stored", f"{time_text(overview.first_timestamp)} to {time_text(overview.last_timestamp)}")
    topics = {queue.topic for queue in overview.queues}
    messages = sum(queue.messages for queue in overview.queues)
    table.add_row(
        "queues",
        f"{many(len(overview.queues), 'queue')} of {many(len(topics), 'topic')} with {many(messages, 'message')}",
    )
    entries = sum(file.entries for file in overview.index_files)
    table.add_row("index", f"{many(len(overview.index_files), 'file')} with {many(entries, 'key')}")
    if overview.tables:
        names = {"topics": "topic", "groups": "group", "consumerOffsets": "consumer offset"}
        table.add_row("config", ", ".join(many(count, names[name]) for name, count in overview.tables.items()))
    point = overview.checkpoint
    table.add_row(
        "checkpoint",
        f"log {time_text(point.physic_msg_timestamp)}, queues {time_text(point.logics_msg_timestamp)}, "
        f"index {time_text(point.index_msg_timestamp)}",
    )
    console.print(table)
    for fault in overview.faults:
        console.print(f"[red]{safe(fault.path)}: {safe(fault.reason)}[/]")
    if not layout.index_is_known:
        console.print("[yellow]The index files do not show their numbers of slots and entries: give --conf.[/]")
    _show_log(console, overview, sizes, rows)
    _show_queues(console, overview, rows)
    _show_index(console, overview, rows)


def _table(title: str, *columns: tuple[str, bool]) -> Table:
    table = Table(
        title=title, title_justify="left", title_style="bold", box=None, header_style="dim", pad_edge=False
    )
    for name, is_number in columns:
        table.add_column(name, justify="right" if is_number else "left", no_wrap=is_number, overflow="fold")
    return table


def _print_table(console: Console, table: Table, hidden: int) -> None:
    console.print()
    console.print(table)
    if hidden > 0:
        console.print(f"[dim]… and {hidden:,} more, see --all[/]")


def _show_log(console: Console, overview: Overview, sizes: dict[str, tuple[int, int]], rows: int | None) -> None:
    table = _table(
        "Commit log", ("file", False), ("offset", True), ("first record stored", False), ("on disk", True)
    )
    files = overview.log_files
    # The newest files.
    for file in files if rows is None else files[-rows:]:
        is_used = file.first_timestamp is not None
        table.add_row(
            os.path.basename(file.path),
            str(file.offset),
            time_text(file.first_timestamp) if is_used else "[dim]no record[/]",
            size_text(sizes.get(file.path, (0, 0))[1]),
        )
    if files:
        _print_table(console, table, len(files) - len(table.rows))


def _show_queues(console: Console, overview: Overview, rows: int | None) -> None:
    table = _table("Queues", ("topic", False), ("queue", True), ("min", True), ("max", True), ("messages", True))
    before = None
    for queue in overview.queues[:rows]:
        name = safe(queue.topic) + (" [dim](batch)[/]" if queue.is_batch else "")
        table.add_row(
            name if queue.topic != before else "",
            str(queue.queue_id),
            str(queue.min_offset),
            str(queue.max_offset),
            f"{queue.messages:,}",
        )
        before = queue.topic
    if overview.queues:
        _print_table(console, table, len(overview.queues) - len(table.rows))


def _show_index(console: Console, overview: Overview, rows: int | None) -> None:
    table = _table("Index", ("file", False), ("keys", True), ("from", False), ("to", False), ("offsets", False))
    for file in overview.index_files if rows is None else overview.index_files[-rows:]:
        table.add_row(
            os.path.basename(file.path),
            f"{file.entries:,}",
            time_text(file.begin_timestamp),
            time_text(file.end_timestamp),
            f"{file.begin_offset} to {file.end_offset}",
        )
    if overview.index_files:
        _print_table(console, table, len(overview.index_files) - len(table.rows))


# JSON


def _as_json(
    overview: Overview, layout: Layout, holder: int | None, sizes: dict[str, tuple[int, int]]
) -> dict[str, Any]:
    config = layout.config
    apparent, on_disk = _sum(sizes)
    point = overview.checkpoint
    return {
        "root": overview.root,
        "state": _state(overview, holder)[0],
        "holder": holder,
        "abort": overview.abort_text if overview.has_abort else None,
        "bytes": apparent,
        "bytesOnDisk": on_disk,
        "settings": {
            "mappedFileSizeCommitLog": config.mapped_file_size_commit_log,
            "mappedFileSizeConsumeQueue": config.mapped_file_size_consume_queue,
            "mapperFileSizeBatchConsumeQueue": config.mapper_file_size_batch_consume_queue,
            "mappedFileSizeConsumeQueueExt": config.mapped_file_size_consume_queue_ext,
            "maxHashSlotNum": config.max_hash_slot_num if layout.index_is_known else None,
            "maxIndexNum": config.max_index_num if layout.index_is_known else None,
            "assumed": [text.partition("=")[0] for text in layout.assumed],
        },
        "log": {
            "minOffset": overview.log_start,
            "maxOffset": overview.log_end,
            "endReason": overview.end_reason,
            "firstTimestamp": overview.first_timestamp,
            "lastTimestamp": overview.last_timestamp,
            "files": [
                {
                    "path": file.path,
                    "offset": file.offset,
                    "firstTimestamp": file.first_timestamp,
                    "bytes": sizes.get(file.path, (0, 0))[0],
                    "bytesOnDisk": sizes.get(file.path, (0, 0))[1],
                }
                for file in overview.log_files
            ],
        },
        "queues": [_queue_json(queue) for queue in overview.queues],
        "index": [
            {
                "path": file.path,
                "entries": file.entries,
                "beginTimestamp": file.begin_timestamp,
                "endTimestamp": file.end_timestamp,
                "beginOffset": file.begin_offset,
                "endOffset": file.end_offset,
            }
            for file in overview.index_files
        ],
        "checkpoint": {
            "physicMsgTimestamp": point.physic_msg_timestamp,
            "logicsMsgTimestamp": point.logics_msg_timestamp,
            "indexMsgTimestamp": point.index_msg_timestamp,
            "masterFlushedOffset": point.master_flushed_offset,
            "confirmPhyOffset": point.confirm_phy_offset,
            "logicsPhysicalOffset": point.logics_physical_offset,
        },
        "config": overview.tables,
        "faults": [dataclasses.asdict(_Fault(*fault)) for fault in overview.faults],
    }


@dataclasses.dataclass(slots=True)
class _Fault:
    path: str
    offset: int
    reason: str


def _queue_json(queue: QueueOverview) -> dict[str, Any]:
    return {
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "type": "BatchCQ" if queue.is_batch else "SimpleCQ",
        "minOffset": queue.min_offset,
        "maxOffset": queue.max_offset,
        "files": queue.files,
    }
