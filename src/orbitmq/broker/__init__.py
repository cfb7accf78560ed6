"""The broker: RocketMQ's server of messages, on one event loop.

One module per capability, each with a processor that is registered for its request codes; ``server`` puts them
together. Files belong to ``store``, sockets to ``remoting``, bytes to ``protocol``: here they meet. What a tool
shows of a broker, and what a client does with its answers, does not belong here.
"""

from orbitmq.broker.config import BrokerConfig
from orbitmq.broker.server import Broker
from orbitmq.broker.settings import BrokerSettings, load_settings

__all__ = ["Broker", "BrokerConfig", "BrokerSettings", "load_settings"]
