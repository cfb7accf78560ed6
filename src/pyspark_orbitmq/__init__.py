"""The format ``orbitmq``, which Spark finds by the name of this module."""

from orbitmq.spark.topic_source.datasource import OrbitMQSource as DefaultSource

__all__ = ["DefaultSource"]
