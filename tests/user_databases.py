"""Databases of users: files of SQLite, and a real PostgreSQL that is started for the tests."""

from __future__ import annotations

import contextlib
import glob
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 30.0
KINDS = ("sqlite", "postgresql")

_numbers = itertools.count()


@contextlib.contextmanager
def databases(kind: str) -> Iterator[Databases]:
    """Databases of a kind, as many as are asked for. Skips the test where PostgreSQL is not installed."""
    if kind == "sqlite":
        yield Databases(None)
        return
    with _postgresql() as server:
        yield Databases(server)


class Databases:
    """Where new databases come from."""

    def __init__(self, server: str | None) -> None:
        """``server`` is the address of a PostgreSQL; None for files of SQLite."""
        self._server = server

    def new(self, folder: Path) -> str:
        """The address of an empty database."""
        if self._server is None:
            return f"sqlite:///{folder / f'shop-{next(_numbers)}.db'}"
        name = f"shop_{next(_numbers)}"
        engine = sa.create_engine(self._server, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self._server.replace("/postgres?", f"/{name}?")


@contextlib.contextmanager
def engine_at(url: str) -> Iterator[sa.Engine]:
    engine = sa.create_engine(url)
    try:
        yield engine
    finally:
        engine.dispose()


@contextlib.contextmanager
def _postgresql() -> Iterator[str]:
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"))
    postgres = shutil.which("postgres") or (found[-1] if found else None)
    if postgres is None:
        pytest.skip("PostgreSQL is not installed (Debian's package postgresql)")
    programs = os.path.dirname(postgres)
    user = _user()
    # Not below pytest's folder, which nobody but the user who runs the tests may enter.
    folder = tempfile.mkdtemp(prefix="orbitmq-postgresql-")
    try:
        if user:
            shutil.chown(folder, user["user"], user["group"])
        data = os.path.join(folder, "data")
        subprocess.run(
            [f"{programs}/initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True,
            capture_output=True,
            cwd=folder,
            **user,
        )
        settings = ("listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", "max_connections=50")
        with open(os.path.join(folder, "log"), "wb") as log:
            server = subprocess.Popen(
                [f"{programs}/postgres", "-D", data, *(part for one in settings for part in ("-c", one))],
                stdout=log,
                stderr=log,
                cwd=folder,
                **user,
            )
        try:
            url = f"postgresql+psycopg://postgres@/postgres?host={folder}"
            _wait_for(server, url)
            yield url
        finally:
            server.terminate()
            server.wait(PATIENCE)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _user() -> dict[str, Any]:
    """As whom to start it: it refuses to be started by root."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL does not run as root, and there is no user to run it as")


def _wait_for(server: subprocess.Popen[bytes], url: str) -> None:
    until = time.monotonic() + PATIENCE
    with engine_at(url) as engine:
        while True:
            assert server.poll() is None, "PostgreSQL does not start"
            try:
                with engine.connect():
                    return
            except sa.exc.OperationalError:
                assert time.monotonic() < until, "PostgreSQL does not answer"
                time.sleep(0.05)
