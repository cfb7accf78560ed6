"""Requests about configuration: the key-value configuration, and the settings of the name server."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from orbitmq.auth.runtime_settings.requests import SettingsRequests
from orbitmq.nameserver.config_file import check_start, store_config
from orbitmq.protocol.bodies import KVTable
from orbitmq.protocol.codes import RequestCode, ResponseCode
from orbitmq.protocol.command.fields import decode_fields
from orbitmq.protocol.command.request_fields import REQUEST_FIELDS
from orbitmq.protocol.names import ORDER_TOPIC_NAMESPACE
from orbitmq.remoting.processor import RequestRefusedError, handler_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from orbitmq.nameserver.config import NameServerConfig
    from orbitmq.nameserver.kv_config import KvConfig
    from orbitmq.platform.disk import Disk
    from orbitmq.platform.threads import RunBlocking
    from orbitmq.protocol.command.command import Command
    from orbitmq.remoting import Connection, Handler

log = logging.getLogger("orbitmq.nameserver")


class ConfigRequests:
    """Processors for configuration. ``on_change`` is called like that of the route table."""

    def __init__(
        self,
        kv_config: KvConfig,
        config: NameServerConfig,
        disk: Disk,
        on_change: Callable[[str | None], None],
        run_blocking: RunBlocking,
    ) -> None:
        self._kv_config = kv_config
        self._on_change = on_change
        self._settings = SettingsRequests(
            config,
            disk,
            run_blocking,
            check_start=check_start,
            store=store_config,
            log=log,
            on_change=lambda: on_change(None),
        )

    @property
    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.PUT_KV_CONFIG: handler_of(self.put),
            RequestCode.GET_KV_CONFIG: handler_of(self.get),
            RequestCode.DELETE_KV_CONFIG: handler_of(self.delete),
            RequestCode.GET_KVLIST_BY_NAMESPACE: handler_of(self.list),
            RequestCode.UPDATE_NAMESRV_CONFIG: handler_of(self._settings.update),
            RequestCode.GET_NAMESRV_CONFIG: handler_of(self._settings.show),
        }

    async def put(self, request: Command, _: Connection) -> Command:
        namespace, key, value = _texts(request, "namespace", "key", "value")
        await self._kv_config.put(namespace, key, value)
        self._changed(namespace, key)
        return request.response(ResponseCode.SUCCESS)

    async def delete(self, request: Command, _: Connection) -> Command:
        namespace, key = _texts(request, "namespace", "key")
        await self._kv_config.delete(namespace, key)
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

    def _changed(self, namespace: str, key: str) -> None:
        if namespace == ORDER_TOPIC_NAMESPACE:
            # The value may be part of the route of the topic.
            self._on_change(key)


def _texts(request: Command, *names: str) -> tuple[str, ...]:
    fields = decode_fields(request.ext_fields, REQUEST_FIELDS[request.code])
    return tuple(str(fields[name]) for name in names)
