"""Running a command of operators: the options that all have, the connection, confirmation, errors as exit codes."""

import contextlib
import dataclasses
import functools
import inspect
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_type_hints

import typer

from orbitmq.cli.admin.framework import contexts
from orbitmq.cli.admin.framework.view import Output, Table, View, emphasized, plain
from orbitmq.cli.interrupts import run
from orbitmq.cli.messages.options import DEFAULT_NAME_SERVER, client_errors
from orbitmq.cli.option_groups import option_groups
from orbitmq.cli.output import complain, printable
from orbitmq.platform.settings import ConfigError

if TYPE_CHECKING:
    from orbitmq.admin import AdminClient


FAILED, WRONG_USE, NOT_FOUND, UNREACHABLE, PARTIAL = 1, 2, 3, 4, 5
"""Exit codes."""


@dataclasses.dataclass(frozen=True, slots=True)
class Common:
    """Options of every command."""

    nameserver: Annotated[
        str | None,
        typer.Option(
            "--nameserver",
            "-n",
            metavar="ADDR",
            help="Name servers, as host:port, separated by ';'. [NAMESRV_ADDR]",
        ),
    ] = None
    context: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Context to use instead of the current one. [ORBITMQ_CONTEXT]"),
    ] = None
    cluster: Annotated[
        str | None, typer.Option("--cluster", "-c", help="Cluster, where the name servers know several.")
    ] = None
    output: Annotated[Output, typer.Option("--output", "-o", help="Format of the output.")] = Output.TABLE
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="Limit for one response.")] = 5.0

    def address(self) -> contexts.Context:
        """The cluster: of the option, the named context, the environment, the current context, or this machine."""
        known = contexts.load()
        if name := self.context or os.environ.get("ORBITMQ_CONTEXT"):
            chosen = known.named(name)
        elif known.current and not self.nameserver and not os.environ.get("NAMESRV_ADDR"):
            chosen = known.named(known.current)
        else:
            chosen = contexts.Context(os.environ.get("NAMESRV_ADDR") or DEFAULT_NAME_SERVER)
        if self.nameserver:
            chosen = dataclasses.replace(chosen, name_servers=self.nameserver)
        if chosen.secret_key and not contexts.is_private():
            raise ConfigError(f"{contexts.path()} has keys and others can read it: chmod 600 {contexts.path()}")
        access_key, secret_key = os.environ.get("ORBITMQ_ACCESS_KEY"), os.environ.get("ORBITMQ_SECRET_KEY")
        if access_key and secret_key:
            chosen = dataclasses.replace(chosen, access_key=access_key, secret_key=secret_key)
        return chosen

    def client(self) -> "AdminClient":
        """The operator's client, not started. Raises InvalidRequestError, ConfigError."""
        from orbitmq.admin import AdminClient  # noqa: PLC0415 - not imported for help texts
        from orbitmq.remoting import ClientTls  # noqa: PLC0415

        chosen = self.address()
        tls = ClientTls(verify_server=bool(chosen.tls_ca), trusted_path=chosen.tls_ca) if chosen.tls else None
        return AdminClient(
            chosen.name_servers,
            cluster=chosen.cluster if self.cluster is None else self.cluster,
            timeout=self.timeout,
            access_key=chosen.access_key,
            secret_key=chosen.secret_key,
            tls=tls,
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ChangeOptions:
    """Options of every command that changes something."""

    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the changes and make none.")] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False


@dataclasses.dataclass(frozen=True, slots=True)
class Operator:
    """The first argument of a command: the client, and the format of the output."""

    admin: "AdminClient"
    output: Output

    async def change(
        self,
        options: ChangeOptions,
        make: Callable[[bool], Awaitable[Sequence[Any]]],
        *,
        destroys: str = "",
    ) -> View:
        """Make a change, or plan it. ``make`` takes whether it is a dry run. What destroys is confirmed first."""
        if destroys and not options.yes and not options.dry_run:
            planned = await make(True)
            for line in _diff(planned):
                print(line, file=sys.stderr)
            confirm(destroys)
        changes = await make(options.dry_run)
        note = ""
        if not changes:
            note = "nothing to change"
        elif options.dry_run:
            note = "dry run: nothing was changed"
        return _ChangesView({"": Table(_SPEC, [_row(one) for one in changes])}, note, changes=tuple(changes))


def confirm(what: str) -> None:
    """Ask before something is destroyed. Without a terminal ``--yes`` is the answer. Raises Exit."""
    if not sys.stdin.isatty():
        complain(f"to {what}, give --yes: there is no terminal to ask for confirmation")
        raise typer.Exit(WRONG_USE)
    print(f"{what[:1].upper()}{what[1:]}? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        complain("nothing was changed")
        raise typer.Exit(FAILED)


# Changes

_SPEC = "target field before after"


def _row(change: Any) -> tuple[Any, ...]:
    """A change of any subject as a row: of settings, or of an offset."""
    if hasattr(change, "queue_id"):
        return (f"{change.topic} at {change.broker_name}:{change.queue_id}", "offset", change.before, change.after)
    return (change.target, change.field, change.before, change.after)


def _diff(changes: Sequence[Any]) -> Iterator[str]:
    """The changes as a diff: a headline for each thing, then what goes and what comes."""
    last = None
    for target, field, before, after in map(_row, changes):
        if target != last:
            yield emphasized(printable(target))
            last = target
        if before is not None:
            yield f"  - {field} = {printable(str(plain(before)))}"
        if after is not None:
            yield f"  + {field} = {printable(str(plain(after)))}"


@dataclasses.dataclass(frozen=True, slots=True)
class _ChangesView(View):
    changes: tuple[Any, ...] = ()

    def _show_text(self) -> None:
        for line in _diff(self.changes):
            print(line)


# Commands

Work = Callable[..., Awaitable[View | None]]
WorkT = TypeVar("WorkT", bound=Work)


def verb(app: typer.Typer, name: str) -> Callable[[WorkT], WorkT]:
    """Decorator: make a coroutine function a command of an application."""

    def register(work: WorkT) -> WorkT:
        app.command(name)(command_of(work))
        return work

    return register


def command_of(work: Work) -> Callable[..., None]:
    """The command of a coroutine function.

    Its first parameter is the ``Operator``. Parameters of dataclasses are option groups; the others are Typer's.
    """

    def command(common: Common, **given: Any) -> None:
        with admin_errors():
            view = run(_run(work, common, given))
            if view is not None:
                view.show(common.output)
                sys.stdout.flush()
                if view.exit_code:
                    raise typer.Exit(view.exit_code)

    hints = get_type_hints(work, include_extras=True)
    parameters = list(inspect.signature(work).parameters.values())[1:]
    functools.update_wrapper(command, work)
    del command.__wrapped__  # type: ignore[attr-defined]
    own = [one.replace(annotation=hints[one.name], kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    common = inspect.Parameter("common", inspect.Parameter.KEYWORD_ONLY, annotation=Common)
    command.__annotations__ = {**{one.name: one.annotation for one in own}, "common": Common}
    command.__signature__ = inspect.Signature([*own, common])  # type: ignore[attr-defined]
    return option_groups(command)


async def _run(work: Work, common: Common, given: dict[str, Any]) -> View | None:
    async with common.client() as admin:
        return await work(Operator(admin, common.output), **given)


@contextlib.contextmanager
def admin_errors() -> Iterator[None]:
    """Print errors as one sentence, with an exit code for what happened."""
    from orbitmq.admin.errors import (  # noqa: PLC0415 - not imported for help texts
        InvalidRequestError,
        NotFoundError,
        PartialFailureError,
        UnreachableError,
    )

    codes = (
        (InvalidRequestError, WRONG_USE),
        (NotFoundError, NOT_FOUND),
        (UnreachableError, UNREACHABLE),
        (PartialFailureError, PARTIAL),
    )
    with client_errors():
        try:
            yield
        except tuple(kind for kind, _ in codes) as error:
            complain(str(error))
            raise typer.Exit(next(code for kind, code in codes if isinstance(error, kind))) from None


def settings_of(given: Sequence[str]) -> dict[str, str]:
    """``KEY=VALUE`` arguments. Raises BadParameter."""
    found = {}
    for text in given:
        key, separator, value = text.partition("=")
        if not key or not separator:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE")
        found[key] = value
    return found
