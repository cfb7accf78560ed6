"""Name servers: their settings, and the key-value tables that brokers and clients read."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from orbitmq.admin.changes import Change, differences
from orbitmq.admin.cluster.brokers import parse_settings, settings_text
from orbitmq.admin.errors import AdminError, RefusedError
from orbitmq.admin.session import decode
from orbitmq.protocol.bodies import KVTable
from orbitmq.protocol.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orbitmq.admin.session import AdminSession


@dataclasses.dataclass(frozen=True, slots=True)
class NameServerStatus:
    """A name server in a list: reachable, or the ``reason`` why not."""

    address: str
    is_reachable: bool
    reason: str


class NameServers:
    """The name servers of this client. Reads come from the first that responds, changes go to all."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def all(self) -> list[NameServerStatus]:
        """All name servers of this client, with whether they respond."""
        done, failed = await self._session.gather(self._session.config.name_servers, self.settings)
        return [
            NameServerStatus(address, address in done, str(failed.get(address, "")))
            for address in self._session.config.name_servers
        ]

    # Settings

    async def settings(self, address: str = "") -> dict[str, str]:
        """The settings of one name server, by default of the first."""
        address = address or self._session.config.name_servers[0]
        answer = await self._session.call(address, RequestCode.GET_NAMESRV_CONFIG)
        return parse_settings(answer.body, address)

    async def alter_settings(self, values: Mapping[str, str], *, dry_run: bool = False) -> list[Change]:
        """Change settings of all name servers while they run. Raises PartialFailureError."""
        body = settings_text(values)
        before = await self._session.from_all(self._session.config.name_servers, self.settings)
        changes = [
            change
            for address, old in before.items()
            for change in differences(f"name server {address}", old, values, only=sorted(values))
        ]
        if not dry_run:
            code = RequestCode.UPDATE_NAMESRV_CONFIG
            await self._session.call_name_servers("the change of settings", code, body=body)
        return changes

    # Key-value tables

    async def get(self, namespace: str, key: str) -> str | None:
        """A value, or None."""
        fields = {"namespace": namespace, "key": key}
        try:
            answer = await self._session.call_name_server(RequestCode.GET_KV_CONFIG, fields)
        except RefusedError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise
        return answer.ext_fields.get("value")

    async def table(self, namespace: str) -> dict[str, str]:
        """All keys and values of a namespace."""
        try:
            answer = await self._session.call_name_server(
                RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace}
            )
        except RefusedError as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return {}
            raise
        return dict(sorted(decode(KVTable, answer, "the name server").table.items()))

    async def put(self, namespace: str, key: str, value: str, *, dry_run: bool = False) -> list[Change]:
        """Set a value at all name servers. Raises PartialFailureError."""
        changes = await self._change_of(namespace, key, value)
        if not dry_run:
            fields = {"namespace": namespace, "key": key, "value": value}
            await self._session.call_name_servers("the change", RequestCode.PUT_KV_CONFIG, fields)
        return changes

    async def delete(self, namespace: str, key: str, *, dry_run: bool = False) -> list[Change]:
        """Remove a value at all name servers. Raises PartialFailureError."""
        changes = await self._change_of(namespace, key, None)
        if not dry_run:
            fields = {"namespace": namespace, "key": key}
            await self._session.call_name_servers("the removal", RequestCode.DELETE_KV_CONFIG, fields)
        return changes

    async def _change_of(self, namespace: str, key: str, after: str | None) -> list[Change]:
        try:
            before = await self.get(namespace, key)
        except AdminError:
            # A name server without the key may refuse the read in its own way; the change itself decides.
            before = None
        return [] if before == after else [Change(f"name server table {namespace}", key, before, after)]
