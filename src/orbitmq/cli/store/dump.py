"""``orbitmq store dump``: prints the records of a store."""

from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from orbitmq.cli.output import (
    complain,
    for_people,
    plain_errors,
    print_json_line,
    printable,
    size_text,
    time_text,
)
from orbitmq.cli.store.options import AsJson, Conf, Directory, holder_of, open_layout
from orbitmq.cli.time_expressions import parse_time
from orbitmq.store.commitlog.read_only import ReadOnlyLog
from orbitmq.store.tools.dump import BodyForm, Dumped, Wanted, dump

PRINTED_CHARACTERS = 400
PRINTED_BYTES = 64
"""Limit of the printed part of a body, without ``--body``."""

_QUIET = {"WAIT", "CLUSTER", "MSG_REGION", "TRACE_ON", "UNIQ_KEY", "TAGS", "KEYS", "__CRC32#"}
"""Properties that every message has, or that are printed elsewhere."""


def dump_command(
    directory: Directory,
    conf: Conf = None,
    topic: Annotated[str | None, typer.Option(help="Only records of this topic.")] = None,
    queue: Annotated[int | None, typer.Option(help="Only records of this queue id.")] = None,
    begin: Annotated[
        str | None,
        typer.Option("--from", metavar="TIME", help="Only records stored since TIME: ms since 1970, or ISO 8601."),
    ] = None,
    end: Annotated[str | None, typer.Option("--to", metavar="TIME", help="Only records stored up to TIME.")] = None,
    key: Annotated[str | None, typer.Option(help="Only messages with this key among their KEYS.")] = None,
    message_id: Annotated[
        str | None, typer.Option("--id", help="Only the message with this offset id or unique id.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")] = None,
    body: Annotated[
        BodyForm | None, typer.Option(help="Format of the bodies. Default: auto, or none with --json.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Print the records of the commit log. Continues after damaged bytes. Reads only."""
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
        log = ReadOnlyLog(disk, layout.config)
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
        rest = f" … {len(body) - PRINTED_BYTES} bytes more" if len(body) > PRINTED_BYTES else ""
        return body[:PRINTED_BYTES].hex() + rest
    rest = f" … {len(text) - PRINTED_CHARACTERS} characters more" if len(text) > PRINTED_CHARACTERS else ""
    return printable(text[:PRINTED_CHARACTERS]) + rest
