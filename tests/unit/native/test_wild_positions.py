"""Timer logs and records with numbers that no broker wrote: the compiled kernel neither crashes nor delivers."""

from __future__ import annotations

import pathlib

import pytest

import orbitmq.native
from support.native.marks import needs_native
from support.native.sanitized_build import build_checked_kernel, run_with

pytestmark = needs_native

CHAIN = """
UNIT = struct.Struct(">iqiqiqiiq")
PLACES = (LEAST, LEAST + 1, LEAST + 51, LEAST + 52, LEAST + 4096, -(1 << 62), -53, -52, -1, 0, 1, 51, 52, 4043,
          4044, 4096, 1 << 62, MOST - 52, MOST - 51, MOST)
for base in (0, 4096, 1 << 40):
    for previous in PLACES:
        log = bytearray(4096)
        UNIT.pack_into(log, 104, 52, previous, 1, 0, 0, 0, 100, 0, 0)
        found, position, passed = native.follow_timer_chain(log, base, base + 104, -1, 10)
        if previous < base + 104:
            assert (position, passed) == (previous, 1), (base, previous, position, passed)
        for position in PLACES:
            native.follow_timer_chain(log, base, position, -1, 10)
"""


@pytest.fixture(scope="module")
def checked_kernel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build_checked_kernel(tmp_path_factory.mktemp("kernel"))


def test_a_chain_of_the_timer_log_that_leads_anywhere_ends_there(checked_kernel: pathlib.Path) -> None:
    run_with(checked_kernel, CHAIN)


def test_the_kernel_as_it_is_used_ends_there_too() -> None:
    native = pathlib.Path(orbitmq.native.__file__).parent
    (built,) = native.glob("_native.*.so")
    run_with(built, CHAIN)


def test_units_of_the_timer_log_with_any_numbers_deliver_nothing(checked_kernel: pathlib.Path) -> None:
    run_with(
        checked_kernel,
        """
UNIT = struct.Struct(">iqiqiqiiq")
NUMBERS = (LEAST, LEAST + 100, -1, 0, 1, 100, MOST - 100, MOST)
kernel = native.DeferredDelivery(
    store_host=bytes(8), max_body=1 << 20, max_properties=32767, is_indexing=True, crc32=lambda data: 0
)
source, log = bytes(4096), bytearray(4096)
for written in NUMBERS:
    for offset in NUMBERS:
        for size in (-(1 << 31), -1, 0, 1, 91, 4096, (1 << 31) - 1):
            timer_log = bytearray(4096)
            UNIT.pack_into(timer_log, 52, 52, -1, 1, written, 0, offset, size, 0, 0)
            for position in (52, *NUMBERS):
                positions = struct.pack("=q", position)
                place = log, 0, 4096, 0, 1000, False
                done = kernel.deliver(positions, timer_log, 0, source, 0, 0, 4096, 1 << 20, *place)
                assert done[:2] == (0, 0)
            units = struct.pack(">qiq", offset, size, 0)
            assert kernel.deliver_units(units, source, 0, 0, 4096, log, 0, 4096, 0, 1000, False)[:2] == (0, 0)
""",
    )


def test_a_delayed_record_that_was_stored_at_any_time_is_walked_over(checked_kernel: pathlib.Path) -> None:
    run_with(
        checked_kernel,
        """
class End: pass
topic, properties = b"SCHEDULE_TOPIC_XXXX", b"UNIQ_KEY\\x01K\\x02DELAY\\x013\\x02"
for stored in (LEAST, -1, 0, 1, MOST - 1, MOST):
    size = 88 + 1 + 1 + len(topic) + 2 + len(properties)
    host = bytes(8)
    head = struct.pack(">iIIiiqqiq8sq8siqi", size, 0xDAA320A7, 0, 2, 0, 0, 0, 0, 0, host, stored, host, 0, 0, 1)
    record = head + b"b" + bytes([len(topic)]) + topic + struct.pack(">H", len(properties)) + properties
    walks = native.LogReplayer(is_indexing=True, delays=(1000, 5000, 10000), avoided=None)
    queue = native.QueueState()
    walks.add_route(topic.decode(), bytes([len(topic)]) + topic, 2, 0xDAA320A7, queue, False, None)
    walks.replay(bytearray(record), 0, size, 0, 0, 0, False, False)
""",
    )
