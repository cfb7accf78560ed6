"""The ``orbitmq`` command.

One module per verb or group of verbs: it parses options, calls, prints. Logic belongs to the packages below; their
results are printed as text and tables or, with ``--json``, as JSON. Exit codes: 0 for success, 1 for a failure,
2 for a wrong command line.
"""

from orbitmq.cli.app import VERBS, app_with, main

__all__ = ["VERBS", "app_with", "main"]
