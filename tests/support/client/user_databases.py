"""Databases of users: files of SQLite, and a real PostgreSQL or MariaDB that is started for the tests."""

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
KINDS = ("sqlite", "postgresql", "mariadb")

_numbers = itertools.count()


@contextlib.contextmanager
def databases(kind: str) -> Iterator[Databases]:
    """Databases of a kind, as many as are asked for. Skips the test where the server of that is not installed."""
    if kind == "sqlite":
        yield Databases(None)
        return
    with _postgresql() if kind == "postgresql" else _mariadb() as server:
        yield Databases(server)


class Databases:
    """Where new databases come from."""

    def __init__(self, server: str | None) -> None:
        """``server`` is the address of a database of a server; None for files of SQLite."""
        self._server = None if server is None else sa.make_url(server)

    def new(self, folder: Path) -> str:
        """The address of an empty database."""
        if self._server is None:
            return f"sqlite:///{folder / f'shop-{next(_numbers)}.db'}"
        name = f"shop_{next(_numbers)}"
        engine = sa.create_engine(self._server, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            connection.execute(sa.text(f"CREATE DATABASE {name}"))
        engine.dispose()
        return self._server.set(database=name).render_as_string(hide_password=False)


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
    with _home("postgresql", "postgres") as (folder, user):
        data = os.path.join(folder, "data")
        _make(
            [f"{programs}/initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync"],
            folder,
            user,
        )
        settings = ("listen_addresses=", f"unix_socket_directories={folder}", "fsync=off", "max_connections=50")
        command = [f"{programs}/postgres", "-D", data, *(part for one in settings for part in ("-c", one))]
        url = f"postgresql+psycopg://postgres@/postgres?host={folder}"
        with _running(command, folder, user, os.path.join(folder, ".s.PGSQL.5432"), url):
            yield url


@contextlib.contextmanager
def _mariadb() -> Iterator[str]:
    # Where Debian has it, which is not in everybody's PATH.
    mariadbd = shutil.which("mariadbd") or shutil.which("mariadbd", path="/usr/sbin")
    install = shutil.which("mariadb-install-db")
    if mariadbd is None or install is None:
        pytest.skip("MariaDB is not installed (Debian's package mariadb-server)")
    pytest.importorskip("pymysql", reason="its driver is not installed (PyMySQL)")
    with _home("mariadb", "mysql") as (folder, user):
        data, socket = os.path.join(folder, "data"), os.path.join(folder, "socket")
        own = ["--no-defaults", f"--datadir={data}", "--innodb-log-file-size=16M"]
        _make([install, *own, "--auth-root-authentication-method=normal", "--skip-test-db"], folder, user)
        command = [mariadbd, *own, f"--socket={socket}", f"--pid-file={folder}/pid", "--skip-networking"]
        command += ["--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=32M"]
        # As it is set up at most of its users, and at all of MySQL's since version 8.
        command += ["--character-set-server=utf8mb4", "--collation-server=utf8mb4_general_ci"]
        url = f"mariadb+pymysql://root@/mysql?unix_socket={socket}"
        with _running(command, folder, user, socket, url):
            yield url


@contextlib.contextmanager
def _home(kind: str, owner: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """A folder for a server, and as whom to start it: none wants to be started by root."""
    user: dict[str, Any] = {}
    if os.getuid() == 0:
        for name in (owner, "nobody"):
            with contextlib.suppress(KeyError):
                user = {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": []}
                break
        else:
            pytest.skip("database servers do not run as root, and there is no user to run them as")
    # Not below pytest's folder, which nobody but the user who runs the tests may enter.
    folder = tempfile.mkdtemp(prefix=f"orbitmq-{kind}-")
    try:
        if user:
            shutil.chown(folder, user["user"], user["group"])
        yield folder, user
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _make(command: list[str], folder: str, user: dict[str, Any]) -> None:
    subprocess.run(command, check=True, capture_output=True, cwd=folder, **user)


@contextlib.contextmanager
def _running(command: list[str], folder: str, user: dict[str, Any], socket: str, url: str) -> Iterator[None]:
    """A server that answers at an address."""
    with open(os.path.join(folder, "log"), "wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder, **user)
    try:
        _wait_for(server, socket, url)
        yield
    finally:
        server.terminate()
        server.wait(PATIENCE)


def _wait_for(server: subprocess.Popen[bytes], socket: str, url: str) -> None:
    until = time.monotonic() + PATIENCE
    with engine_at(url) as engine:
        while True:
            assert server.poll() is None, "the database does not start"
            # Not before: PyMySQL forgets to close what it could not connect.
            if os.path.exists(socket):
                with contextlib.suppress(sa.exc.OperationalError), engine.connect():
                    return
            assert time.monotonic() < until, "the database does not answer"
            time.sleep(0.05)
