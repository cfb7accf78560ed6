"""The metrics page beside that of Apache's broker after the same traffic: names, labels and counts are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from conformance.servers.processes import serving
from peers.apache import available
from peers.ports import free_port
from support.metrics.endpoint_text import Series, fetch, label_names, series_of, values
from support.metrics.traffic import Traffic, settled_page

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = {
    "metricsExporterType": "PROM",
    "metricsPromExporterHost": "127.0.0.1",
    "messageDelayLevel": "1s 1s 1s 1s 1s",
    "mappedFileSizeCommitLog": str(64 << 20),
    "maxHashSlotNum": "10000",
    "maxIndexNum": "40000",
}

ONLY_APACHE = {
    # Check points are not buffered here.
    *(f"rocketmq_pop_buffer_scan_time_consume_milliseconds_{part}" for part in ("bucket", "count", "sum")),
}
"""The documented differences of docs/metrics.md."""

COUNTS = {
    "rocketmq_messages_in_total": ("topic", "message_type", "is_system"),
    "rocketmq_throughput_in_total": ("topic", "message_type", "is_system"),
    "rocketmq_messages_out_total": ("topic", "consumer_group", "is_system", "is_retry"),
    "rocketmq_throughput_out_total": ("topic", "consumer_group", "is_system", "is_retry"),
    "rocketmq_send_to_dlq_messages_total": ("topic", "consumer_group", "is_system"),
    "rocketmq_commit_messages_total": ("topic",),
    "rocketmq_rollback_messages_total": ("topic",),
    "rocketmq_timer_enqueue_total": ("topic",),
    "rocketmq_timer_dequeue_total": ("topic",),
    "rocketmq_pop_revive_in_message_total": ("topic", "consumer_group", "revive_message_type", "put_status"),
    "rocketmq_processor_watermark": ("processor",),
    "rocketmq_broker_permission": (),
}


def page_of(home: Path, *, apache: bool) -> Series:
    port = free_port()
    with serving(home, {**SETTINGS, "metricsPromExporterPort": str(port)}, apache=apache) as server:
        traffic = Traffic(server.nameserver)
        try:
            traffic.run()
            return settled_page(lambda: series_of(fetch(port)))
        finally:
            traffic.close()


def test_the_pages_agree(tmp_path: Path) -> None:
    if reason := available():
        pytest.skip(reason)
    apaches, ours = page_of(tmp_path / "apache", apache=True), page_of(tmp_path / "ours", apache=False)
    labels, apaches_labels = label_names(ours), label_names(apaches)
    assert apaches_labels.keys() - labels.keys() == ONLY_APACHE
    different = {name for name in apaches_labels.keys() & labels.keys() if labels[name] != apaches_labels[name]}
    assert different == set()
    for name, keys in COUNTS.items():
        assert values(ours, name, *keys) == values(apaches, name, *keys), name
