"""What can go wrong between Spark and a cluster, as one sentence each."""

from __future__ import annotations

from orbitmq.client.errors import OrbitMQError


class SparkSourceError(OrbitMQError):
    """Reading or writing through Spark cannot go on."""


class OptionError(SparkSourceError):
    """An option, a schema or an offset that somebody gave cannot be used."""


class DataLossError(SparkSourceError):
    """Messages that a query was to read are not there any more."""
