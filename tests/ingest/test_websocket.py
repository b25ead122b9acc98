"""Frames of WebSocket clients, cut anywhere; RFC 6455 has the examples."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.ingest.websocket import (
    CloseCode,
    Message,
    MessageReader,
    Opcode,
    WebSocketError,
    accept_value,
    close_frame,
    frame,
)
from tests.lane_client import MASK, client_frame

MOST = 70_000


def test_the_examples_of_the_standard() -> None:
    reader = MessageReader(MOST)
    hello = bytes.fromhex("818537fa213d7f9f4d5158")
    assert reader.feed(hello) == [Message(Opcode.TEXT, b"Hello")]
    assert frame(Opcode.TEXT, b"Hello") == bytes.fromhex("810548656c6c6f")
    assert accept_value("dGhlIHNhbXBsZSBub25jZQ==") == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 9]), st.binary(max_size=125)), max_size=5),
    st.binary(min_size=4, max_size=4),
    st.data(),
)
def test_messages_survive_any_cut(
    messages: list[tuple[int, bytes]], mask: bytes, data: st.DataObject
) -> None:
    stream = b"".join(client_frame(opcode, text, mask=mask) for opcode, text in messages)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    reader, found = MessageReader(MOST), list[Message]()
    for start, end in pairwise(sorted({0, len(stream), *cuts})):
        found += reader.feed(stream[start:end])
    assert found == [Message(Opcode(opcode), text) for opcode, text in messages]
    assert reader.held_bytes == 0


@pytest.mark.parametrize("count", [0, 1, 125, 126, 65_535, 65_536, MOST])
def test_messages_of_every_length_are_read(count: int) -> None:
    content = bytes(index % 251 for index in range(count))
    assert MessageReader(MOST).feed(client_frame(2, content)) == [Message(Opcode.BINARY, content)]


def test_a_message_in_parts_with_a_ping_between_them() -> None:
    reader = MessageReader(MOST)
    assert reader.feed(client_frame(2, b"first ", is_last=False)) == []
    assert reader.held_bytes == 6
    assert reader.feed(client_frame(9, b"here?")) == [Message(Opcode.PING, b"here?")]
    assert reader.feed(client_frame(0, b"second ", is_last=False)) == []
    assert reader.feed(client_frame(0, b"third")) == [Message(Opcode.BINARY, b"first second third")]
    assert reader.held_bytes == 0


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\x82\x05Hello", CloseCode.PROTOCOL_ERROR),  # not masked
        (b"\xc2\x85", CloseCode.PROTOCOL_ERROR),  # compressed
        (b"\x83\x80", CloseCode.PROTOCOL_ERROR),  # an opcode that is reserved
        (client_frame(0, b"without a first part"), CloseCode.PROTOCOL_ERROR),
        (client_frame(2, b"", is_last=False) + client_frame(2, b""), CloseCode.PROTOCOL_ERROR),
        (client_frame(9, b"", is_last=False), CloseCode.PROTOCOL_ERROR),
        (client_frame(9, bytes(126)), CloseCode.PROTOCOL_ERROR),
        (b"\x82\xfe\x00\x7d" + MASK, CloseCode.PROTOCOL_ERROR),  # 125 in two bytes
        (b"\x82\xff" + (65_535).to_bytes(8, "big") + MASK, CloseCode.PROTOCOL_ERROR),
        (b"\x82\xff" + (1 << 63).to_bytes(8, "big") + MASK, CloseCode.TOO_BIG),
        (b"\x82\xff" + (MOST + 1).to_bytes(8, "big") + MASK, CloseCode.TOO_BIG),
        (
            client_frame(2, bytes(MOST), is_last=False) + client_frame(0, b"x"),
            CloseCode.TOO_BIG,
        ),
    ],
)
def test_what_breaks_the_rules_ends_the_connection(data: bytes, code: CloseCode) -> None:
    with pytest.raises(WebSocketError) as ended:
        MessageReader(MOST).feed(data)
    assert ended.value.code is code


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    reader = MessageReader(100)
    try:
        reader.feed(data)
    except WebSocketError:
        return
    assert reader.held_bytes <= len(data)


def test_a_reason_is_cut_to_whole_characters() -> None:
    ended = close_frame(CloseCode.GOING_AWAY, "é" * 100)
    assert len(ended) <= 2 + 125
    assert ended[4:].decode() == "é" * 61


def test_a_message_has_so_many_frames() -> None:
    reader = MessageReader(MOST)
    part = client_frame(Opcode.CONTINUATION, b"", is_last=False)
    assert reader.feed(client_frame(Opcode.BINARY, b"", is_last=False) + 1023 * part) == []
    assert reader.held_bytes == 0
    with pytest.raises(WebSocketError) as refused:
        reader.feed(part)
    assert refused.value.code is CloseCode.TOO_BIG
