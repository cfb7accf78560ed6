"""Errors of the Spark integration, one sentence each."""

from __future__ import annotations

from orbitmq.client.errors import OrbitMQError


class SparkSourceError(OrbitMQError):
    """Reading or writing through Spark failed."""


class OptionError(SparkSourceError):
    """An option, a schema or an offset is invalid."""


class DataLossError(SparkSourceError):
    """Messages that a query has to read have expired."""
