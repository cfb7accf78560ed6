"""Settings of the metrics: which exporter runs, where it listens or sends to, and which groups of metrics exist."""

from __future__ import annotations

import dataclasses
import enum

from orbitmq.broker.config.failover_settings import FailoverSettings
from orbitmq.platform.settings import ConfigError, Int64, setting

MAX_LABELS = 32
"""Of ``metricsLabel`` and ``metricsGrpcExporterHeader``."""


class MetricsExporterType(enum.StrEnum):
    """Exporter of the metrics. OTLP_HTTP is OrbitMQ's own."""

    DISABLE = "DISABLE"
    OTLP_GRPC = "OTLP_GRPC"
    PROM = "PROM"
    LOG = "LOG"
    OTLP_HTTP = "OTLP_HTTP"


_BY_NUMBER = {"0": "DISABLE", "1": "OTLP_GRPC", "2": "PROM", "3": "LOG"}
"""RocketMQ accepts the number of a type too."""


@dataclasses.dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class MetricsSettings(FailoverSettings):
    """RocketMQ's settings of metrics. They take effect at start."""

    metrics_exporter_type: str = "DISABLE"
    metrics_prom_exporter_host: str = ""
    """IP address of the endpoint. Empty: 127.0.0.1, where RocketMQ takes ``brokerIP1``."""
    metrics_prom_exporter_port: int = 5557
    metrics_prom_exporter_tls: bool = setting(False, optional=True)
    """Not RocketMQ's: TLS on the endpoint, with the certificate of ``tls.server.certPath``."""
    metrics_grpc_exporter_target: str = ""
    metrics_grpc_exporter_header: str = ""
    """``name:value,name:value``."""
    metric_grpc_exporter_interval_in_mills: Int64 = 60_000
    metric_grpc_exporter_time_out_in_mills: Int64 = 3000
    metric_logging_exporter_interval_in_mills: Int64 = 10_000
    metrics_export_batch_max_data_points: int = 1000
    metrics_label: str = ""
    """Labels of every metric: ``name:value,name:value``."""
    metrics_in_delta: bool = False
    metrics_otel_cardinality_limit: int = 50_000
    """Series of one metric; further ones are left out and counted."""
    enable_connection_metrics: bool = True
    enable_lag_and_dlq_metrics: bool = True
    enable_message_store_metrics: bool = True
    enable_pop_metrics: bool = True
    enable_remoting_metrics: bool = True
    enable_request_metrics: bool = True
    enable_stats_metrics: bool = True
    enable_transaction_metrics: bool = True
    broker_event_journal_bytes: int = setting(1 << 20, optional=True)
    """Bytes of the broker's own history, in memory and in ``config/brokerEvents.json``. 0: none is kept."""

    @property
    def metrics_exporter(self) -> MetricsExporterType:
        """The exporter that ``metricsExporterType`` names, in RocketMQ's spelling or as its number."""
        text = self.metrics_exporter_type.upper()
        return MetricsExporterType(_BY_NUMBER.get(text, text))

    def check_metrics(self) -> None:
        """Raise ConfigError for values that no exporter can work with."""
        try:
            exporter = self.metrics_exporter
        except ValueError:
            raise ConfigError(
                f"metricsExporterType={self.metrics_exporter_type}: give DISABLE, PROM, OTLP_GRPC, OTLP_HTTP or LOG"
            ) from None
        pairs_of("metricsLabel", self.metrics_label)
        pairs_of("metricsGrpcExporterHeader", self.metrics_grpc_exporter_header)
        if exporter in {MetricsExporterType.OTLP_GRPC, MetricsExporterType.OTLP_HTTP}:
            if not self.metrics_grpc_exporter_target:
                raise ConfigError(
                    f"metricsExporterType={exporter}: give the collector's address as metricsGrpcExporterTarget"
                )
            if self.metrics_in_delta:
                raise ConfigError(
                    "metricsInDelta=true: metrics are exported as cumulative values only; give false, a collector "
                    "can convert them"
                )


def pairs_of(key: str, text: str) -> tuple[tuple[str, str], ...]:
    """The pairs of a setting like ``name:value,name:value``. Raises ConfigError."""
    pairs = []
    for part in filter(None, map(str.strip, text.split(","))):
        name, colon, value = part.partition(":")
        if not colon or not name.strip():
            raise ConfigError(f"{key}={text!r}: give name:value, and several separated by commas")
        pairs.append((name.strip(), value.strip()))
    if len(pairs) > MAX_LABELS:
        raise ConfigError(f"{key} has {len(pairs)} pairs, at most {MAX_LABELS} are allowed")
    return tuple(pairs)
