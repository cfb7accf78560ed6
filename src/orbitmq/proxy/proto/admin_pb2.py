"""Message classes of ``admin.proto``."""

from orbitmq.proxy.proto.pool import load

globals().update(load("admin.proto"))
