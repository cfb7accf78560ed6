"""The name server: which brokers there are and which topics they serve.

Here belong the routing tables and the requests about them. Brokers register themselves, clients look for routes,
and name servers know nothing of each other. What a message is does not belong here, nor the election of masters.
"""

from orbitmq.nameserver.config import NameServerConfig
from orbitmq.nameserver.config_file import load_config
from orbitmq.nameserver.limits import NameServerLimits
from orbitmq.nameserver.route_table import RouteTable
from orbitmq.nameserver.server import NameServer

__all__ = ["NameServer", "NameServerConfig", "NameServerLimits", "RouteTable", "load_config"]
