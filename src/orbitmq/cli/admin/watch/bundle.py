"""``orbitmq bundle``: the state of a cluster in one archive, for a bug report."""

import os
import time
from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.admin.framework.operator import Operator, command_of
from orbitmq.cli.admin.framework.view import Pairs, View
from orbitmq.platform.settings import ConfigError


async def _bundle(
    operator: Operator,
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="The archive; orbitmq-bundle-TIME.tar.gz by default.")
    ] = "",
) -> View:
    """Write topics, groups, lag, settings, events and health of a cluster to an archive.

    Secrets and message bodies are left out; addresses and names are not. Look at it before you send it.
    """
    from orbitmq.admin.health.bundle import archive, collect  # noqa: PLC0415 - not imported for help texts

    made = round(time.time() * 1000)
    folder = time.strftime("orbitmq-bundle-%Y%m%d-%H%M%S", time.localtime(made / 1000))
    target = Path(file or f"{folder}.tar.gz")
    if target.exists():  # noqa: ASYNC240 - nothing else runs on this loop
        raise ConfigError(f"{target} exists already")
    files = await collect(operator.admin, cluster=operator.admin.config.cluster, created_ms=made)
    data = archive(files, folder=folder, modified_ms=made)
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as out:
        out.write(data)
    errors = next((one.content.decode() for one in files if one.name == "errors.txt"), "")
    note = f"{errors.count(chr(10))} parts could not be read: see errors.txt in the archive" if errors else ""
    return View.of(Pairs({"file": str(target), "files": len(files), "bytes": len(data)}), note)


bundle = command_of(_bundle)
