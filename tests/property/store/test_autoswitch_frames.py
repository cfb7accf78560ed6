"""Frames of the HA connection in controller mode: read the same however they are cut, and garbage is refused."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.store.replication.autoswitch_frames import (
    Ack,
    MasterHandshake,
    MasterStream,
    SlaveHandshake,
    SlaveStream,
    Transfer,
    transfer_head,
)
from orbitmq.store.replication.epochs import Epoch, Epochs
from orbitmq.store.replication.frames import FrameError

OFFSETS = st.integers(0, 1 << 50)
CUTS = st.lists(st.integers(0, 400), max_size=12)
BOOLS = st.booleans()


@st.composite
def epoch_lists(draw: st.DrawFn) -> Epochs:
    numbers = sorted(draw(st.sets(st.integers(1, 99), max_size=5)))
    starts = sorted(draw(st.sets(OFFSETS, min_size=len(numbers), max_size=len(numbers))))
    return Epochs(Epoch(*pair) for pair in zip(numbers, starts, strict=True))


SLAVE_FRAMES = st.one_of(st.builds(SlaveHandshake, BOOLS, BOOLS, OFFSETS), st.builds(Ack, OFFSETS))
TRANSFERS = st.tuples(OFFSETS, st.binary(max_size=200), OFFSETS)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(bounds)]


@given(st.lists(SLAVE_FRAMES, max_size=6), CUTS)
def test_frames_of_a_slave_are_read_however_they_are_cut(
    frames: list[SlaveHandshake | Ack], cuts: list[int]
) -> None:
    stream = SlaveStream()
    data = b"".join(frame.encode() for frame in frames)

    found = [frame for chunk in chunks(data, cuts) for frame in stream.feed(chunk)]

    assert found == frames


@given(epoch_lists(), OFFSETS, st.lists(TRANSFERS, max_size=4), CUTS)
def test_frames_of_a_master_are_read_however_they_are_cut(
    epochs: Epochs, end: int, transfers: list[tuple[int, bytes, int]], cuts: list[int]
) -> None:
    stream = MasterStream()
    data = MasterHandshake(end, epochs).encode()
    for offset, body, confirmed in transfers:
        data += transfer_head(len(body), offset, Epoch(7, offset // 2), confirmed) + body

    found = [frame for chunk in chunks(data, cuts) for frame in stream.feed(chunk)]

    handshake, *parts = found
    assert isinstance(handshake, MasterHandshake)
    assert (handshake.end, list(handshake.epochs)) == (end, list(epochs))
    position = {}
    for part in parts:
        assert isinstance(part, Transfer)
        assert part.epoch.epoch == 7
        position[part.offset] = bytes(part.data)
    joined = b"".join(bytes(part.data) for part in parts if isinstance(part, Transfer))
    assert joined == b"".join(body for _, body, _ in transfers)


@given(st.binary(max_size=300), CUTS)
def test_garbage_is_refused_or_waits_for_more(data: bytes, cuts: list[int]) -> None:
    for stream in (SlaveStream(), MasterStream()):
        try:
            for chunk in chunks(data, cuts):
                for _ in stream.feed(chunk):
                    pass
        except FrameError:
            continue
