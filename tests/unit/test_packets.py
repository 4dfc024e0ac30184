"""How long a process waits for a message: until a deadline, or as long as the other end gives signs of life."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from hipplan.processes import connections, packets
from hipplan.processes.connections import Connection, Late, connect, never, new_socket
from hipplan.processes.listener import Caller, Listener
from hipplan.processes.packets import SIGN, Exchange, Gone
from hipplan.ranks.links import LinkMaker, Links
from tests.descriptors import descriptors
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


def test_an_end_with_an_unread_request_is_an_end(ends: Ends) -> None:
    """The kernel calls it a reset then, and after that a broken pipe."""
    exchange = Exchange(ends[0].link, {})
    exchange.go_on()
    ends[1].close()

    for _ in range(2):
        with pytest.raises(Gone, match=r"^it has ended$"):
            Exchange(ends[0].link, {}).go_on()


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


def full_socket(stack: contextlib.ExitStack) -> str:
    """The address of a socket whose queue is full."""
    listening = stack.enter_context(new_socket())
    address = f"\0hipplan-test-{os.urandom(8).hex()}"
    listening.bind(address)
    listening.listen(0)
    with contextlib.suppress(BlockingIOError):
        while True:
            stack.enter_context(new_socket()).connect(address)
    return address


def test_a_process_that_accepts_nothing_is_waited_for_until_the_deadline_or_a_look_ends_it() -> None:
    with contextlib.ExitStack() as stack:
        address = full_socket(stack)
        opened = descriptors()
        looks: list[int] = []

        def third_look() -> bool:
            looks.append(1)
            return len(looks) == 3

        with pytest.raises(Late):
            connect(address, time.monotonic() + 0.1)
        with pytest.raises(Late):
            connect(address, time.monotonic() + 600, third_look)
        assert descriptors() == opened


def test_a_rank_that_accepts_nothing_and_one_of_another_user_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with contextlib.ExitStack() as stack:
        maker = LinkMaker()
        stack.callback(maker.close)
        full = full_socket(stack).removeprefix("\0")
        opened = descriptors()
        with pytest.raises(Late) as late:
            maker.links(5, {3: (full, ""), 7: ("", "")}, time.monotonic() + 0.1, never)
        assert late.value.missing == [3]
        monkeypatch.setattr(connections, "is_same_user", lambda link: False)
        with pytest.raises(Gone, match="its socket belongs to another user") as gone:
            maker.links(5, {3: (maker.name, "")}, time.monotonic() + 60, never)
        assert gone.value.peer == 3
        assert descriptors() == opened


def test_a_forked_child_closes_connections_links_and_callers_and_the_parent_keeps_them(ends: Ends) -> None:
    """Else the child would hide the parent's end from the other processes."""
    own, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    links = Links({1: own})
    with contextlib.ExitStack() as stack:
        listening, peer = stack.enter_context(new_socket()), stack.enter_context(new_socket())
        address = f"\0hipplan-test-{os.urandom(8).hex()}"
        listening.bind(address)
        listening.listen(1)
        listener = Listener([listening], Caller, lambda caller: None)
        peer.connect(address)
        listener.serve()
        (caller,) = listener
        sockets = [ends[0].link, own, listening, caller.link]
        numbers = [*(link.fileno() for link in sockets), listener.fileno()]
        child = os.fork()
        if child == 0:
            still_open = sum(os.path.exists(f"/proc/self/fd/{number}") for number in numbers)  # noqa: PTH110
            os._exit(still_open)
        assert os.waitpid(child, 0)[1] == 0
        assert all(link.fileno() >= 0 for link in sockets)
        listener.serve()
        send(peer, [head(2), b"J{}"])
        listener.serve()
        assert caller.message == {}
        links.close()
        assert other.recv(1) == b""
        listener.close()
    other.close()
