"""Entry of ``orbitmq mqadmin``: finds the command, parses its options, runs it, prints errors as Apache."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from orbitmq.cli.admin.mqadmin.specs import SPECS, UNSUPPORTED, Spec, function_name, spec_named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

DEFAULT_NAME_SERVER = "127.0.0.1:9876"


class UsageError(Exception):
    """The options of a command are wrong."""


def mqadmin(arguments: Sequence[str]) -> None:
    """Run one command. Raises SystemExit: 0 for success, 1 for a failure."""
    from orbitmq.cli.output import plain_errors  # noqa: PLC0415 - not imported for help texts

    with plain_errors():
        sys.exit(run_command(list(arguments)))


def run_command(arguments: list[str]) -> int:
    """Run one command and return the exit code."""
    if not arguments or arguments[0] in {"-h", "--help"}:
        _print_commands()
        return 0
    name, *rest = arguments
    if name == "help":
        name, rest = (rest[0], ["-h"]) if rest else ("", [])
    spec = spec_named(name)
    if spec is None:
        print(f"The sub command {name} not exist.")
        return 1
    if spec.name in UNSUPPORTED and "-h" not in rest:
        print(f"orbitmq: {spec.name} does not work here: {UNSUPPORTED[spec.name]}", file=sys.stderr)
        return 1
    try:
        options = parse(spec, rest)
    except UsageError as error:
        print(error)
        print_usage(spec)
        return 1
    if "h" in options:
        print_usage(spec)
        return 0
    return _execute(spec, options)


# Options


def parse(spec: Spec, arguments: list[str]) -> dict[str, str]:
    """The options of a command by short name. Raises UsageError."""
    known = {f"-{one.short}": (one.name, one.has_value) for one in spec.options if one.short}
    known |= {f"--{one.long}": (one.name, one.has_value) for one in spec.options}
    # commons-cli takes long names after one hyphen too.
    known = {f"-{one.long}": (one.name, one.has_value) for one in spec.options} | known
    known |= {"-n": ("n", True), "--namesrvAddr": ("n", True), "-h": ("h", False), "--help": ("h", False)}
    found: dict[str, str] = {}
    words = iter(arguments)
    for word in words:
        name, separator, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if name not in known:
            raise UsageError(f"Unrecognized option: {word}")
        key, has_value = known[name]
        if has_value and not separator:
            following = next(words, None)
            if following is None:
                raise UsageError(f"Missing argument for option: {key}")
            value = following
        found[key] = value
    if "h" in found:
        return found
    if missing := [one.name for one in spec.options if one.is_required and one.name not in found]:
        plural = "s" if len(missing) > 1 else ""
        raise UsageError(f"Missing required option{plural}: {', '.join(missing)}")
    given = [name for name in spec.either if name in found]
    if spec.either and len(given) != 1:
        names = ", ".join(f"-{name}" for name in spec.either)
        raise UsageError(f"Missing required option: [{names}]" if not given else f"give only one of {names}")
    return found


def _print_commands() -> None:
    print("The most commonly used mqadmin commands are:")
    for spec in SPECS.values():
        print(f"   {spec.name:<35} {spec.summary}")
    print("\nSee 'mqadmin help <command>' for more information on a specific command.")


def print_usage(spec: Spec) -> None:
    """The options of a command."""
    print(f"usage: mqadmin {spec.name} [options]")
    for one in spec.options:
        head = f"-{one.short},--{one.long}" if one.short else f"   --{one.long}"
        note = "required" if one.is_required else "one of them" if one.name in spec.either else ""
        print(f" {head}{' <arg>' if one.has_value else '':<6} {note}".rstrip())
    print(" -h,--help\n -n,--namesrvAddr <arg>")
    print(f"{spec.summary}")


# Running


def _execute(spec: Spec, options: Mapping[str, str]) -> int:
    from orbitmq.admin.errors import AdminError  # noqa: PLC0415 - not imported for help texts
    from orbitmq.cli.admin.mqadmin.java_errors import report  # noqa: PLC0415
    from orbitmq.remoting import run  # noqa: PLC0415

    try:
        run(_run(spec, options))
    except AdminError as error:
        sys.stdout.flush()
        report(spec, error)
        return 1
    finally:
        sys.stdout.flush()
    return 0


async def _run(spec: Spec, options: Mapping[str, str]) -> None:
    from orbitmq.admin import AdminClient  # noqa: PLC0415 - not imported for help texts
    from orbitmq.cli.admin.framework import contexts  # noqa: PLC0415
    from orbitmq.cli.admin.mqadmin.call import Call  # noqa: PLC0415

    address = options.get("n") or os.environ.get("NAMESRV_ADDR") or contexts.current_name_servers()
    access_key, secret_key = credentials()
    handler = getattr(
        importlib.import_module(f"orbitmq.cli.admin.mqadmin.commands.{spec.module}"), function_name(spec.name)
    )
    async with AdminClient(address or DEFAULT_NAME_SERVER, access_key=access_key, secret_key=secret_key) as admin:
        await handler(Call(spec, options, admin))


def credentials() -> tuple[str, str]:
    """The keys of ``$ROCKETMQ_HOME/conf/tools.yml``; empty unless it has both."""
    home = os.environ.get("ROCKETMQ_HOME")
    if not home:
        return "", ""
    try:
        text = (Path(home) / "conf" / "tools.yml").read_text("utf-8")
    except OSError:
        return "", ""
    # The file has two keys and no nesting.
    lines = (line.partition("#")[0].partition(":") for line in text.splitlines())
    found = {key.strip(): value.strip().strip("'\"") for key, separator, value in lines if separator}
    access_key, secret_key = found.get("accessKey", ""), found.get("secretKey", "")
    return (access_key, secret_key) if access_key and secret_key else ("", "")
