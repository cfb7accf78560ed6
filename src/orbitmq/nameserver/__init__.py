"""The name server: registry of brokers, and the routes of their topics.

This package is the route table and its requests. Brokers register, clients query routes, and name servers do not
communicate with each other. Not here: messages, and the election of masters, which a controller in the same process
may do.
"""

from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.config_file import load_config
from orbitmq.nameserver.limits import NameServerLimits
from orbitmq.nameserver.route_table import RouteTable
from orbitmq.nameserver.server import NameServer

__all__ = ["NameServer", "NameServerConfig", "NameServerLimits", "RouteTable", "load_config"]
