"""Contexts: named clusters with their addresses and keys, in a file that only its owner can read."""

import dataclasses
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from orbitmq.platform.settings import ConfigError

VARIABLE = "ORBITMQ_CONTEXTS"
"""Environment variable with the path of the file."""


@dataclasses.dataclass(frozen=True, slots=True)
class Context:
    """One cluster, or several behind the same name servers."""

    name_servers: str
    cluster: str = ""
    access_key: str = ""
    secret_key: str = dataclasses.field(default="", repr=False)
    tls: bool = False
    tls_ca: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts, and the current one."""

    known: Mapping[str, Context] = dataclasses.field(default_factory=dict)
    current: str = ""

    def named(self, name: str) -> Context:
        """Raises ConfigError."""
        if name not in self.known:
            names = ", ".join(sorted(self.known)) or "none yet"
            raise ConfigError(f"the context {name!r} does not exist: there are {names}")
        return self.known[name]


def path() -> Path:
    """The file: of the environment variable, else in the configuration folder of the user."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(base) / "orbitmq" / "contexts.json"


def load() -> Contexts:
    """The contexts; none if there is no file. Raises ConfigError, OSError."""
    file = path()
    try:
        data = file.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    try:
        root = orjson.loads(data)
        known = {str(name): _context(value) for name, value in root["contexts"].items()}
        return Contexts(known, str(root.get("current", "")))
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None


def save(contexts: Contexts) -> None:
    """Replace the file: the old one stays until the new one is written. Its mode is 600."""
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    known = {name: dataclasses.asdict(context) for name, context in sorted(contexts.known.items())}
    # mkstemp makes files with mode 600.
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".contexts-")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(orjson.dumps({"current": contexts.current, "contexts": known}, option=orjson.OPT_INDENT_2))
            out.flush()
            os.fsync(out.fileno())
        os.replace(name, file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def is_private() -> bool:
    """True if only the owner can read the file."""
    try:
        return not path().stat().st_mode & 0o077
    except OSError:
        return True


def _context(value: Any) -> Context:
    names = {field.name for field in dataclasses.fields(Context)}
    return Context(**{name: item for name, item in value.items() if name in names})


def current_name_servers() -> str:
    """The address of the current context, for commands that take an address only; empty without one."""
    try:
        contexts = load()
    except (ConfigError, OSError):
        return ""
    name = os.environ.get("ORBITMQ_CONTEXT") or contexts.current
    context = contexts.known.get(name)
    return "" if context is None else context.name_servers
