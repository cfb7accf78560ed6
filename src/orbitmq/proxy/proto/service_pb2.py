"""Message classes of ``service.proto``."""

from orbitmq.proxy.proto.pool import load

globals().update(load("service.proto"))
