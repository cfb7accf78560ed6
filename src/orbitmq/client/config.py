"""Options shared by all clients: RocketMQ's ``ClientConfig``, with times in seconds."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypedDict

from orbitmq.client.credentials import Credentials, CredentialsError, load_credentials
from orbitmq.client.errors import InvalidOptionError
from orbitmq.client.serialization.serializer import AUTO
from orbitmq.client.tls_environment import tls_of_environment
from orbitmq.platform.clock import SYSTEM_CLOCK, SYSTEM_RANDOM, Clock
from orbitmq.protocol.message.message_id import UniqueIdFactory

if TYPE_CHECKING:
    from random import Random

    from orbitmq.client.serialization.serializer import Serializer
    from orbitmq.remoting import ClientTls

DEFAULT_INSTANCE = "DEFAULT"
DEFAULT_ADDRESS = "127.0.0.1:9876"

_INSTANCE_ADDRESS = re.compile(r"MQ_INST_\w+_\w+\.")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Options of producers and consumers alike. Times are seconds."""

    name_servers: tuple[str, ...]
    """``host:port`` of each. All hold the same routes; the client uses the first that responds."""
    client_ip: str = ""
    instance_name: str = DEFAULT_INSTANCE
    """Clients with one instance name share connections. ``DEFAULT`` is made unique, except when broadcasting."""
    unit_name: str = ""
    namespace: str = ""
    poll_name_server_interval: float = 30.0
    heartbeat_broker_interval: float = 30.0
    persist_consumer_offset_interval: float = 5.0
    api_timeout: float = 3.0
    vip_channel_enabled: bool = False
    """Send to the port two below the brokers' main one."""
    use_heartbeat_v2: bool = False
    enable_trace: bool = False
    """Record traces of sends and consumption, for `orbitmq trace` and RocketMQ's tools."""
    trace_topic: str = ""
    """Topic of the traces. Empty: ``RMQ_SYS_TRACE_TOPIC``, which brokers create with ``traceTopicEnable``."""
    trace_msg_batch_num: int = 10
    """Number of sends or handler calls in one trace message, up to 20."""
    tls: ClientTls | None = None
    access_key: str = ""
    """User who signs the requests. Without one the credentials of ``credentials_file`` or of the environment are
    used: ``ORBITMQ_ACCESS_KEY`` and ``ORBITMQ_SECRET_KEY``, or ``ORBITMQ_CREDENTIALS_FILE``."""
    secret_key: str = dataclasses.field(default="", repr=False)
    security_token: str = dataclasses.field(default="", repr=False)
    credentials_file: str = ""
    """File with ``accessKey`` and ``secretKey``, which only its owner may read."""
    credentials: Credentials | None = dataclasses.field(init=False)
    """What the options above and the environment give."""
    middleware: Iterable[Any] = dataclasses.field(default=(), compare=False, repr=False)
    """Code around every send and every handler call, the first one outermost: see ``orbitmq.Middleware``."""
    serializer: Serializer = dataclasses.field(default=AUTO, compare=False, repr=False)
    """Encodes the ``value`` of messages and decodes bodies for typed handlers. Default: by their type."""
    clock: Clock = dataclasses.field(default=SYSTEM_CLOCK, compare=False, repr=False)
    """Source of time, for tests and simulations. Timeouts follow the event loop's own time."""
    random: Random = dataclasses.field(default=SYSTEM_RANDOM, compare=False, repr=False)
    """Source of randomness: message ids, the first queue of a producer, the choice among brokers."""

    def __post_init__(self) -> None:
        for name in (
            "poll_name_server_interval",
            "heartbeat_broker_interval",
            "persist_consumer_offset_interval",
            "api_timeout",
        ):
            if not getattr(self, name) > 0:
                raise InvalidOptionError(f"{name} must be more than 0, not {getattr(self, name)}")
        if self.trace_msg_batch_num < 1:
            raise InvalidOptionError(f"trace_msg_batch_num must be 1 or more, not {self.trace_msg_batch_num}")
        if not self.namespace:
            object.__setattr__(self, "namespace", _namespace_in(self.name_servers))
        try:
            credentials = load_credentials(
                self.access_key, self.secret_key, self.security_token, path=self.credentials_file
            )
        except CredentialsError as error:
            raise InvalidOptionError(str(error)) from None
        object.__setattr__(self, "credentials", credentials)
        if self.tls is None:
            object.__setattr__(self, "tls", tls_of_environment())

    @property
    def own_instance_name(self) -> str:
        """``instance_name``; for ``DEFAULT``, one that no other client has."""
        return unique_instance_name(self.random) if self.instance_name == DEFAULT_INSTANCE else self.instance_name

    def client_id(self, instance_name: str) -> str:
        """``ip@instance``, followed by ``@unit`` if there is one."""
        unit = f"@{self.unit_name}" if self.unit_name else ""
        return f"{self.client_ip or local_address()}@{instance_name}{unit}"


def name_server_list(given: str | Iterable[str] | None) -> tuple[str, ...]:
    """Name servers from ``host:port;host:port``, a list of them, or the environment variable NAMESRV_ADDR."""
    if given is None:
        given = os.environ.get("NAMESRV_ADDR", "")
    if not isinstance(given, Iterable):
        raise InvalidOptionError(
            f'name servers are "host:port", several separated by ";", or a list, not {given!r}'
        )
    parts = given.split(";") if isinstance(given, str) else list(given)
    found = tuple(part.strip().removeprefix("http://").rpartition("/")[2] for part in parts if part.strip())
    if not found:
        raise InvalidOptionError(
            'no name server is given: pass "host:port", several separated by ";", or set NAMESRV_ADDR'
        )
    for address in found:
        port = address.rpartition(":")[2]
        if ":" not in address or not port.isdecimal() or not 0 < int(port) < 65536:
            raise InvalidOptionError(f"the name server {address!r} is not host:port, such as {DEFAULT_ADDRESS}")
    return found


def _namespace_in(name_servers: tuple[str, ...]) -> str:
    """The namespace in the address of a cloud instance: ``MQ_INST_1_x`` of ``MQ_INST_1_x.region.example:80``."""
    for address in name_servers:
        if _INSTANCE_ADDRESS.match(address):
            return address.partition(".")[0]
    return ""


def unique_instance_name(random: Random = SYSTEM_RANDOM) -> str:
    """Instance name for ``DEFAULT``, in the form of the Java client: unique on this machine."""
    return f"{os.getpid()}#{random.getrandbits(62)}"


def local_address() -> str:
    """IP address of this machine: not loopback, if it has another one."""
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        # Connecting a datagram socket sends nothing; it only chooses the interface.
        probe.connect(("192.0.2.1", 9))
        return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
    finally:
        probe.close()


def unique_ids_for(config: ClientConfig) -> UniqueIdFactory:
    """Factory of message ids that no other client generates."""
    address = config.client_ip or local_address()
    try:
        packed = ipaddress.ip_address(address).packed
    except ValueError:
        # ``client_ip`` may be a name, but an id has room for an address only.
        packed = ipaddress.ip_address(local_address()).packed
    return UniqueIdFactory(packed, os.getpid(), config.random.getrandbits(32), config.clock.now_ms)


class ClientOptions(TypedDict, total=False):
    """Keywords of producers and consumers: the fields of ``ClientConfig``."""

    client_ip: str
    instance_name: str
    unit_name: str
    namespace: str
    poll_name_server_interval: float
    heartbeat_broker_interval: float
    persist_consumer_offset_interval: float
    api_timeout: float
    vip_channel_enabled: bool
    use_heartbeat_v2: bool
    enable_trace: bool
    trace_topic: str
    trace_msg_batch_num: int
    tls: ClientTls | None
    access_key: str
    secret_key: str
    security_token: str
    credentials_file: str
    middleware: Iterable[Any]
    serializer: Serializer
    clock: Clock
    random: Random
