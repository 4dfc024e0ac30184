"""What a filler reports when its messages to the holder fail: the holder's end, its silence, or the bug itself."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from hipplan.errors import HeldError, PlanError
from hipplan.holders import filler
from hipplan.holders.filler import HolderConnection
from hipplan.processes import packets
from tests.unit.test_links import Packet, head, send


@pytest.fixture
def ends() -> Iterator[tuple[HolderConnection, socket.socket]]:
    """A filler's connection, and the holder's end of it."""
    own, holder = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with holder:
        send(holder, request(b'{"task": "fill"}'))
        connection = HolderConnection(own.detach())
        yield connection, holder
        connection.close()


def request(text: bytes) -> list[Packet]:
    return [head(len(text)), b"J" + text]


def test_a_holder_that_has_ended_is_reported(ends: tuple[HolderConnection, socket.socket]) -> None:
    ends[1].close()
    with pytest.raises(HeldError, match=r"HP455.*has ended"):
        ends[0].send({})


def test_a_holder_that_does_not_read_is_not_reported_as_ended(
    ends: tuple[HolderConnection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filler, "SEND_S", 0.0)
    with pytest.raises(HeldError, match=r"HP455.*read no message for 0 s"):
        ends[0].send({"text": "x" * (8 << 20)})  # more than a socket holds


def test_a_description_that_is_too_long_is_refused_with_its_size(
    ends: tuple[HolderConnection, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packets, "TEXT_MAX", 100)
    with pytest.raises(PlanError, match=r"(?s)HP450.*and at most 100 can be sent"):
        ends[0].send({"text": "x" * 100})


def test_a_bug_is_not_reported_as_the_holder_s_end(ends: tuple[HolderConnection, socket.socket]) -> None:
    with pytest.raises(ValueError, match=r"JSON"):
        ends[0].send({"a number": float("nan")})


@pytest.mark.parametrize(
    "text",
    [
        b"{}",
        b'{"task": []}',
        b'{"task": "dance"}',
        b'{"task": "fill", "beside": []}',
        b'{"task": "fill", "beside": {"uuid": "7"}}',
    ],
)
def test_a_request_that_is_not_understood_is_not_reported_as_the_holder_s_end(text: bytes) -> None:
    own, holder = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with holder:
        send(holder, request(text))
        with pytest.raises(HeldError, match=r"HP455.*does not understand"):
            HolderConnection(own.detach())


def test_a_request_without_a_program_is_not_understood() -> None:
    own, holder = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with holder:
        send(holder, request(b'{"task": "save"}'))
        connection = HolderConnection(own.detach())
        with pytest.raises(HeldError, match=r"HP455.*does not understand"):
            connection.held_program()
        connection.close()
