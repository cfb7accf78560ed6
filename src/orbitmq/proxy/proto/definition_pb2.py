"""Message classes of ``definition.proto``."""

from orbitmq.proxy.proto.pool import load

globals().update(load("definition.proto"))
