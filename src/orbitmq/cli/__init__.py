"""The ``orbitmq`` command.

One module per verb or group of verbs: it parses options, calls, prints. Logic belongs to the packages below; their
results are printed as text and tables or, with ``--json``, as JSON. Exit codes: 0 for success, 1 for a failure,
2 for a wrong command line.
"""

from __future__ import annotations

# Not from typing: until ``main`` handles it, Ctrl-C is a traceback, so nothing large is imported before.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from orbitmq.cli.app import VERBS, app_with

__all__ = ["VERBS", "app_with", "main"]


def main() -> None:
    """Run the command line of this process."""
    from orbitmq.cli.interrupts import handle_interrupts  # noqa: PLC0415

    handle_interrupts()
    from orbitmq.cli import app  # noqa: PLC0415

    app.main()


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from orbitmq.cli import app  # noqa: PLC0415

    return getattr(app, name)
