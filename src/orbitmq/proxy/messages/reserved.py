"""Property names that applications may not use over gRPC, and that consumers are not given."""

from __future__ import annotations

from orbitmq.protocol.message import property_names as names

RESERVED = names.RESERVED - {names.ORIGIN_GROUP}
"""Those of Apache's proxy. ``__SHARDINGKEY``, ``TRACE_CONTEXT`` and some others are not among them: consumers get
them as user properties, too."""
