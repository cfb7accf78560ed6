"""The format ``orbitmq-store``, which Spark finds by the name of this module."""

from orbitmq.spark.store_source.datasource import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
