"""FastStream on OrbitMQ and Apache RocketMQ: ``OrbitMQBroker``, its router, and its test broker."""

try:
    from orbitmq.faststream.broker import OrbitMQBroker, OrbitMQRouter
    from orbitmq.faststream.message import OrbitMQMessage
    from orbitmq.faststream.response import OrbitMQResponse
    from orbitmq.faststream.testing import TestOrbitMQBroker
except ImportError as error:
    if (error.name or "").partition(".")[0] not in {"faststream", "fast_depends"}:
        raise
    sentence = "FastStream is not installed, or too old: pip install -U 'orbitmq[faststream]'"
    raise ImportError(sentence, name=error.name) from error

__all__ = ["OrbitMQBroker", "OrbitMQMessage", "OrbitMQResponse", "OrbitMQRouter", "TestOrbitMQBroker"]
