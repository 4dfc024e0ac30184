"""How long a process waits for a message: until a deadline, or as long as the other end gives signs of life."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from hipplan.processes import connections, packets
from hipplan.processes.connections import Connection, Late
from hipplan.processes.packets import SIGN, Exchange
from tests.unit.test_links import head, send

Ends = tuple[Connection, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """A connection, and the other end of it."""
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    own.setblocking(False)
    connection = Connection(own)
    with other:
        yield connection, other
    connection.close()


@pytest.fixture
def each_second(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[int], None]], None]:
    """each_second(act): from now on a second passes at each look at the clock, and act(seconds) is called."""
    seconds = 0

    def start(act: Callable[[int], None]) -> None:
        def monotonic() -> float:
            nonlocal seconds
            seconds += 1
            act(seconds)
            return float(seconds)

        monkeypatch.setattr(connections, "time", SimpleNamespace(monotonic=monotonic))

    return start


def test_signs_of_life_prolong_a_wait(ends: Ends, each_second: Callable[[Callable[[int], None]], None]) -> None:
    def act(second: int) -> None:
        send(ends[1], [SIGN] if second < 100 else [head(2), b"J{}"])

    each_second(act)
    assert ends[0].exchange(None, silence_s=3).message == {}


def test_a_wait_ends_after_the_silence_that_follows_the_last_sign(
    ends: Ends, each_second: Callable[[Callable[[int], None]], None]
) -> None:
    def act(second: int) -> None:
        send(ends[1], [SIGN] if second <= 50 else [])

    each_second(act)
    with pytest.raises(Late) as caught:
        ends[0].exchange(None, silence_s=3)
    assert caught.value.silence_s == 3


def test_signs_of_life_do_not_prolong_a_deadline(
    ends: Ends, each_second: Callable[[Callable[[int], None]], None]
) -> None:
    each_second(lambda _: send(ends[1], [SIGN]))
    with pytest.raises(Late) as caught:
        ends[0].exchange(None, until=20)
    assert caught.value.silence_s <= 1


def test_a_flood_of_packets_does_not_keep_a_process_from_its_other_work(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packets, "_AT_ONCE", 5)
    exchange = Exchange(ends[0].link, None)
    send(ends[1], [SIGN] * 12)
    counts = []
    for _ in range(3):
        exchange.go_on()
        counts.append(exchange.packets)
    assert counts == [5, 10, 12]
