"""What a holder may hear from a process of the same user that is broken or hostile: it goes on, and holds the same."""

from __future__ import annotations

import array
import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import HeldError, HipplanError
from hipplan.files import strict_json
from hipplan.holders import clients, names, requests
from hipplan.holders.attaching import attach
from tests.conftest import Simulator
from tests.descriptors import descriptors
from tests.holders.test_holders import attached, code, f32, until
from tests.unit.test_mesh import HEAD, Packet, head, send

WAIT_S = 60.0


@pytest.fixture
def link(kept: int) -> Iterator[Callable[[], socket.socket]]:
    """A new connection to the holder "w" each time."""
    links = []

    def connect() -> socket.socket:
        line = names.connect("w")
        line.link.setblocking(True)
        line.link.settimeout(WAIT_S)
        links.append(line)
        return line.link

    yield connect
    for line in links:
        line.close()


def files(process: int) -> int:
    return len([*Path(f"/proc/{process}/fd").iterdir()])


def ended(one: socket.socket) -> bool:
    """Whether the holder has closed its end, now or in a moment."""
    try:
        while one.recv(1 << 17):
            continue
    except ConnectionError:
        pass
    return True


def text(message: Any) -> list[Packet]:
    said = strict_json.dumps(message).encode()
    return [head(len(said)), b"J" + said]


NONSENSE: list[Sequence[Packet]] = [
    [b"x"],
    [b"H"],
    [b"H" + b"1" * 100],
    [head(2**32 - 1)],
    [head(clients.REQUEST_BYTES + 1)],
    [head(2, clients.REQUEST_DESCRIPTORS + 1)],
    [b"J{}"],
    [head(2), head(2)],
    [head(2), b"J[]"],
    [head(2), b"J{]"],
    [head(60_000), b"J" + b"[" * 60_000],
    [head(2), b"J{}}"],
    [b"A"],
    [(b"F", 3)],
    [(head(2), 1), b"J{}"],
    [b"closed"],
]


@pytest.mark.parametrize("packets", NONSENSE)
def test_nonsense_is_the_end_of_its_connection(
    kept: int, link: Callable[[], socket.socket], packets: Sequence[Packet]
) -> None:
    opened = files(kept)
    one = link()
    with contextlib.suppress(BrokenPipeError):  # it has ended before the last packet
        send(one, packets)
    assert ended(one)
    until(lambda: files(kept) <= opened)
    assert requests.status("w")["state"] == "ready"


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"want": "sleep"},
        {"want": []},
        {"want": {}},
        {"want": None},
        {"want": "attach"},
        {"want": "attach", "access": "rwx"},
        {"want": "attach", "access": []},
        {"want": "replace"},
        {"want": "replace", "arguments": [], "folder": "/", "settings": {}},
        {"want": "replace", "arguments": [1], "folder": "/", "settings": {}},
        {"want": "replace", "arguments": ["a\0b"], "folder": "/", "settings": {}},
        {"want": "replace", "arguments": [], "folder": "/", "settings": {"HIPPLAN_X": 1}},
        {"want": "down"},
        {"want": "down", "wait_s": -1},
        {"want": "down", "wait_s": 1e300},
        {"want": "down", "wait_s": "1"},
        {"want": "down", "wait_s": []},
        {"want": "sleep", "keep": "disk", "wait_s": 0, "options": []},
        {"want": "sleep", "keep": [], "wait_s": 0, "options": []},
        {"want": "sleep", "keep": "host", "wait_s": {}, "options": []},
        {"want": "sleep", "keep": "host", "wait_s": 0, "options": [1]},
        {"want": "sleep", "keep": "host", "wait_s": 0, "options": "quiet"},
        {"want": "sleep", "keep": "host", "wait_s": 0, "options": []},
        {"want": "wake"},
        {"want": "wake", "options": ["\0"]},
        {"want": "wake", "options": []},
    ],
)
def test_a_wrong_request_is_refused(link: Callable[[], socket.socket], request_: Any) -> None:
    line = names.connect("w")
    with pytest.raises(HeldError) as caught:
        requests.send_request(line, "w", request_, time.monotonic() + WAIT_S)
    line.close()
    assert code(caught) == "HP452"
    assert requests.status("w")["state"] == "ready"


def test_a_replacement_that_cannot_be_started_is_refused(kept: int, sim: Simulator) -> None:
    line = names.connect("w")
    order = {"want": "replace", "arguments": ["no such option"], "folder": "/no/such/folder", "settings": {}}
    with pytest.raises(HeldError) as caught:
        requests.send_request(line, "w", order, time.monotonic() + WAIT_S, descriptors=(0, 1, 2))
    line.close()
    assert code(caught) == "HP455"
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.b", sim) == {2.5}


def test_who_says_nothing_makes_room_for_others(kept: int, link: Callable[[], socket.socket]) -> None:
    opened = files(kept)
    silent = [link() for _ in range(100)]
    with hipplan.attach("w"):
        assert attached() == [os.getpid()]
    assert ended(silent[0])
    for one in silent:
        one.close()
    until(lambda: files(kept) <= opened)


def test_who_does_not_read_its_answer_keeps_nobody_waiting(link: Callable[[], socket.socket], sim: Simulator) -> None:
    deaf = [link() for _ in range(20)]
    for one in deaf:
        send(one, text({"want": "attach", "access": "r"}))
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.b", sim) == {2.5}


def test_who_is_attached_and_talks_on_is_not_attached_any_more(link: Callable[[], socket.socket]) -> None:
    one = link()
    send(one, text({"want": "attach", "access": "r"}))
    kinds, came = b"", 0
    while kinds.count(b"F") < 1:
        packet, beside, _, _ = one.recvmsg(1 << 17, 4096)
        kinds += packet[:1]
        for _, _, data in beside:
            rights = array.array("i")
            rights.frombytes(data)
            came += len(rights)
            for number in rights:
                os.close(number)
    assert came == 3
    one.send(b"A")
    until(lambda: attached() == [os.getpid()])
    one.send(b"what else is there?")
    until(lambda: attached() == [])


def test_a_folder_that_others_may_enter_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (folder / "hipplan").mkdir(0o755)
    (folder / "hipplan").chmod(0o755)
    assert [name for name, log, _ in names.known() if log.startswith(str(folder))] == []
    with pytest.raises(HeldError) as caught:
        attach("w")
    assert code(caught) == "HP452"


@pytest.fixture
def liar(folder: Path) -> Iterator[Callable[[Sequence[Packet]], None]]:
    """A holder "w" that says what it is told to say, once somebody asks."""
    import threading

    (folder / "hipplan").mkdir(0o700)
    door = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    door.bind(str(folder / "hipplan" / "held-w"))
    door.listen()
    threads = []

    def say(packets: Sequence[Packet]) -> None:
        def serve() -> None:
            one, _ = door.accept()
            with one:
                one.recv(1 << 17)
                one.recv(1 << 17)
                send(one, packets)
                one.settimeout(WAIT_S)
                try:
                    while one.recv(1 << 17):
                        continue
                except OSError:
                    pass

        threads.append(threading.Thread(target=serve))
        threads[-1].start()

    yield say
    for thread in threads:
        thread.join(WAIT_S)
    door.close()


def made(access: str = "r", **changed: Any) -> list[Packet]:
    """An answer to attach: of a program that is one, or is not. access: what this process has."""
    from hipplan.program import held, written

    program = hipplan.compile(
        {"hipplan": 1, "devices": {"gpu": {"count": 1}}, "regions": {"x": {"size": "2MiB"}}}, "sim-2"
    )
    whole = held.held_program(held.with_addresses(held.holdable(program)), {"x": 0x680000000000})
    answer = {"made": {"program": written.write(whole), "family": "sim", **changed}, "access": access, "allows": "plan"}
    encoded = strict_json.dumps(answer).encode()
    return [head(len(encoded), 1), b"J" + encoded, (b"F", 1)]


@pytest.mark.parametrize(
    ("packets", "expected"),
    [
        *((packets, "HP455") for packets in NONSENSE[:3]),
        (text({}), "HP455"),
        (text({"made": []}), "HP455"),
        (text({"made": {"program": 1}}), "HP455"),
        (text({"refused": {}}), "HP455"),
        (text({"refused": {"code": "HP454", "summary": "no", "why": "", "hint": ""}}), "HP454"),
        (made(program="{}"), "HP028"),
        (made(program="[" * 10_000), "HP028"),
        (made(family="cuda"), "HP454"),
        (made(access="rw"), "HP455"),  # more than was asked for
        (made(), "HP401"),  # the descriptor is of no memory
    ],
)
def test_a_holder_that_lies_is_an_error_and_nothing_is_mapped(
    liar: Callable[[Sequence[Packet]], None], sim: Simulator, packets: Sequence[Packet], expected: str
) -> None:
    opened = descriptors(but="hipsim")
    liar(packets)
    with pytest.raises(HipplanError) as caught:
        attach("w", answer=False, runtime="sim" if expected != "HP454" else None)
    assert code(caught) == expected
    until(lambda: descriptors(but="hipsim") == opened)  # the liar is a thread of this process
    assert sim.alive() == set()


def test_descriptors_that_are_missing_are_an_error(liar: Callable[[Sequence[Packet]], None], sim: Simulator) -> None:
    packets = made()
    said = packets[1]
    assert isinstance(said, bytes)
    liar([b"H" + HEAD.pack(len(said) - 1, 0), said])
    with pytest.raises(HeldError) as caught:
        attach("w", answer=False)
    assert code(caught) == "HP455"
