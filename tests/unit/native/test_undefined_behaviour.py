"""The compiled kernel, built to stop at undefined behaviour, with extreme numbers as in damaged files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.native.sanitized_build import build_checked_kernel, run_with

if TYPE_CHECKING:
    import pathlib

HEAD = """
UNIT = struct.Struct(">qiq")
def refused(call, *args):
    try:
        call(*args)
    except ValueError:
        return
    raise AssertionError("not refused")
"""


@pytest.fixture(scope="module")
def checked_kernel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    return build_checked_kernel(tmp_path_factory.mktemp("native"))


def run(kernel: pathlib.Path, code: str) -> None:
    run_with(kernel, HEAD + code)


def test_an_index_with_impossible_numbers_of_slots_and_entries_is_refused(checked_kernel: pathlib.Path) -> None:
    run(
        checked_kernel,
        """
file = bytearray(40 + 10 * 4 + 20 * 20)
for slots in (LEAST, -1, 0, 1 << 31, 1 << 61, MOST):
    for following in (LEAST, 0, 1, 1 << 31, MOST):
        refused(native.is_sound, file, slots, following, 0, 0, 0)
        refused(native.cut_entries, file, slots, following, 0, 0)
""",
    )


def test_an_index_that_counts_impossible_slots_and_offsets_is_not_sound(checked_kernel: pathlib.Path) -> None:
    run(
        checked_kernel,
        """
file = bytearray(40 + 10 * 4 + 20 * 20)
for number in range(1, 12):
    at = 40 + 10 * 4 + number * 20
    file[at : at + 20] = struct.pack(">iqii", number, [LEAST, MOST][number % 2], 0, 0)
for used in (LEAST, MOST, 11):
    for begin in (LEAST, MOST, 0):
        for end in (LEAST, MOST, 0):
            assert not native.is_sound(file, 10, 12, begin, end, used)
            native.cut_entries(bytearray(file), 10, 12, begin, end)
""",
    )


def test_units_that_lead_to_the_ends_of_the_number_range_are_not_gathered(checked_kernel: pathlib.Path) -> None:
    run(
        checked_kernel,
        """
log = bytearray(4096)
places = (LEAST, LEAST + 100, -100, 0, 100, MOST - 100, MOST)
for first in places:
    for last in places:
        for size in (1, 100, (1 << 31) - 2):
            units = UNIT.pack(first, 100, 0) + UNIT.pack(last, size, 0)
            for base in (LEAST, 0, 1 << 40, MOST):
                for end in (LEAST, 4096, MOST):
                    for most in (LEAST, 4096, MOST):
                        native.gather_records(units, log, base, end, most, 65536, 4096, 0, MOST)
""",
    )


def test_frames_of_strangers_are_not_verified(checked_kernel: pathlib.Path) -> None:
    run(
        checked_kernel,
        """
import random
draw = random.Random(22)
users, grants = {b"alice": native.signing_key(b"s" * 100, True)}, set()
fields = {"AccessKey": "alice", "Signature": "A" * 28, "b": "T", "i": "\\\\u0001x\\\\ud83d\\\\ude00", "topic": "T"}
text = ",".join('"%s":"%s"' % pair for pair in fields.items())
header = ('{"code":310,"extFields":{%s},"opaque":7}' % text).encode()
pairs = b"".join(
    struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(value)) + value.encode()
    for name, value in fields.items()
)
binary = struct.pack(">hbhiiiI", 310, 0, 400, 7, 0, 0, len(pairs)) + pairs
for kind, head in ((0, header), (1 << 24, binary)):
    frame = struct.pack(">iI", 4 + len(head) + 3, kind | len(head)) + head + b"abc"
    assert native.verify_requests(frame, b"", users, grants) == (0, None)
    special = (0, 34, 44, 92, 123, 125, 127, 255)
    for _ in range(20_000):
        damaged = bytearray(frame[: draw.randint(0, len(frame))] if draw.random() < 0.1 else frame)
        for _ in range(draw.randint(1, 4)):
            if damaged:
                damaged[draw.randrange(len(damaged))] = draw.choice((*special, draw.randrange(256)))
        assert native.verify_requests(bytes(damaged), b"", users, grants)[0] == 0
""",
    )
