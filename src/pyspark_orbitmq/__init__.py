"""What Spark finds by the name of this module: the format ``orbitmq``."""

from orbitmq.spark.topic_source.datasource import OrbitMQSource as DefaultSource

__all__ = ["DefaultSource"]
