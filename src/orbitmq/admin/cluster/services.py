"""Services inside brokers: cold-data flow control, read-ahead, timer engine, RocksDB exports, containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orbitmq.admin.cluster.brokers import settings_text
from orbitmq.admin.cluster.topology import addresses
from orbitmq.admin.errors import InvalidRequestError
from orbitmq.admin.session import LONG
from orbitmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orbitmq.admin.cluster.brokers import Brokers
    from orbitmq.admin.session import AdminSession
    from orbitmq.protocol.command.command import Command

TIMER_ENGINES = {"R": "ROCKSDB_TIMELINE", "F": "FILE_TIME_WHEEL"}
"""The engines of 5.5 by the letter that the tools take."""


class Services:
    """Requests for services that a broker may not have: then it answers UnsupportedError, or with its reason."""

    def __init__(self, session: AdminSession, brokers: Brokers) -> None:
        self._session = session
        self._brokers = brokers

    async def cold_data_info(self, *, cluster: str = "", broker: str = "") -> dict[str, str]:
        """The state of cold-data flow control, as JSON text by address."""
        answers = await self._at(cluster, broker, RequestCode.GET_COLD_DATA_FLOW_CTR_INFO)
        return {address: (answer.body or b"").decode("utf-8", "replace") for address, answer in answers.items()}

    async def set_cold_data_threshold(
        self, group: str, threshold: int, *, cluster: str = "", broker: str = ""
    ) -> list[str]:
        """Limit the cold reads of a group, in bytes per second."""
        body = settings_text({group: str(threshold)})
        return list(await self._at(cluster, broker, RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG, body=body))

    async def remove_cold_data_threshold(self, group: str, *, cluster: str = "", broker: str = "") -> list[str]:
        code = RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG
        return list(await self._at(cluster, broker, code, body=group.encode()))

    async def set_read_ahead(self, mode: int, *, cluster: str = "", broker: str = "") -> dict[str, str]:
        """Set how the commit log is read ahead: 0 normal, 1 random. Returns each broker's remark."""
        if mode not in {0, 1}:
            raise InvalidRequestError(f"the read-ahead mode is 0 (normal) or 1 (random), not {mode}")
        fields = {"READ_AHEAD_MODE": mode}
        answers = await self._at(cluster, broker, RequestCode.SET_COMMITLOG_READ_MODE, fields)
        return {address: answer.remark or "" for address, answer in answers.items()}

    async def switch_timer_engine(self, engine: str, *, cluster: str = "", broker: str = "") -> list[str]:
        """Switch the engine of timed messages: ``R`` for RocksDB, ``F`` for the file time wheel."""
        if engine not in TIMER_ENGINES:
            raise InvalidRequestError(f"the timer engine is R (RocksDB) or F (file time wheel), not {engine!r}")
        return list(await self._at(cluster, broker, RequestCode.SWITCH_TIMER_ENGINE, {"E_T": engine}))

    async def check_rocksdb_queues(self, topic: str, since_ms: int, *, cluster: str = "") -> dict[str, str]:
        """Compare RocksDB consume queues with the file ones; the result by address."""
        fields = {"topic": topic or None, "checkStoreTime": since_ms}
        answers = await self._at(cluster, "", RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS, fields)
        return {
            address: (answer.body or b"").decode("utf-8", "replace") or answer.remark or ""
            for address, answer in answers.items()
        }

    async def export_rocksdb_settings(
        self, kinds: Iterable[str], *, cluster: str = "", broker: str = ""
    ) -> list[str]:
        """Make brokers write topics, groups or offsets that RocksDB holds into their JSON files."""
        fields = {"configType": ";".join(kinds)}
        return list(await self._at(cluster, broker, RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, fields))

    async def roll_back_pop_records(self, *, cluster: str = "", broker: str = "") -> list[str]:
        """Write POP records that RocksDB holds back into the revive topics."""
        return list(await self._at(cluster, broker, RequestCode.POP_ROLLBACK))

    async def add_broker(self, container: str, configuration_path: str) -> None:
        """Start a broker in a container from a file on its machine."""
        await self._session.call(container, RequestCode.ADD_BROKER, {"configPath": configuration_path})

    async def remove_broker(self, container: str, cluster: str, broker_name: str, broker_id: int) -> None:
        """Stop a broker of a container."""
        fields = {"brokerName": broker_name, "brokerClusterName": cluster, "brokerId": broker_id}
        await self._session.call(container, RequestCode.REMOVE_BROKER, fields)

    async def _at(
        self,
        cluster: str,
        broker: str,
        code: int,
        fields: Mapping[str, object] | None = None,
        *,
        body: bytes | None = None,
    ) -> dict[str, Command]:
        chosen = addresses(await self._brokers.targets(cluster, broker))
        seconds = self._session.config.timeout * LONG
        return await self._session.at_all(
            "the request",
            chosen,
            lambda address: self._session.call(address, code, fields, body, seconds=seconds),
        )
