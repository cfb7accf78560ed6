"""OrbitMQ: a message queue that is RocketMQ at every seam, written in Python."""

__version__ = "0.1.0"
