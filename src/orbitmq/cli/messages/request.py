"""``orbitmq request`` and ``orbitmq reply``: request-reply from the command line."""

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.interrupts import run
from orbitmq.cli.messages.message_json import line_of
from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, NameServers, client_errors
from orbitmq.cli.messages.send import STANDARD_INPUT
from orbitmq.cli.messages.stdin import all_of
from orbitmq.cli.output import complain, many, print_json_line
from orbitmq.cli.time_expressions import DURATION_HELP, parse_duration
from orbitmq.client.errors import OrbitMQError

if TYPE_CHECKING:
    from orbitmq.client.message import ReceivedMessage
    from orbitmq.client.producer.producer import Producer

REPLY_GROUP = "orbitmq-reply"


def request(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the requests.")],
    body: Annotated[str, typer.Argument(metavar="BODY|-", help="Body; - reads it from standard input.")],
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    tag: Annotated[str | None, typer.Option(help="Tag of the request.")] = None,
    key: Annotated[list[str] | None, typer.Option(help="Key of the request. May be repeated.")] = None,
    timeout: Annotated[
        str, typer.Option(metavar="DURATION", help=f"How long to wait for the reply, {DURATION_HELP}.")
    ] = "3s",
    json: Annotated[bool, typer.Option("--json", help="Print the reply as a JSON object.")] = False,
) -> None:
    """Send a request and print the body of its reply. Exit code 1 if none arrives in time."""
    seconds = parse_duration(timeout)
    with client_errors():
        reply = run(_request(nameserver, topic, body, tag, key or [], seconds))
        if json:
            print_json_line(line_of(reply))
        else:
            sys.stdout.buffer.write(reply.body + b"\n")


async def _request(
    nameserver: str, topic: str, body: str, tag: str | None, keys: list[str], seconds: float
) -> "ReceivedMessage":
    from orbitmq.client.message import Message  # noqa: PLC0415 - not imported for help texts
    from orbitmq.client.producer.producer import Producer  # noqa: PLC0415

    async with Producer(nameserver) as producer:
        most = producer.config.max_message_size
        data = await all_of(sys.stdin.fileno(), most) if body == STANDARD_INPUT else os.fsencode(body)
        return await producer.request(Message(topic, data, tags=tag, keys=keys), timeout=seconds)


def reply(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Topic of the requests.")],
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="Body of every reply; without one, that of the request.")
    ] = None,
    nameserver: NameServers = DEFAULT_NAME_SERVER,
    group: Annotated[str, typer.Option("--group", "-g", help="Consumer group.")] = REPLY_GROUP,
    command: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help="Shell command per request: the request is its standard input, its standard output the reply.",
        ),
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only requests with this tag.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this many replies.")] = None,
) -> None:
    """Reply to the requests of a topic until Ctrl-C: with a text, with a command's output, or as an echo."""
    if body is not None and command is not None:
        raise typer.BadParameter("give a BODY or a --command, not both")
    fixed = None if body is None else os.fsencode(body)
    with client_errors(), contextlib.suppress(KeyboardInterrupt):
        run(_Replies(fixed, command, count).serve(nameserver, topic, group, tag))


class _Replies:
    """Replies to requests, each with its own message."""

    def __init__(self, body: bytes | None, command: str | None, count: int | None) -> None:
        self._body = body
        self._command = command
        self._left = count
        self._done = asyncio.Event()

    async def serve(self, nameserver: str, topic: str, group: str, tag: str | None) -> None:
        from orbitmq.client.producer.producer import Producer  # noqa: PLC0415
        from orbitmq.client.push.consumer import Consumer  # noqa: PLC0415

        replied = 0
        async with Producer(nameserver) as producer:
            consumer = Consumer(nameserver, group=group)

            async def handle(message: "ReceivedMessage") -> None:
                nonlocal replied
                if not message.is_request:
                    complain(f"{message.message_id} is not a request: its sender waits for no reply")
                    return
                await self._reply(producer, message)
                replied += 1
                if replied == self._left:
                    self._done.set()

            await consumer.subscribe(topic, handle, tags=tag)
            async with consumer:
                complain(f"replying to requests of {topic}")
                await self._done.wait()
        complain(f"{many(replied, 'request')} replied to")

    async def _reply(self, producer: "Producer", message: "ReceivedMessage") -> None:
        body = message.body if self._body is None else self._body
        if self._command is not None:
            body = await _output_of(self._command, message.body)
        try:
            await producer.reply_to(message, body)
        except OrbitMQError as error:
            # A retry would not help: by then its sender has given up.
            complain(f"the reply to {message.message_id} failed: {error}")


async def _output_of(command: str, data: bytes) -> bytes:
    """Standard output of a shell command."""
    process = await asyncio.create_subprocess_shell(
        command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate(data)
    if process.returncode:
        complain(f"the command ended with {process.returncode}")
    return output
