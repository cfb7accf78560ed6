"""Remoting settings, shared by brokers and name servers. RocketMQ does not have them."""

from __future__ import annotations

import dataclasses

from orbitmq.platform.memory_budget import MIN_BUDGET
from orbitmq.platform.settings import INT32_MAX, INT64_MAX, ConfigError, Int64, Range, setting
from orbitmq.protocol.command.frame import MAX_FRAME
from orbitmq.remoting.connect.trusted_proxies import read_networks
from orbitmq.remoting.limits.connection_limits import MAX_REQUEST_HEADER_BYTES, Limits
from orbitmq.remoting.tls.settings import TlsSettings

REMOTING_RANGES: dict[str, Range] = {
    # ``check_remoting`` has a lower bound above 0.
    "remoting_memory_budget": Range(0, INT64_MAX),
    # A send with full properties needs the lower bound.
    "remoting_max_header_bytes": Range(MAX_REQUEST_HEADER_BYTES, MAX_FRAME),
    "remoting_frame_timeout_seconds": Range(1, INT32_MAX),
    "remoting_min_bytes_per_second": Range(1, INT32_MAX),
    "remoting_max_connections": Range(1, INT32_MAX),
    "remoting_max_connections_per_address": Range(0, INT32_MAX),
    "reserved_file_descriptors": Range(0, INT32_MAX),
}
"""The ranges of the numbers below; a server checks them with those of its own settings."""


@dataclasses.dataclass(slots=True, kw_only=True, init=False, repr=False, eq=False)
class RemotingSettings(TlsSettings):
    """Limits of the resources that peers may use. Values are read when the server starts."""

    remoting_memory_budget: Int64 = setting(0, optional=True)
    """Bytes that the process may hold for its peers: received and not processed, responses not read, caches.
    0 is 1 GiB, or a quarter of the memory if that is less."""
    remoting_max_header_bytes: int = setting(MAX_REQUEST_HEADER_BYTES, optional=True)
    remoting_frame_timeout_seconds: int = setting(30, optional=True)
    """Time for a frame from first to last byte, plus its size divided by ``remotingMinBytesPerSecond``."""
    remoting_min_bytes_per_second: int = setting(65_536, optional=True)
    remoting_max_connections: int = setting(65_536, optional=True)
    """Lower if RLIMIT_NOFILE minus ``reservedFileDescriptors`` is lower."""
    remoting_max_connections_per_address: int = setting(0, optional=True)
    """0 is half of the connections of the process. Addresses of this machine have no limit."""
    reserved_file_descriptors: int = setting(0, optional=True)
    """Descriptors that connections leave to files; 0 is half of RLIMIT_NOFILE, at most 8,192."""
    trusted_proxies: str = setting("", optional=True)
    """Addresses or CIDR blocks, separated by commas, whose PROXY headers are trusted."""

    def check_remoting(self) -> None:
        """Check what ranges cannot express. Raises ConfigError."""
        self.check_tls()
        if self.remoting_memory_budget and self.remoting_memory_budget < MIN_BUDGET:
            raise ConfigError(
                f"remotingMemoryBudget={self.remoting_memory_budget}: give 0 or at least {MIN_BUDGET} bytes"
            )
        try:
            read_networks(self.trusted_proxies)
        except ValueError as error:
            raise ConfigError(f"trustedProxies: {error}; give addresses or CIDR blocks, separated by ','") from None

    def remoting_limits(self, idle_seconds: float) -> Limits:
        return Limits(
            connections=self.remoting_max_connections,
            connections_per_address=self.remoting_max_connections_per_address,
            reserved_descriptors=self.reserved_file_descriptors,
            header_bytes=self.remoting_max_header_bytes,
            frame_seconds=self.remoting_frame_timeout_seconds,
            frame_bytes_per_second=self.remoting_min_bytes_per_second,
            idle_seconds=idle_seconds,
        )
