"""Names of the series of the history."""

from __future__ import annotations


def broker_series(cluster: str, address: str, figure: str) -> str:
    """``figure`` is one of ``put_tps``, ``get_tps``, ``disk``, ``dispatch_behind``, ``timed``."""
    return f"{cluster}/broker/{address}/{figure}"


def cluster_series(cluster: str, figure: str) -> str:
    """``figure`` is one of ``put_tps``, ``get_tps``, ``lag``."""
    return f"{cluster}/all/{figure}"


def group_series(cluster: str, group: str, figure: str) -> str:
    """``figure`` is one of ``lag``, ``consume_tps``, ``inflight``."""
    return f"{cluster}/group/{group}/{figure}"


def topic_series(cluster: str, topic: str, figure: str) -> str:
    """``figure`` is ``put_tps``, of topics that a group consumes."""
    return f"{cluster}/topic/{topic}/{figure}"


def queue_series(cluster: str, group: str, queue: tuple[str, str, int]) -> str:
    """The lag of a group in one queue: topic, broker name and queue id. Kept for groups that were looked at."""
    topic, broker_name, queue_id = queue
    return f"{cluster}/queue/{group}/{topic}/{broker_name}/{queue_id}"
