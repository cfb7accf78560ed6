"""The broker: a RocketMQ message broker on one event loop.

One package per capability, each with the processors of its request codes; ``broker.py`` composes them. Files belong
to ``store``, sockets to ``remoting``, encodings to ``protocol``. What tools display and how clients react is not
part of this package.
"""

from orbitmq.broker.broker import Broker
from orbitmq.broker.config.broker_config import BrokerConfig
from orbitmq.broker.config.loader import BrokerSettings, load_settings

__all__ = ["Broker", "BrokerConfig", "BrokerSettings", "load_settings"]
