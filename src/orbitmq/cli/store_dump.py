"""``orbitmq store dump``: the records of a store, all or some."""

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from orbitmq.cli.console import (
    complain,
    for_people,
    parse_time,
    plain_errors,
    print_json_line,
    printable,
    size_text,
    time_text,
)
from orbitmq.cli.opening import AsJson, Conf, Directory, holder_of, open_layout
from orbitmq.store.dump import BodyForm, Dumped, Wanted, dump
from orbitmq.store.readable_log import ReadableLog

SHOWN_TEXT = 400
SHOWN_BYTES = 64
"""How much of a body people are shown without asking for text or hex."""

_QUIET = {"WAIT", "CLUSTER", "MSG_REGION", "TRACE_ON", "UNIQ_KEY", "TAGS", "KEYS", "__CRC32#"}
"""Properties that brokers put on every message, or that have a place of their own."""


def dump_command(
    directory: Directory,
    conf: Conf = None,
    topic: Annotated[str | None, typer.Option(help="Only this topic.")] = None,
    queue: Annotated[int | None, typer.Option(help="Only this queue id.")] = None,
    begin: Annotated[
        str | None, typer.Option("--from", metavar="TIME", help="Stored then or later: ms since 1970 or ISO.")
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Stored then or earlier.")] = None,
    key: Annotated[str | None, typer.Option(help="Only messages with this key among their KEYS.")] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", help="The message with this id, an offset id or a unique id.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after so many.")] = None,
    body: Annotated[
        BodyForm | None, typer.Option(help="How bodies are shown. Default: auto, with --json none.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Print records, one JSON object a line with --json. Goes on behind damage. Reads only."""
    wanted = Wanted(
        topic=topic,
        queue_id=queue,
        begin=None if begin is None else parse_time(begin),
        end=None if end is None else parse_time(end),
        key=key,
        message_id=message_id,
    )
    form = body or (BodyForm.NONE if json else BodyForm.AUTO)
    with plain_errors():
        disk, layout = open_layout(directory, conf)
        log = ReadableLog(disk, layout.config)
        log.load()
        console = for_people()
        rows, is_damaged = 0, False
        try:
            is_open = holder_of(layout.config.store_path_root_dir) is not None
            for found in dump(log, wanted, form if json else BodyForm.NONE, is_open=is_open):
                if found.damage is not None:
                    is_damaged = True
                    complain(found.damage)
                if found.row is None:
                    continue
                if json:
                    print_json_line(found.row)
                elif "blank" not in found.row:
                    _show(console, found, form)
                rows += "blank" not in found.row
                if rows == limit:
                    break
        finally:
            log.close()
        if not rows and not json:
            complain("no record matches" if not wanted.is_everything else "the store holds no record")
    if is_damaged:
        raise typer.Exit(1)


def _show(console: Console, found: Dumped, form: BodyForm) -> None:
    row = found.row
    assert row is not None
    if "undecodable" in row:
        console.print(Text(f"{row['physicalOffset']:>12}  not a record", style="red"))
        return
    head = Text()
    head.append(f"{row['physicalOffset']:>12}  ", style="cyan")
    head.append(printable(row["topic"]), style="bold")
    head.append(f" {row['queueId']}:{row['queueOffset']}", style="green")
    head.append(f"  {time_text(row['storeTimestamp'])}  {size_text(row['bodyLength'])}")
    properties = row["properties"]
    for name, label in (("TAGS", "tags"), ("KEYS", "keys")):
        if name in properties:
            head.append(f"  {label} ", style="dim")
            head.append(printable(properties[name]))
    if not row.get("bodyIntact", True):
        head.append("  the body fails its CRC", style="red")
    console.print(head, soft_wrap=True)
    details = Text(" " * 14, style="dim")
    details.append(f"id {printable(properties.get('UNIQ_KEY', row['msgId']))}")
    for name, value in properties.items():
        if name not in _QUIET:
            details.append(printable(f"  {name}={value}"))
    console.print(details, soft_wrap=True)
    text = _body_text(found.body or b"", form)
    if text:
        console.print(Text(" " * 14 + text), soft_wrap=True)


def _body_text(body: bytes, form: BodyForm) -> str:
    if form is BodyForm.NONE:
        return ""
    if form is BodyForm.HEX:
        return body.hex()
    if form is BodyForm.TEXT:
        return printable(body.decode("utf-8", "replace"))
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        rest = f" … {len(body) - SHOWN_BYTES} bytes more" if len(body) > SHOWN_BYTES else ""
        return body[:SHOWN_BYTES].hex() + rest
    rest = f" … {len(text) - SHOWN_TEXT} characters more" if len(text) > SHOWN_TEXT else ""
    return printable(text[:SHOWN_TEXT]) + rest
