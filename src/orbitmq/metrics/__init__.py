"""Metrics: instruments and snapshots of their values, and their way out as Prometheus text, OTLP or log lines.

Pure but for the HTTP endpoint and the exporters: nothing here knows a broker. The servers collect their own values
(``broker/metrics``, ``nameserver/metrics.py``) into a ``Snapshot``.
"""
