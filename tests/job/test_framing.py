"""The wire: a stream cut anywhere, and what is no message."""

import pickle

import pytest

from farm.job import messages
from farm.job.messages import FRAME, MESSAGE_MAX_BYTES, BadMessage, Compile, Decoder, Ping, Pong, encode

SENT = (Ping(), Compile(1, 1, "f", b"payload"), Pong())
STREAM = b"".join(map(encode, SENT))


@pytest.mark.parametrize("size", [1, 2, 3, 7, len(STREAM) - 1, len(STREAM)])
def test_messages_come_out_whatever_the_pieces(size: int) -> None:
    decoder = Decoder()
    pieces = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
    assert [message for piece in pieces for message in decoder.feed(piece)] == list(SENT)


def framed(body: bytes) -> bytes:
    return FRAME.pack(len(body)) + body


NONSENSE = {
    "no pickle": framed(b"oops"),
    "empty": framed(b""),
    "a pickle of something else": framed(pickle.dumps({"a": 1})),
    "a class that is not here": framed(b"cno_such_module\nThing\n."),
    "too long": FRAME.pack(MESSAGE_MAX_BYTES + 1),
}


@pytest.mark.parametrize("stream", NONSENSE.values(), ids=NONSENSE)
def test_what_is_no_message_is_told_apart_from_one(stream: bytes) -> None:
    decoder = Decoder()
    assert decoder.feed(encode(Ping())) == [Ping()]
    with pytest.raises(BadMessage):
        decoder.feed(stream)


def test_what_is_too_large_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "MESSAGE_MAX_BYTES", 1 << 20)
    assert Decoder().feed(encode(Compile(1, 1, "f", bytes(1_000_000)))) == [Compile(1, 1, "f", bytes(1_000_000))]
    with pytest.raises(BadMessage, match="2 MiB"):
        encode(Compile(1, 1, "f", bytes(2 << 20)))
