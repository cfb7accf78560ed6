"""The ``orbitmq`` command.

One module per verb or group of verbs: it parses, calls, prints. Logic belongs to the packages below; what they
return is shown here as tables for people or, with ``--json``, as JSON for machines. Exit codes: 0 for success, 1
when there is a problem, 2 when the command was not understood.
"""

from orbitmq.cli.app import VERBS, app_with, main

__all__ = ["VERBS", "app_with", "main"]
