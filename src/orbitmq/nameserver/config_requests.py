"""What operators ask about configuration: values by namespace and key, and the name server's own settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.nameserver.config_file import store_config
from orbitmq.protocol.bodies import KVTable
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.fields import decode_fields
from orbitmq.protocol.names import ORDER_TOPIC_NAMESPACE
from orbitmq.protocol.request_fields import REQUEST_FIELDS
from orbitmq.remoting.processing import RequestRefusedError, handler_of
from orbitmq.settings import ConfigError, become, changed, parse_conf
from orbitmq.store.errors import DiskFaultError

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.nameserver.kv_config import KvConfig
    from orbitmq.protocol.command import Command
    from orbitmq.remoting import Connection, Handler
    from orbitmq.store.disk import Disk


class ConfigRequests:
    """Processors for configuration. ``on_change`` is called as that of the routing tables is."""

    def __init__(
        self,
        kv_config: KvConfig,
        config: NameServerConfig,
        disk: Disk,
        on_change: Callable[[str | None], None],
    ) -> None:
        self._kv_config = kv_config
        self._config = config
        self._disk = disk
        self._on_change = on_change

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: handler_of(self.put),
            RequestCode.GET_KV_CONFIG: handler_of(self.get),
            RequestCode.DELETE_KV_CONFIG: handler_of(self.delete),
            RequestCode.GET_KVLIST_BY_NAMESPACE: handler_of(self.list),
            RequestCode.UPDATE_NAMESRV_CONFIG: handler_of(self.update_settings),
            RequestCode.GET_NAMESRV_CONFIG: handler_of(self.settings),
        }

    def put(self, request: Command, _: Connection) -> Command:
        namespace, key, value = _texts(request, "namespace", "key", "value")
        self._kv_config.put(namespace, key, value)
        self._changed(namespace, key)
        return request.response(ResponseCode.SUCCESS)

    def delete(self, request: Command, _: Connection) -> Command:
        namespace, key = _texts(request, "namespace", "key")
        self._kv_config.delete(namespace, key)
        self._changed(namespace, key)
        return request.response(ResponseCode.SUCCESS)

    def get(self, request: Command, _: Connection) -> Command:
        namespace, key = _texts(request, "namespace", "key")
        value = self._kv_config.get(namespace, key)
        if value is None:
            raise RequestRefusedError(
                f"No config item, Namespace: {namespace} Key: {key}", ResponseCode.QUERY_NOT_FOUND
            )
        return request.response(ResponseCode.SUCCESS, ext_fields={"value": value})

    def list(self, request: Command, _: Connection) -> Command:
        (namespace,) = _texts(request, "namespace")
        values = self._kv_config.namespace(namespace)
        if values is None:
            raise RequestRefusedError(f"No config item, Namespace: {namespace}", ResponseCode.QUERY_NOT_FOUND)
        return request.response(ResponseCode.SUCCESS, body=KVTable(dict(values)).encode())

    def update_settings(self, request: Command, _: Connection) -> Command:
        """Change settings and write all of them to their file. One bad value refuses the whole request."""
        if request.body is None:
            return request.response(ResponseCode.SUCCESS)
        try:
            asked = parse_conf(request.body.decode("utf-8", "replace"))
            if not self._config.black_list.isdisjoint(asked):
                raise RequestRefusedError("Can not update config in black list.", ResponseCode.NO_PERMISSION)
            wanted = changed(self._config, asked)
            store_config(self._disk, wanted)
        except (ConfigError, DiskFaultError) as error:
            raise RequestRefusedError(str(error)) from error
        become(self._config, wanted)
        self._on_change(None)
        return request.response(ResponseCode.SUCCESS)

    def settings(self, request: Command, _: Connection) -> Command:
        return request.response(ResponseCode.SUCCESS, body=self._config.as_properties().encode())

    def _changed(self, namespace: str, key: str) -> None:
        if namespace == ORDER_TOPIC_NAMESPACE:
            # It may be part of the topic's route.
            self._on_change(key)


def _texts(request: Command, *names: str) -> tuple[str, ...]:
    fields = decode_fields(request.ext_fields, REQUEST_FIELDS[request.code])
    return tuple(str(fields[name]) for name in names)
