"""Output of the commands: tables and text for a terminal, JSON for programs, errors as one sentence."""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from typing import TYPE_CHECKING, Any

import orjson

from orbitmq.platform.settings import ConfigError
from orbitmq.protocol.errors import ProtocolError
from orbitmq.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console


def for_people() -> Console:
    """Standard output with rich's tables and colours, without its automatic highlighting of numbers and words."""
    from rich.console import Console  # noqa: PLC0415

    return Console(highlight=False)


def for_progress() -> Console:
    """Standard error, for progress: standard output may be piped."""
    from rich.console import Console  # noqa: PLC0415

    return Console(stderr=True, highlight=False)


def print_json(value: Any) -> None:
    """Print one value as indented JSON."""
    _write(orjson.dumps(value, option=orjson.OPT_INDENT_2) + b"\n")


def print_json_line(value: Any) -> None:
    """Print one value as JSON on one line."""
    _write(orjson.dumps(value) + b"\n")


def _write(data: bytes) -> None:
    # The text layer would decode and encode the bytes again.
    out = getattr(sys.stdout, "buffer", None)
    if out is None:
        sys.stdout.write(data.decode())
    else:
        out.write(data)


def complain(text: str) -> None:
    """Print one sentence to standard error."""
    print(f"orbitmq: {printable(text)}", file=sys.stderr)


@contextlib.contextmanager
def plain_errors() -> Iterator[None]:
    """Turn expected errors into a sentence on standard error and exit code 1 instead of a traceback."""
    try:
        yield
        sys.stdout.flush()
    except (ConfigError, StoreError, ProtocolError) as error:
        complain(str(error))
        raise SystemExit(1) from None
    except BrokenPipeError:
        # The reader of our output closed it. Flushing the buffer at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        complain(f"{where}{error.strerror or error}")
        raise SystemExit(1) from None
    except KeyboardInterrupt:
        complain("interrupted")
        raise SystemExit(130) from None


def printable(text: str) -> str:
    """The text with control characters escaped: they could change the state of a terminal."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def safe(text: str) -> str:
    """Text from a store or a command line, escaped for rich, where square brackets are markup."""
    from rich.markup import escape  # noqa: PLC0415

    return escape(printable(text))


# Numbers and times


def many(count: int, what: str) -> str:
    """``1 file``, ``2,000 files``; also ``1 entry``, ``2 entries``."""
    if count != 1:
        what = what[:-1] + "ies" if what.endswith("y") and what[-2:] != "ey" else what + "s"
    return f"{count:,} {what}"


def size_text(size: float) -> str:
    """``928 KB``, ``1.1 GB``: decimal units, as disks are sold."""
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def time_text(ms: int | None) -> str:
    """Local time with milliseconds."""
    if not ms or ms <= 0:
        return "—"
    try:
        moment = datetime.datetime.fromtimestamp(ms / 1000).astimezone()
    except (OverflowError, OSError, ValueError):
        return str(ms)
    return moment.strftime("%Y-%m-%d %H:%M:%S.") + f"{ms % 1000:03d}"
