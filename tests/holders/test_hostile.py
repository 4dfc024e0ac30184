"""Invalid messages from a broken or hostile process of the same user: a holder keeps running and keeps its memory."""

from __future__ import annotations

import array
import contextlib
import itertools
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import hipplan
from hipplan.errors import HeldError, HipplanError
from hipplan.files import strict_json
from hipplan.holders import clients, names, requests
from hipplan.holders.attaching import attach
from hipplan.processes import verifying
from tests.conftest import Simulator
from tests.descriptors import descriptors
from tests.holders.test_holders import attached, code, f32, until
from tests.unit.test_links import HEAD, Packet, head, send, text

WAIT_S = 60.0
NUMBER = 7
"""Of the request that false holders answer."""


@pytest.fixture
def link(kept: int) -> Iterator[Callable[[], socket.socket]]:
    """A new connection to the holder "w" each time."""
    links = []

    def connect() -> socket.socket:
        connection = names.connect("w")
        connection.link.setblocking(True)
        connection.link.settimeout(WAIT_S)
        links.append(connection)
        return connection.link

    yield connect
    for connection in links:
        connection.close()


ATTACH = {"want": "attach", "access": "r", "number": 1, "timeout_s": WAIT_S}


def files(process: int) -> int:
    return len([*Path(f"/proc/{process}/fd").iterdir()])


def is_closed(connection: socket.socket) -> bool:
    """Wait until the other end closes a connection; TimeoutError if it does not."""
    try:
        while connection.recv(1 << 17):
            continue
    except ConnectionError:
        pass
    return True


INVALID: list[Sequence[Packet]] = [
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


@pytest.mark.parametrize("packets", INVALID)
def test_invalid_packets_end_their_connection(
    kept: int, link: Callable[[], socket.socket], packets: Sequence[Packet]
) -> None:
    opened = files(kept)
    connection = link()
    with contextlib.suppress(BrokenPipeError):  # the holder has closed it before the last packet
        send(connection, packets)
    assert is_closed(connection)
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
        {"want": "replace", "arguments": [], "folder": "/", "settings": {}, "lose": "*"},
        {"want": "replace", "arguments": [], "folder": "/", "settings": {}, "lose": [7]},
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
def test_an_invalid_request_is_refused(link: Callable[[], socket.socket], request_: Any) -> None:
    connection = names.connect("w")
    with pytest.raises(HeldError) as caught:
        requests.send_request(connection, "w", request_, WAIT_S)
    connection.close()
    assert code(caught) == "HP452"
    assert requests.status("w")["state"] == "ready"


@pytest.mark.parametrize(
    "changed",
    [
        {"number": None},
        {"number": 0},
        {"number": True},
        {"number": 1.5},
        {"timeout_s": None},
        {"timeout_s": -1},
        {"timeout_s": 1e300},
        {"timeout_s": True},
    ],
    ids=repr,
)
def test_a_request_without_a_valid_number_or_timeout_is_refused(kept: int, changed: dict[str, Any]) -> None:
    connection = names.connect("w")
    answer = connection.exchange({"want": "status", "number": 1, "timeout_s": 1, **changed}, silence_s=WAIT_S).message
    connection.close()
    assert answer["refused"]["code"] == "HP452"
    assert next(iter(changed)) in answer["refused"]["why"]


def test_a_replacement_that_cannot_be_started_is_refused(kept: int, sim: Simulator) -> None:
    connection = names.connect("w")
    order = {"want": "replace", "arguments": ["no such option"], "folder": "/no/such", "settings": {}, "lose": []}
    with pytest.raises(HeldError) as caught:
        requests.send_request(connection, "w", order, WAIT_S, (0, 1, 2))
    connection.close()
    assert code(caught) == "HP455"
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.b", sim) == {2.5}


def test_a_connection_without_a_request_is_closed_for_a_new_one(kept: int, link: Callable[[], socket.socket]) -> None:
    opened = files(kept)
    silent = [link() for _ in range(100)]
    with hipplan.attach("w"):
        assert attached() == [os.getpid()]
    assert is_closed(silent[0])
    for connection in silent:
        connection.close()
    until(lambda: files(kept) <= opened)


def test_clients_that_do_not_read_their_answers_delay_no_other(
    link: Callable[[], socket.socket], sim: Simulator
) -> None:
    for connection in [link() for _ in range(20)]:
        send(connection, text(ATTACH))
    with hipplan.attach("w") as layout:
        assert f32(layout, "model.b", sim) == {2.5}


def test_an_attached_client_that_sends_more_is_detached(link: Callable[[], socket.socket]) -> None:
    connection = link()
    send(connection, text(ATTACH))
    kinds, count = b"", 0
    while kinds.count(b"F") < 1:
        packet, ancillary, _, _ = connection.recvmsg(1 << 17, 4096)
        assert packet, "the holder has closed the connection"
        kinds += packet[:1]
        for _, _, data in ancillary:
            received = array.array("i")
            received.frombytes(data)
            count += len(received)
            for descriptor in received:
                os.close(descriptor)
    assert count == 3
    connection.send(b"A")
    until(lambda: attached() == [os.getpid()])
    connection.send(b"an unexpected packet")
    until(lambda: attached() == [])


def test_a_folder_that_other_users_may_enter_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (folder / "hipplan").mkdir(0o755)
    (folder / "hipplan").chmod(0o755)
    assert [*names.known()] == []
    with pytest.raises(HeldError) as caught:
        attach("w")
    assert code(caught) == "HP456"


@pytest.fixture
def false_holder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Sequence[Packet]], None]]:
    """false_holder(packets): starts a holder "w" that answers its first request with these packets."""
    import threading

    monkeypatch.setattr(requests, "_numbers", itertools.count(NUMBER))
    (folder / "hipplan").mkdir(0o700)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(folder / "hipplan" / "held-w"))
    listener.listen()
    threads = []

    def start(packets: Sequence[Packet]) -> None:
        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1 << 17)
                connection.recv(1 << 17)
                connection.settimeout(WAIT_S)
                try:  # the other end closes it as soon as it refuses a packet
                    send(connection, packets)
                    while connection.recv(1 << 17):
                        continue
                except OSError:
                    pass

        threads.append(threading.Thread(target=serve))
        threads[-1].start()

    yield start
    for thread in threads:
        thread.join(WAIT_S)
    listener.close()


def attach_answer(access: str = "r", **changed: Any) -> list[Packet]:
    """An answer to an attach request. access: the right in the answer. changed: keys of the description to replace."""
    from hipplan.program import held, written

    program = hipplan.compile(
        {"hipplan": 1, "devices": {"gpu": {"count": 1}}, "regions": {"x": {"size": "2MiB"}}}, "sim-2"
    )
    kept = held.held_program(held.with_addresses(held.holdable(program)), {"x": 0x680000000000})
    answer = {"made": {"program": written.write(kept), "family": "sim", **changed}, "access": access, "allows": "plan"}
    answer["number"] = NUMBER
    encoded = strict_json.dumps(answer).encode()
    return [head(len(encoded), 1), b"J" + encoded, (b"F", 1)]


@pytest.mark.parametrize(
    ("packets", "expected"),
    [
        *((packets, "HP455") for packets in INVALID[:3]),
        (text({}), "HP455"),
        (text({"made": [], "number": NUMBER}), "HP455"),
        (text({"made": {"program": 1}, "number": NUMBER}), "HP455"),
        (text({"made": {"program": 1}, "number": NUMBER + 1}), "HP455"),
        (text({"refused": {}}), "HP455"),
        (text({"refused": {"code": "HP454", "summary": "no", "why": "", "hint": ""}}), "HP454"),
        (attach_answer(program="{}"), "HP028"),
        (attach_answer(program="[" * 10_000), "HP028"),
        (attach_answer(family="cuda"), "HP454"),
        (attach_answer(access="rw"), "HP455"),  # a higher right than requested
        (attach_answer(), "HP401"),  # the descriptor is not of memory
    ],
)
def test_attach_raises_for_an_invalid_answer_and_maps_nothing(
    false_holder: Callable[[Sequence[Packet]], None], sim: Simulator, packets: Sequence[Packet], expected: str
) -> None:
    opened = descriptors(but="hipsim")
    false_holder(packets)
    with pytest.raises(HipplanError) as caught:
        attach("w", runtime="sim" if expected != "HP454" else None)
    assert code(caught) == expected
    until(lambda: descriptors(but="hipsim") == opened)  # the false holder is a thread of this process
    assert sim.alive() == set()


def test_attach_raises_for_missing_descriptors(
    false_holder: Callable[[Sequence[Packet]], None], sim: Simulator
) -> None:
    packets = attach_answer()
    encoded = packets[1]
    assert isinstance(encoded, bytes)
    false_holder([b"H" + HEAD.pack(len(encoded) - 1, 0), encoded])
    with pytest.raises(HeldError) as caught:
        attach("w")
    assert code(caught) == "HP455"


REFUSED = {"code": "HP452", "summary": "the holder 'w' does not understand this request", "why": "", "hint": ""}


@pytest.mark.parametrize(
    ("packets", "why"),
    [
        (text({"refused": REFUSED}), "another version of hipplan"),
        (text({"status": {}}), "another version of hipplan"),
        ([head(verifying.ANSWER_BYTES + 1)], "the message is too long"),
        ([head(2, 1), b"J{}", (b"F", 1)], "the message is too long"),
        ([b"closed"], "it has ended"),
    ],
    ids=["refuses", "answers something else", "too long", "with a file", "ends"],
)
def test_verify_reports_a_holder_that_does_not_answer_it(
    false_holder: Callable[[Sequence[Packet]], None], packets: Sequence[Packet], why: str
) -> None:
    false_holder(packets)
    (answer,) = verifying.processes_with_layouts()
    assert answer["process"] == os.getpid()  # by the kernel
    assert why in answer["error"]


def test_verify_reports_what_a_holder_sent_before_the_request_was(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is not lost, and not taken for silence."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    theirs.send(b"closed")
    monkeypatch.setattr(verifying, "sockets", lambda: [(0, "held-w")])
    monkeypatch.setattr(verifying, "within", lambda folder, name: name)
    monkeypatch.setattr(verifying, "connect", lambda address, until: ours)
    with theirs:
        (answer,) = verifying.processes_with_layouts()
    assert "it has ended" in answer["error"]
    assert ours.fileno() == -1
