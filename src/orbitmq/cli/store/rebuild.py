"""``orbitmq store rebuild``: rebuilds consume queues and index from the commit log."""

import time
from typing import Annotated, Any

import typer
from rich.console import Console

from orbitmq.cli.output import complain, for_people, for_progress, many, plain_errors, print_json, safe
from orbitmq.cli.store.options import AsJson, Conf, Directory, open_layout
from orbitmq.store.tools.detect_layout import Layout
from orbitmq.store.tools.rebuild import Rebuilt, exclusive, rebuild


def rebuild_command(
    directory: Directory,
    conf: Conf = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    json: AsJson = False,
) -> None:
    """Rebuild the consume queues and the index of a stopped store from its commit log."""
    with plain_errors():
        disk, layout = open_layout(directory, conf)
        root = layout.config.store_path_root_dir
        with exclusive(disk, root):
            # Again under the lock: an interrupted rebuild may have moved the files that show the sizes.
            _, layout = open_layout(directory, conf)
            for assumed in layout.assumed:
                if _matters(assumed, layout):
                    complain(f"{assumed} is assumed, because no file shows it: give --conf if that is wrong")
            if not yes:
                question = f"Replace consumequeue and index of {root} by a rebuild from the commit log?"
                typer.confirm(question, abort=True, err=True)
            began = time.perf_counter()
            with for_progress().status("building queues and index from the log"):
                built = rebuild(disk, layout)
            seconds = time.perf_counter() - began
        if json:
            print_json(_as_json(root, built, seconds))
        else:
            _show(for_people(), root, built, seconds)


def _matters(assumed: str, layout: Layout) -> bool:
    """An assumed setting has an effect on the files to be written."""
    key = assumed.partition("=")[0]
    if key == "mapperFileSizeBatchConsumeQueue":
        return bool(layout.batch_topics)
    if key.startswith("maxHashSlotNum") or key == "maxIndexNum":
        return layout.config.message_index_enable
    return key == "mappedFileSizeConsumeQueue"


def _show(console: Console, root: str, built: Rebuilt, seconds: float) -> None:
    console.print(
        f"[bold green]Built[/] {many(built.queues, 'queue')} with {many(built.messages, 'message')} and "
        f"{many(built.index_files, 'index file')} from {many(built.records, 'record')} in {seconds:.2f} s."
    )
    for damage in built.damages:
        size = many(damage.size, "byte")
        console.print(f"[yellow]{size} at offset {damage.offset} could not be used: {safe(damage.reason)}.[/]")
    if built.had_extensions:
        console.print("[dim]The queues no longer use consumequeue_ext; SQL filters read the messages instead.[/]")
    console.print(f"[dim]orbitmq store verify {safe(root)} checks the result.[/]")


def _as_json(root: str, built: Rebuilt, seconds: float) -> dict[str, Any]:
    return {
        "root": root,
        "records": built.records,
        "logEnd": built.log_end,
        "endReason": built.end_reason,
        "queues": built.queues,
        "messages": built.messages,
        "indexFiles": built.index_files,
        "damages": [
            {"physicalOffset": damage.offset, "size": damage.size, "reason": damage.reason}
            for damage in built.damages
        ],
        "seconds": round(seconds, 3),
    }
