"""What Spark finds by the name of this module: the format ``orbitmq-store``."""

from orbitmq.spark.store_source.datasource import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
