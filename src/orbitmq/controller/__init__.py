"""The controller: elects the masters of broker groups (automatic failover).

This package is a pure state machine (``machine``), the storage of its state (``storage``: a local file, or etcd),
the liveness of brokers, and the requests. Brokers register, send heartbeats and report their in-sync sets; the
controller elects a master from the set when the old one is gone. Not here: replication, and routes.
"""

from orbitmq.controller.config import ControllerConfig
from orbitmq.controller.config_file import load_config
from orbitmq.controller.server import Controller

__all__ = ["Controller", "ControllerConfig", "load_config"]
