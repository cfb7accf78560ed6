"""Shell completion of topics, groups, brokers and clusters: names from the cluster, within a second, or none."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from orbitmq.cli.admin.framework import contexts

if TYPE_CHECKING:
    from orbitmq.admin import AdminClient

SECONDS = 1.0
MAX_NAMES = 500

Names = Callable[["AdminClient"], Awaitable[list[str]]]


def _completer(names: Names) -> Callable[[Any, str], list[str]]:
    def complete(ctx: Any, incomplete: str) -> list[str]:
        try:
            found = asyncio.run(asyncio.wait_for(_fetch(names, ctx.params), SECONDS * 2))
        except Exception:
            return []
        return [name for name in found if name.startswith(incomplete)][:MAX_NAMES]

    return complete


async def _fetch(names: Names, options: dict[str, Any]) -> list[str]:
    from orbitmq.cli.admin.framework.operator import Common  # noqa: PLC0415 - operator imports this module's users

    common = Common(options.get("nameserver"), options.get("context"), options.get("cluster"), timeout=SECONDS)
    async with common.client() as admin:
        return await names(admin)


async def _topics(admin: "AdminClient") -> list[str]:
    return await admin.topics.names()


async def _groups(admin: "AdminClient") -> list[str]:
    return [one.name for one in await admin.groups.all()]


async def _brokers(admin: "AdminClient") -> list[str]:
    return sorted({one.broker_name for one in (await admin.brokers.topology()).brokers})


async def _clusters(admin: "AdminClient") -> list[str]:
    return sorted((await admin.brokers.topology()).clusters)


complete_topic = _completer(_topics)
complete_group = _completer(_groups)
complete_broker = _completer(_brokers)
complete_cluster = _completer(_clusters)


def complete_context(incomplete: str) -> list[str]:
    try:
        return [name for name in sorted(contexts.load().known) if name.startswith(incomplete)]
    except Exception:
        return []
