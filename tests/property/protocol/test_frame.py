"""Frames under every chunking and every damage."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.protocol.command.frame import FrameError, FrameParser, encode_frame

frames = st.tuples(st.sampled_from([0, 1]), st.binary(max_size=60), st.binary(max_size=200))


def feed_in_pieces(data: bytes, cuts: list[int], max_frame: int) -> tuple[list[tuple[int, bytes, bytes]], str]:
    """Everything that comes out of a stream cut at these places: the frames, and the damage if there is any."""
    parser = FrameParser(max_frame)
    got: list[tuple[int, bytes, bytes]] = []
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in itertools.pairwise(edges):
        try:
            got += parser.feed(data[start:end])
        except FrameError as error:
            return got + error.frames, str(error)
    return got, ""


@given(st.lists(frames, max_size=12), st.lists(st.integers(min_value=0, max_value=5000), max_size=40))
def test_any_chunking_gives_the_same_frames(sent: list[tuple[int, bytes, bytes]], cuts: list[int]) -> None:
    stream = b"".join(encode_frame(*frame) for frame in sent)

    assert feed_in_pieces(stream, cuts, 1000) == (sent, "")


@given(st.lists(frames, max_size=4), st.binary(max_size=80), st.lists(st.integers(0, 2000), max_size=20))
def test_damage_in_a_stream_shows_after_the_same_frames_under_any_chunking(
    sent: list[tuple[int, bytes, bytes]], rest: bytes, cuts: list[int]
) -> None:
    stream = b"".join(encode_frame(*frame) for frame in sent) + rest

    assert feed_in_pieces(stream, cuts, 1000) == feed_in_pieces(stream, [], 1000)


@given(st.lists(st.binary(max_size=64), max_size=20), st.integers(min_value=8, max_value=2**24))
def test_arbitrary_bytes_raise_nothing_but_a_frame_error(pieces: list[bytes], max_frame: int) -> None:
    parser = FrameParser(max_frame)
    damaged = False
    for piece in pieces:
        try:
            got = parser.feed(piece)
        except FrameError:
            damaged = True
        else:
            assert not damaged, "a parser that met damage went on"
            assert all(len(encode_frame(*frame)) <= max_frame for frame in got)
