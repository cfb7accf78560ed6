"""No bytes make a connection of HTTP/2 fail otherwise than by closing it, or leave something behind."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.proxy.http2.frames import PREFACE, frame
from orbitmq.proxy.http2.hpack import HeaderDecoder, HpackError, encode, huffman_decode
from support.http2_peer import CHAT, ECHO, MANY, Peer, data, request

_FRAMES = st.builds(
    frame,
    st.integers(0, 12),
    st.integers(0, 255),
    st.integers(0, 7),
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([encode(*request(path)) for path in (ECHO, MANY, CHAT, "/none")]),
        st.sampled_from([data(1, b"1 9")[9:], data(1, b"")[9:]]),
    ),
)
_TEXT = st.text(st.characters(max_codepoint=0xFF), max_size=200)


@settings(max_examples=150, deadline=None)
@given(st.lists(_FRAMES, max_size=12), st.binary(max_size=20), st.integers(1, 200))
def test_any_frames(sent: list[bytes], rest: bytes, step: int) -> None:
    async def run() -> None:
        peer = Peer()
        stream = PREFACE + b"".join(sent) + rest
        for start in range(0, len(stream), step):
            if peer.transport.closed:
                break
            await peer.feed(stream[start : start + step])
        peer.connection.connection_lost(None)
        await peer.answers()
        assert (peer.server.calls, peer.server.held, peer.connection.streams) == (0, 0, {})
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())


@given(st.binary(max_size=100))
def test_any_header_block(block: bytes) -> None:
    try:
        HeaderDecoder().decode(block, 1000)
        huffman_decode(block)
    except HpackError:
        return


@given(st.lists(st.tuples(_TEXT, _TEXT), max_size=5))
def test_encoded_fields_are_decoded(fields: list[tuple[str, str]]) -> None:
    assert HeaderDecoder().decode(encode(*fields), 1 << 16) == (fields, True)
